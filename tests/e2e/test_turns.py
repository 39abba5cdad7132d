"""Whose turn it is and why a job waits, asked of a running stack: before submission, in the queue, on hold."""

import json
import sys
from collections.abc import Generator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from libs.cli.main import cli
from tests.e2e.shell import Shell, job_file, running_stack
from tests.waiting import until_sync

WAIT_S = 30
RUN_S = 900
SLEEP = [sys.executable, "-c", f"import time; time.sleep({RUN_S})"]


@pytest.fixture(scope="module")
def farside(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    """A stack on whose two central nodes every card is held by a job that sleeps."""
    with running_stack(tmp_path_factory.mktemp("turns")) as shell:
        blockers = [sleeper(shell, f"blocker-{number}") for number in range(2)]
        for job_id in blockers:
            state_of(shell, job_id, "running")
        yield shell
        for job_id in blockers:
            shell("job", "cancel", job_id)


def sleeper(farside: Shell, name: str, **fields: object) -> str:
    return farside.submit(name, resources={"cards": 2}, command=SLEEP, max_runtime_s=RUN_S, **fields)


def why(farside: Shell, job_id: str) -> dict[str, Any]:
    told: dict[str, Any] = farside("why", job_id, "--json").json()
    return told


def classes(farside: Shell) -> list[str]:
    """Classes of what waits, in the order of turns."""
    return [one["priority"] for one in farside("queue", "--json").json()["jobs"]]


def state_of(farside: Shell, job_id: str, state: str) -> dict[str, Any]:
    """What `why` says once the job is in that state."""
    told = until_sync(lambda: found if (found := why(farside, job_id))["state"] == state else None, WAIT_S)
    assert told is not None, f"{job_id} never was {state}"
    return told


def test_a_trial_tells_what_why_and_the_queue_tell_afterwards(farside: Shell) -> None:
    file = job_file("patient", resources={"cards": 2})
    trial = farside("job", "submit", "-", "--dry-run", "--json", stdin=file)
    assert trial.status == 0, trial.err
    foretold = trial.json()
    assert foretold["verdict"] == "waits"
    assert farside("job", "list", "--json").json()["jobs"][0]["spec"]["name"] != "patient", "nothing was submitted"
    job_id = farside.submit("patient", resources={"cards": 2})
    try:
        told = state_of(farside, job_id, "waiting")
        keys = ("reason", "resource", "used", "asked", "allowed", "constraint", "short", "position", "frees")
        assert {key: told[key] for key in keys} == {key: foretold[key] for key in keys}
        assert (told["reason"], told["short"]) == ("waiting_for_cards", 2)
        assert told["forecast"]["starts_at"] is not None
        assert {one["node"] for one in told["leaving"]} == {"central-1", "central-2"}
        words = farside("why", job_id).out
        assert "an end of a job that holds such cards" in words
        assert f"{told['position']} of 1 waiting job" in words
        queued = farside("queue", "--json").json()
        assert [(one["job_id"], one["position"]) for one in queued["jobs"]] == [(job_id, 1)]
        assert "patient" in farside("queue", "--tenant", "acme").out
        assert farside("queue", tenant="beta").out == ""
    finally:
        farside("job", "cancel", job_id)


def test_a_trial_that_would_be_placed(farside: Shell) -> None:
    done = farside("job", "submit", "-", "--dry-run", stdin=job_file("hostless", resources={"cpu_milli": 1}))
    assert done.status == 0, done.err
    assert "would be placed" in done.out


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"resources": {"cards": 64}}, "no_such_node_type"),
        ({"max_runtime_s": 36_000}, "checkpoint_required"),
        ({"priority": "online"}, "priority_not_allowed"),
    ],
)
def test_a_trial_that_would_be_refused(farside: Shell, fields: dict[str, object], code: str) -> None:
    file = job_file("unwanted", **fields)
    trial = farside("job", "submit", "-", "--dry-run", "--json", stdin=file, tenant="beta")
    submitted = farside("job", "submit", "-", "--json", stdin=file, tenant="beta")
    assert (trial.status, submitted.status) == (1, 1)
    assert trial.json()["verdict"] == "refused"
    assert trial.json()["reason"] == submitted.json()["reason"]["code"] == code
    assert f"would be refused, {code}: " in trial.err


