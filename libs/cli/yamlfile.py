"""YAML files that hold the fields of one model: text in, the model or every mistake in it out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from libs.cli import schema, words
from libs.cli.errors import FileError
from libs.cli.schema import Path as Place
from libs.cli.words import nearest

MAX_FILE_BYTES = 512 * 1024

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Form(Generic[M]):
    """A kind of file: its model, its name, the fields it cannot be without, and those given by other means.

    `given` says for each such field what to do instead of writing it.
    """

    model: type[M]
    what: str
    least: str
    given: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Mistake:
    """One mistake: where it stands and what was expected there. `line` counts from 1, 0 is the file as a whole."""

    field: str
    message: str
    line: int = 0


@dataclass(frozen=True)
class _Mark:
    line: int
    twice: bool = False


def load(file: Path, form: Form[M]) -> M:
    """Read a file from disk; raises FileError that names every mistake."""
    return read(str(file), text_of(file, form.what), form)


def text_of(file: Path, what: str) -> str:
    """The text of a file; raises FileError where it cannot be read, is too large or is no text."""
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            msg = f"{file} is larger than {words.size(MAX_FILE_BYTES)}: is it a {what}?"
            raise FileError(msg)
        return file.read_text()
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror or error}"
        raise FileError(msg) from None
    except UnicodeDecodeError as error:
        msg = f"{file} is no UTF-8 text ({error.reason} at byte {error.start}): is it a {what}?"
        raise FileError(msg) from None


def read(path: str, text: str, form: Form[M], given: Mapping[str, str] | None = None, verdict: str = "") -> M:
    """As `parse`; raises FileError that lists every mistake with `path` and line."""
    found = parse(text, form, given)
    if isinstance(found, BaseModel):
        return found
    lines = [f"{path}{f', line {m.line}' if m.line else ''}: {m.field} {m.message}" for m in found]
    raise FileError("\n  ".join([f"{verdict}{words.count(len(found), 'mistake')} in {path}", *lines]))


def parse(text: str, form: Form[M], given: Mapping[str, str] | None = None) -> M | list[Mistake]:
    """Read a file. Returns the model, or all mistakes in the order of their lines; `given` adds fields."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return [_syntax(error)]
    if data is None:
        return [Mistake("the file", f"is empty; expected a mapping with at least {form.least}")]
    if not isinstance(data, dict):
        expected = f"expected a mapping of fields such as name: my-{form.what.split()[0]}"
        return [Mistake("the file", f"is {schema.shown(data)}; {expected}")]
    return _check(cast("dict[str, Any]", data), node, form, given or {})


def _check(data: dict[str, Any], node: yaml.Node | None, form: Form[M], given: Mapping[str, str]) -> M | list[Mistake]:
    places = dict(_places(node, ()))
    mistakes = [
        Mistake(schema.dotted(path), "is given twice; keep one", place.line)
        for path, place in places.items()
        if place.twice
    ]
    mistakes += _unknown(data, form, places)
    found = _validate({**data, **given}, form, places)
    if isinstance(found, BaseModel) and not mistakes:
        return found
    mistakes += [] if isinstance(found, BaseModel) else found
    return sorted(mistakes, key=lambda mistake: (mistake.line == 0, mistake.line))


def _syntax(error: Exception) -> Mistake:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return Mistake("the file", f"is not YAML: {problem}", mark.line + 1 if mark is not None else 0)


def _places(node: yaml.Node | None, path: Place) -> Iterator[tuple[Place, _Mark]]:
    """The line of every key and list item; a key that comes again is marked."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            yield (*path, name), _Mark(key.start_mark.line + 1, twice=name in seen)
            if name not in seen:
                yield from _places(value, (*path, name))
            seen.add(name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), _Mark(value.start_mark.line + 1)
            yield from _places(value, (*path, index))


def _line(path: Place, places: Mapping[Place, _Mark]) -> int:
    """The line of `path`, or of the nearest mapping around it."""
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return places[path[:length]].line
    return 0


def _unknown(data: Mapping[str, Any], form: Form[M], places: Mapping[Place, _Mark]) -> Iterator[Mistake]:
    for path, around in schema.unknown_fields(form.model, data):
        known = [name for name in around["properties"] if name not in form.given]
        hint = nearest(str(path[-1]), known) or f"; known are {', '.join(known)}"
        yield Mistake(schema.dotted(path), f"is no field of a {form.what}{hint}", _line(path, places))
    for name, remedy in form.given.items():
        if name in data:
            yield Mistake(name, f"does not belong in a {form.what}: {remedy}", _line((name,), places))


def _validate(data: dict[str, Any], form: Form[M], places: Mapping[Place, _Mark]) -> M | list[Mistake]:
    try:
        return form.model.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        return [_mistake(details["loc"], dict(details), form, places) for details in error.errors()]


def _mistake(loc: Place, details: Mapping[str, Any], form: Form[M], places: Mapping[Place, _Mark]) -> Mistake:
    if details["type"] == "value_error":
        # A rule over several fields: its message names the field, the value and the remedy by itself.
        name, _, rest = str(details["msg"]).removeprefix("Value error, ").partition(" ")
        return Mistake(name, rest, _line((*loc, *name.split(".")), places))
    is_key = bool(loc) and loc[-1] == "[key]"
    path = loc[:-2] if is_key else loc
    node = schema.at(form.model, path)
    if is_key:
        expected = schema.expected(schema.key_of(node))
        return Mistake(schema.dotted(path), f"has the key {loc[-2]!r}; expected {expected}", _line(loc, places))
    if details["type"] == "missing":
        expected = f"is missing; expected {schema.expected(node)}"
        return Mistake(schema.dotted(path), expected, _line(path[:-1], places))
    value = details["input"]
    hint = nearest(value, [str(choice) for choice in node.get("enum", ())]) if isinstance(value, str) else ""
    expected = f"is {schema.shown(value)}; expected {schema.expected(node)}{hint}"
    return Mistake(schema.dotted(path), expected, _line(path, places))
