"""What commands print: JSON for programs or columns for people on standard output, remarks on standard error."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from libs.cli.errors import FileError

GAP = "  "
NOTHING = "-"


def as_json(value: BaseModel | Mapping[str, Any]) -> None:
    """Print one JSON object, indented."""
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    click.echo(json.dumps(data, indent=2, ensure_ascii=False, default=_plain))


def as_json_line(value: BaseModel | Mapping[str, Any]) -> None:
    """Print one JSON object on one line: for commands that go on."""
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    click.echo(json.dumps(data, ensure_ascii=False, default=_plain))


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return str(value)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Print aligned columns, or on standard error what it means that there are none."""
    if not rows:
        note(empty)
        return
    cells = [list(headers), *([cell or NOTHING for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    for row in cells:
        click.echo(GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def record(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names with values, one a line; a pair without a value is left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name.ljust(width)}{GAP}{value}")


def write(path: Path, text: str) -> None:
    """Write a file, its folder as well where that is not there. Raises FileError where that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}: name another place"
        raise FileError(msg) from None


def note(text: str) -> None:
    """Say something to the person, on standard error."""
    click.echo(text, err=True)