def test_quota_counts_what_runs(farside: Shell) -> None:
    [acme] = farside("quota", "acme", "--json").json()["tenants"]
    lines = {line["resource"]: line for line in acme["lines"]}
    assert lines["card_milli"]["used"] == 4000
    assert lines["jobs"]["used"] == 2
    assert 0 < lines["gpu_ms"]["used"] + lines["gpu_ms"]["committed"] <= 4 * RUN_S * 1000
    assert "4 cards" in farside("quota", "acme", tenant="beta").out
    every = farside("quota", "--tenant", "_", "--json").json()["tenants"]
    assert {"acme", "beta"} <= {one["tenant"] for one in every}


def test_a_hold_on_a_running_job_says_what_it_does(farside: Shell) -> None:
    job_id = farside.submit("reader", kind="preprocessing", command=SLEEP, max_runtime_s=RUN_S)
    try:
        state_of(farside, job_id, "running")
        held = farside("job", "hold", job_id, "--reason", "checked first")
        assert held.status == 0, held.err
        assert "is running and held: attempt 1 goes on, and the job is not placed again until" in held.err
        assert (why(farside, job_id)["state"], why(farside, job_id)["held"]) == ("running", True)
        assert "not placed again until" in farside("why", job_id).out
        assert farside("job", "release", job_id).status == 0
        assert why(farside, job_id)["held"] is False
    finally:
        farside("job", "cancel", job_id)


def test_a_class_changes_and_one_above_the_tenant_s_does_not(farside: Shell) -> None:
    job_id = sleeper(farside, "mover")
    try:
        state_of(farside, job_id, "waiting")
        moved = farside("job", "reprioritize", job_id, "batch", "--json")
        assert moved.status == 0, moved.err
        assert moved.json()["spec"]["priority"] == "batch"
        assert until_sync(lambda: classes(farside) == ["batch"], WAIT_S), "the next plan knows it"
        assert "is batch, and waiting" in farside("job", "reprioritize", job_id, "batch").err
    finally:
        farside("job", "cancel", job_id)
    modest = farside("job", "submit", "-", stdin=job_file("modest", resources={"cards": 1}), tenant="beta")
    refused = farside("job", "reprioritize", modest.out.strip(), "online", tenant="beta")
    farside("job", "cancel", modest.out.strip(), tenant="beta")
    assert refused.status == 1
    assert "stays normal, priority_not_allowed: " in refused.err


def test_a_tenant_asks_by_its_own_user(farside: Shell) -> None:
    stack = json.loads((farside.folder / "stack" / "stack.json").read_text())
    env = {"FARSIDE_NATS_URL": stack["tenants"]["acme"], "FARSIDE_TENANT": None}

    def acme(*words: str, stdin: str = "") -> Result:
        return CliRunner().invoke(cli, words, input=stdin, env=env)

    file = job_file("own", resources={"cards": 2})
    assert "would be taken: waits" in acme("job", "submit", "-", "--dry-run", stdin=file).stdout
    job_id = acme("job", "submit", "-", stdin=file).stdout.strip()
    try:
        state_of(farside, job_id, "waiting")
        assert job_id[:18] in acme("queue").stdout
        assert "binds" in acme("why", job_id).stdout
        assert f"own ({job_id}) is batch" in acme("job", "reprioritize", job_id, "batch").stderr
        assert "is held" in acme("job", "hold", job_id).stderr
        assert [line.split()[0] for line in acme("quota").stdout.splitlines()] == ["TENANT", "acme", "acme", "acme"]
    finally:
        farside("job", "cancel", job_id)
    other = acme("quota", "beta")
    assert other.exit_code == 1
    assert "tenant acme may not speak for tenant beta" in other.stderr
