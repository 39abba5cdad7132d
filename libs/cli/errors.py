"""Errors of the command line: each names the thing, its value and the remedy, and has an exit status."""

from typing import IO, Any

import click
from typing_extensions import override

FAILED, USAGE, UNREACHABLE = 1, 2, 3


class CliError(click.ClickException):
    """The thing asked for could not be done (exit status 1)."""

    exit_code = FAILED

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"farside: {self.format_message()}", file=file, err=file is None)


class FileError(CliError):
    """A file or an argument holds a mistake; nothing was sent (exit status 2)."""

    exit_code = USAGE


class UnreachableError(CliError):
    """The stack, or the part that should answer, does not answer (exit status 3)."""

    exit_code = UNREACHABLE
