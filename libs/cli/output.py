"""What commands print: JSON for programs or columns for people on standard output, remarks on standard error."""

import itertools
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from libs.cli.errors import FileError

GAP = "  "
NOTHING = "-"
WIDTH = 120
INDENT = "    "
ROOM = 24
"""The least width, beside a third of its own, in which the last column of a table is wrapped beside the others."""


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
    """Print aligned columns, or on standard error what it means that there are none.

    A table wider than `WIDTH` is folded: the text in its last column is wrapped, and columns that do not fit go on in
    an indented line below.
    """
    if not rows:
        note(empty)
        return
    for line in laid_out([list(headers), *([cell or NOTHING for cell in row] for row in rows)]):
        click.echo(line)


def laid_out(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; its first row are the headers."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    folds = _folds(widths)
    for row in cells:
        for number, (first, end) in enumerate(itertools.pairwise(folds)):
            before = INDENT if number else ""
            lead = "".join(row[at].ljust(widths[at]) + GAP for at in range(first, end - 1))
            lines = _wrapped(row[end - 1], WIDTH - len(before + lead)) if end == len(row) else [row[end - 1]]
            yield (before + lead + lines[0]).rstrip()
            yield from (" " * len(before + lead) + line for line in lines[1:])


def _folds(widths: Sequence[int]) -> list[int]:
    """Where the lines of a row begin, and where the last one ends; the last column may be wrapped into three."""
    folds, used, last = [0], 0, len(widths) - 1
    for at, width in enumerate(widths):
        wanted = min(width, max(ROOM, width // 3)) if at == last else width
        if at > folds[-1] and used + wanted > WIDTH:
            folds.append(at)
            used = len(INDENT)
        used += width + len(GAP)
    return [*folds, len(widths)]


def _wrapped(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, max(width, ROOM), break_long_words=False, break_on_hyphens=False) or [text]


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
