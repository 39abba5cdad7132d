"""`farside up`, `down` and `status`: the local stack from the command line."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from contracts.registry import SERVICES
from deploy.local import background, control, fleet
from deploy.local.config import DIR_VARIABLE, read_stack_file, stack_dir
from deploy.local.errors import StackError
from deploy.local.ports import PORTS
from libs.cli import output
from libs.cli.errors import CliError, FileError, UnreachableError
from libs.cli.manual import Manual
from libs.kit import logs

COLUMNS = ("PART", "STATE", "PID", "RESTARTS", "UP", "VERSION", "PENDING", "OUTBOX", "WHERE")

dir_option = click.option(
    "--dir",
    "--stack",
    "directory",
    envvar=DIR_VARIABLE,
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Folder of the stack's state; {DIR_VARIABLE}, or `var` below the current folder, where it is not given.",
)


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.command(cls=Manual, short_help="Start the local stack.")
@click.argument("parts", nargs=-1)
@dir_option
@click.option("-d", "--detach", is_flag=True, help="Leave it running in the background; return when all is up.")
@click.option("--only", multiple=True, metavar="PART", help="Start this part only; may be repeated.")
@click.option("--port", "ports", multiple=True, metavar="NAME=NUMBER", help="Fix a port; the others are free ones.")
@click.option("--set", "variables", multiple=True, metavar="[PART:]NAME=VALUE", help="Set an environment variable.")
@click.option(
    "--tenants",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=fleet.TENANTS_DIR,
    help="Folder with one YAML file a tenant.",
)
def up(
    parts: tuple[str, ...],
    directory: Path | None,
    *,
    detach: bool,
    only: tuple[str, ...],
    ports: tuple[str, ...],
    variables: tuple[str, ...],
    tenants: Path,
) -> None:
    """Start the local stack and keep it up until ctrl-C or `farside down`.

    PostgreSQL, a NATS hub with a leaf node, SeaweedFS, the services, two central and two remote agents run as separate
    processes on the loopback. A part that dies is started again. Logs are in DIR/logs, one file a part; addresses and
    secrets are in DIR/stack.json. Data survives; nothing is left running.

    With PARTS: start those parts of the running stack again that `farside down PARTS` has stopped.

    Examples:
      farside up
      farside up --detach --dir /srv/farside
      farside up --set FARSIDE_LEASE_S=20 --set FARSIDE_LOST_S=30
      farside up --only nats --only postgres --port nats=4222

    """
    where = stack_dir(directory)
    logs.configure("stack", "error")
    try:
        if parts:
            _each(where, "release", parts)
            return
        if _runs(where):
            _say(f"the stack in {where} is already up: `farside status` shows it, `farside down` ends it")
            return
        if detach:
            arguments = _arguments(where, only, ports, variables, tenants)
            sys.exit(background.detach(where, arguments, _say))
        sys.exit(_foreground(where, only, ports, variables, tenants))
    except StackError as error:
        raise CliError(str(error)) from None


@click.command(cls=Manual, short_help="Stop the local stack; its data stays.")
@click.argument("parts", nargs=-1)
@dir_option
def down(parts: tuple[str, ...], directory: Path | None) -> None:
    """Stop the local stack, with all jobs that run on it; its data stays for the next `farside up`.

    With PARTS: stop only those parts and keep them down until `farside up PARTS` (or until the stack starts anew).
    """
    where = stack_dir(directory)
    try:
        if parts:
            _each(where, "stop_part", parts)
        elif background.end(where):
            _say(f"the stack in {where} is down; its data stays")
        else:
            _say(f"the stack in {where} is down already")
    except StackError as error:
        raise CliError(str(error)) from None


@click.command(cls=Manual, short_help="Show each part of the stack, its version and its lag.")
@dir_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def status(directory: Path | None, *, as_json: bool) -> None:
    """Show each part of the local stack: its state, version and lag.

    PENDING are messages stored for the part and not yet acknowledged by it, OUTBOX are its own messages not yet
    published; a dash stands where nobody could say.
    """
    from deploy.local import lag  # noqa: PLC0415 - it brings the bus along, which `down` can do without

    where = stack_dir(directory)
    logs.configure("status", "error")
    try:
        reply = control.ask(where, {"do": "status"})
        facts = read_stack_file(where)
    except StackError as error:
        raise UnreachableError(str(error)) from None
    services = [name for name in SERVICES if name in facts["parts"]]
    lags = asyncio.run(lag.measure(facts["nats_url"], where, services, facts["nodes"]))
    rows = [{**part, **vars(lags.get(part["name"], lag.Lag(None, None)))} for part in reply["parts"]]
    if as_json:
        click.echo(json.dumps({"directory": str(where), **reply, "parts": rows}))
    else:
        output.table(COLUMNS, [_cells(row) for row in rows], empty="no part")


def _foreground(
    where: Path, only: tuple[str, ...], ports: tuple[str, ...], variables: tuple[str, ...], tenants: Path
) -> int:
    from deploy.local.foreground import Wishes, run  # noqa: PLC0415 - half a second that `down` can do without

    env, part_env = _variables(variables)
    return run(where, Wishes(only, _ports(ports), env, part_env, tenants), _say)


def _runs(where: Path) -> bool:
    try:
        return control.supervisor(where) is not None
    except StackError:
        return False


def _each(where: Path, what: str, parts: tuple[str, ...]) -> None:
    for part in parts:
        control.ask(where, {"do": what, "part": part})
        _say(f"{part:<12}{'starts again' if what == 'release' else 'is down'}")


def _ports(words: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in PORTS or not number.isdecimal() or not 0 < int(number) < 65536:  # noqa: PLR2004 - ports end there
            msg = f"--port {word}: expected NAME=NUMBER, NAME one of {', '.join(PORTS)}"
            raise FileError(msg)
        found[name] = int(number)
    return found


def _variables(words: tuple[str, ...]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    shared: dict[str, str] = {}
    single: dict[str, dict[str, str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        part, colon, own = name.partition(":")
        if not equals or (colon and part not in fleet.names()):
            msg = f"--set {word}: expected NAME=VALUE, or PART:NAME=VALUE with PART one of {', '.join(fleet.names())}"
            raise FileError(msg)
        target = single.setdefault(part, {}) if colon else shared
        target[own or name] = value
    return shared, single


def _arguments(
    where: Path, only: tuple[str, ...], ports: tuple[str, ...], variables: tuple[str, ...], tenants: Path
) -> list[str]:
    _ports(ports)
    _variables(variables)
    pairs = [("--only", only), ("--port", ports), ("--set", variables)]
    repeated = [word for option, values in pairs for value in values for word in (option, value)]
    return ["--dir", str(where), "--tenants", str(tenants.resolve()), *repeated]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    values = (row["pid"], row["restarts"], _duration(row["up_s"]), row["version"], row["pending"], row["outbox"])
    return (row["name"], row["state"], *("-" if value is None else str(value) for value in values), row["detail"])


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


@click.group()
def main() -> None:
    """Run the local stack."""


for command in (up, down, status):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="farside")
