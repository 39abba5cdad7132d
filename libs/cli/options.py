"""Options that many commands share."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from contracts.registry import NO_KEY

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


def acting_tenant(function: Callable[P, T]) -> Callable[P, T]:
    """`--tenant` for commands that do something in a tenant's name: required."""
    option = click.option(
        "--tenant",
        envvar=DEFAULT_TENANT_VARIABLE,
        show_envvar=True,
        required=True,
        metavar="NAME",
        help="Tenant to act for.",
    )
    return option(function)


def seen_tenant(function: Callable[P, T]) -> Callable[P, T]:
    """`--tenant` for commands that read: all tenants unless one is named."""
    option = click.option(
        "--tenant",
        default=lambda: os.environ.get(DEFAULT_TENANT_VARIABLE, NO_KEY),
        show_default=False,
        metavar="NAME",
        help=f"Look at one tenant only [default: {DEFAULT_TENANT_VARIABLE}, else all].",
    )
    return option(function)
