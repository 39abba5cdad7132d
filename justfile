# Verbs of this repository. Run `just` for the list; each works from any folder below the root.

venv := env("VIRTUAL_ENV", justfile_directory() / ".venv")
export PATH := venv / "bin:" + env("PATH")

[private]
default:
    @just --list --unsorted

# start the local stack (same as `farside up`)
up *ARGS:
    farside up {{ ARGS }}

# stop the local stack
down *ARGS:
    farside down {{ ARGS }}

# one training job survives the death of its node, told while it happens
demo *ARGS:
    farside demo {{ ARGS }}

# all that needs no server: format, lint, types, import rules, contract gates, migrations
check: lint types imports migrations gates

# ruff: format and rules
lint:
    ruff format --check --quiet
    ruff check --quiet

# basedpyright in strict mode, tests included
types:
    basedpyright

# the import rules between contracts, libs, services and deploy
imports:
    lint-imports --no-logo

# squawk on every migration
migrations:
    squawk 'services/*/migrations/*.sql' 'libs/*/migrations/*.sql'

# contract gates: schemas, examples, AsyncAPI pages, compatibility with all earlier versions
gates:
    python -m contracts.generate --check
    python -m pytest -q tests/contracts

# everything CI runs: the checks, then unit, bus and end-to-end tests
test: lint types imports migrations
    python -m contracts.generate --check
    python -m pytest tests --durations=15 --numprocesses=2 --dist=loadfile --no-loadscope-reorder

# tests of cores and of code that needs no server
test-unit *ARGS:
    python -m pytest tests/unit tests/contracts {{ ARGS }}

# tests against the real NATS and PostgreSQL
test-bus *ARGS:
    python -m pytest tests/bus {{ ARGS }}

# the stack in containers: built, started, the demo's jobs run with one agent's container killed, taken down
compose-test *ARGS:
    FARSIDE_ENGINE_REQUIRED=1 python -m pytest tests/compose --capture=no --quiet --exitfirst {{ ARGS }}
    @echo "compose-test: ok, and nothing is left running"

# measure: `just bench bus`; progress on standard error, one JSON object on standard output
[no-exit-message]
bench NAME *ARGS:
    @python -m tests.bench {{ NAME }} {{ ARGS }}

# simulate: `just sim --seeds 1-200`, small worlds with many faults, or `just sim --nodes 10000 --jobs 1000000`
[no-exit-message]
sim *ARGS:
    @python -m tests.sim {{ ARGS }}

# write contracts/schemas, contracts/asyncapi, docs/flows.md and deploy/compose's accounts anew from the registry
contracts:
    python -m contracts.generate
    python -m deploy.compose.accounts

# mend what ruff can mend by itself
fix:
    ruff check --fix
    ruff format

# pin the newest versions that fit pyproject.toml into requirements.lock
lock:
    python -m pip install --quiet uv
    uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --strip-extras --no-emit-index-url \
        --no-emit-find-links --no-annotate --custom-compile-command 'just lock' --output-file requirements.lock pyproject.toml
