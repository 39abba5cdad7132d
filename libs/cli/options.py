"""Options that many commands share."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from contracts.base import NAME_PATTERN
from contracts.registry import NO_KEY
from libs.bus.accounts import tenant_of

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_TENANT_VARIABLE = "FARSIDE_TENANT"


def _stack(function: Callable[P, T], *names: str) -> Callable[P, T]:
    option = click.option(
        *names,
        "stack",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Directory of the stack to talk to [default: FARSIDE_DIR, else var].",
    )
    return option(function)


def json_flag(function: Callable[P, T]) -> Callable[P, T]:
    """`--json`: print JSON for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")(function)


def common(function: Callable[P, T]) -> Callable[P, T]:
    """Which stack to talk to (`--stack`, or `--dir` as in `farside up`), and `--json`."""
    return _stack(json_flag(function), "--stack", "--dir")


def common_with_code(function: Callable[P, T]) -> Callable[P, T]:
    """As `common`, for commands whose `--dir` is the job's code."""
    return _stack(json_flag(function), "--stack")


def _tenant(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str:
    """The name of a tenant; what is none is refused before anything is sent."""
    del ctx, parameter
    if value is None:
        msg = f"no tenant is named: say for whom by --tenant NAME, or set {DEFAULT_TENANT_VARIABLE}"
        raise click.UsageError(msg)
    if not re.fullmatch(NAME_PATTERN, value):
        msg = f"{value!r} is no tenant's name: it matches {NAME_PATTERN.strip('^$')}"
        raise click.BadParameter(msg)
    return value


def _default_tenant() -> str | None:
    return os.environ.get(DEFAULT_TENANT_VARIABLE) or tenant_of(os.environ.get("FARSIDE_NATS_URL", ""))


def _tenant_or_all(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    return value if value == NO_KEY else _tenant(ctx, parameter, value)


def acting_tenant(function: Callable[P, T]) -> Callable[P, T]:
    """`--tenant` for commands that do something in a tenant's name: required."""
    option = click.option(
        "--tenant",
        default=_default_tenant,
        show_default=False,
        callback=_tenant,
        metavar="NAME",
        help=f"Tenant to act for [default: {DEFAULT_TENANT_VARIABLE}, else whose FARSIDE_NATS_URL is].",
    )
    return option(function)


def seen_tenant(function: Callable[P, T]) -> Callable[P, T]:
    """`--tenant` for commands that read: all tenants unless one is named."""
    option = click.option(
        "--tenant",
        default=lambda: _default_tenant() or NO_KEY,
        show_default=False,
        callback=_tenant_or_all,
        metavar="NAME",
        help=f"Look at one tenant only [default: {DEFAULT_TENANT_VARIABLE}, else whose FARSIDE_NATS_URL is, else all].",
    )
    return option(function)
