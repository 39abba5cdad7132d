"""The command table: quick to load, complete, and helpful about what it does not know."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from libs.cli import main
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
