"""The command table: quick to load, complete, and helpful about what it does not know."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click
import psutil
import pytest
from click.testing import CliRunner

from libs.cli import main, place
from libs.cli.errors import UNREACHABLE, USAGE

STACK_COMMANDS = {"up", "down", "status"}  # their manuals are those of deploy.local
HEAVY = ("pydantic", "nats", "boto3", "numpy", "yaml", "rich")


def leaves(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        return [leaf for part, inner in command.commands.items() for leaf in leaves(inner, f"{name} {part}")]
    return [(name, command)]


def commands() -> list[tuple[str, click.Command]]:
    context = click.Context(main.cli)
    found: list[tuple[str, click.Command]] = []
    for name in main.COMMANDS:
        command = main.cli.get_command(context, name)
        assert command is not None
        found += leaves(command, name)
    return found


def test_every_command_has_a_summary() -> None:
    assert list(main.COMMANDS) == list(main.SUMMARIES)


def test_every_command_speaks_json_and_has_a_manual() -> None:
    for name, command in commands():
        if name in STACK_COMMANDS:
            continue
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options, name
        result = CliRunner().invoke(main.cli, [*name.split(), "--help"])
        assert result.exit_code == 0, name
        assert "Example" in result.output, name


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from libs.cli.main import cli; cli(['--help'], standalone_mode=False); print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert [name for name in HEAVY if f"'{name}'" in loaded] == []


def test_an_unknown_command_names_the_nearest() -> None:
    result = CliRunner().invoke(main.cli, ["jbo"])
    assert result.exit_code == USAGE
    assert "no command 'jbo', did you mean 'job'?" in result.output


def test_no_stack_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FARSIDE_NATS_URL", raising=False)
    result = CliRunner().invoke(main.cli, ["nodes", "--stack", "/nonexistent"])
    assert result.exit_code == UNREACHABLE
    assert "no stack in /nonexistent: start one with `farside up`" in result.output


DOWN = {"nats_url": "nats://127.0.0.1:1", "s3": dict.fromkeys(("endpoint", "access_key", "secret_key", "bucket"), "x")}


@pytest.mark.parametrize("age_s", [None, 3600.0])
def test_a_stack_that_is_down_is_told_at_once(age_s: float | None, tmp_path: Path) -> None:
    me = psutil.Process(os.getpid())
    supervisor = None if age_s is None else {"pid": me.pid, "start_time": me.create_time() - age_s}
    (tmp_path / "stack.json").write_text(json.dumps({**DOWN, "supervisor": supervisor}))
    begun = time.monotonic()
    result = CliRunner().invoke(main.cli, ["usage", "--stack", str(tmp_path)])
    assert result.exit_code == UNREACHABLE
    assert f"the stack in {tmp_path} is down: `farside up --dir {tmp_path}` starts it" in result.output
    assert time.monotonic() - begun < 1, "asked nobody"


def test_a_supervisor_that_lives_is_believed(tmp_path: Path) -> None:
    me = psutil.Process(os.getpid())
    supervisor = {"pid": me.pid, "start_time": me.create_time()}
    (tmp_path / "stack.json").write_text(json.dumps({**DOWN, "supervisor": supervisor}))
    assert place.locate(tmp_path).settings.nats_url == DOWN["nats_url"]


@pytest.mark.parametrize("name", ["", "a b", "Acme", "a" * 64, "acme\n"])
@pytest.mark.parametrize("command", [["bill", "close"], ["usage"], ["job", "list"], ["job", "submit", "-"]])
def test_what_is_no_tenant_s_name_is_refused_at_once(command: list[str], name: str) -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main.cli, [*command, "--tenant", name])
    assert result.exit_code == USAGE
    assert f"{name!r} is no tenant's name: it matches [a-z0-9-]{{1,63}}" in result.output


def test_the_variable_s_tenant_is_checked_too() -> None:
    result = CliRunner(env={"FARSIDE_TENANT": "a b"}).invoke(main.cli, ["usage"])
    assert result.exit_code == USAGE
    assert "'a b' is no tenant's name" in result.output


def test_who_names_no_tenant_is_told_how() -> None:
    result = CliRunner(env={"FARSIDE_TENANT": None, "FARSIDE_NATS_URL": None}).invoke(main.cli, ["job", "submit", "-"])
    assert result.exit_code == USAGE
    assert "no tenant is named: say for whom by --tenant NAME, or set FARSIDE_TENANT" in result.output
