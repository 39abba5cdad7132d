"""YAML files that hold the fields of one model: text in, the model or every mistake in it out."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from libs.kit import schema
from libs.kit.schema import Path as Place
from libs.kit.schema import nearest

MAX_FILE_BYTES = 1024 * 1024

M = TypeVar("M", bound=BaseModel)


class YamlFileError(ValueError):
    """A file is unreadable or holds mistakes; the message names the file, and of each mistake line, field and value."""


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

    def told(self, path: str) -> str:
        """The mistake in words, with the name of its file."""
        return f"{path}{f', line {self.line}' if self.line else ''}: {self.field} {self.message}"


@dataclass(frozen=True)
class _Mark:
    line: int
    twice: bool = False


def load(file: Path, form: Form[M]) -> M:
    """Read a file from disk. Raises YamlFileError that names every mistake."""
    return read(file, text_of(file, form.what), form)


def read(file: Path, text: str, form: Form[M]) -> M:
    """The model in a text that was read from `file`. Raises YamlFileError that names every mistake."""
    found = parse(text, form)
    if isinstance(found, BaseModel):
        return found
    raise YamlFileError("; ".join(mistake.told(str(file)) for mistake in found))


def text_of(file: Path, what: str) -> str:
    """The text of a file. Raises YamlFileError where it cannot be read, is too large or is no text."""
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            msg = f"{file} is larger than {MAX_FILE_BYTES // 1024} KiB: is it a {what}?"
            raise YamlFileError(msg)
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror or error}"
        raise YamlFileError(msg) from None
    except UnicodeDecodeError as error:
        msg = f"{file} is no UTF-8 text ({error.reason} at byte {error.start}): is it a {what}?"
        raise YamlFileError(msg) from None


def parse(text: str, form: Form[M], given: Mapping[str, str] | None = None) -> M | list[Mistake]:
    """Read a file. Returns the model, or all mistakes in the order of their lines; `given` adds fields."""
    try:
        loader: Any = yaml.SafeLoader(text)
        node: yaml.Node | None = loader.get_single_node()
        data: object = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return [_syntax(error)]
    if data is None:
        return [Mistake("the file", f"is empty; expected a mapping with at least {form.least}")]
    if not isinstance(data, dict):
        return [Mistake("the file", f"is {schema.shown(data)}; expected a mapping with at least {form.least}")]
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
        found = (problem for problem in error.errors() if problem["type"] != "extra_forbidden")
        return [_mistake(problem["loc"], dict(problem), form, places) for problem in found]


def _mistake(loc: Place, details: Mapping[str, Any], form: Form[M], places: Mapping[Place, _Mark]) -> Mistake:
    node = schema.at(form.model, loc)
    if details["type"] == "value_error":
        return _by_rule(loc, details, node, places)
    if loc and loc[-1] == "[key]":
        expected = schema.expected(schema.key_of(schema.at(form.model, loc[:-2])))
        return Mistake(schema.dotted(loc[:-2]), f"has the key {loc[-2]!r}; expected {expected}", _line(loc, places))
    if details["type"] == "missing":
        return Mistake(schema.dotted(loc), f"is missing; expected {schema.expected(node)}", _line(loc[:-1], places))
    return Mistake(schema.dotted(loc), schema.mistaken(details["input"], node), _line(loc, places))


def _parts(name: str) -> Iterator[str | int]:
    """`prices[0].until` as the parts of a path."""
    for index, part in re.findall(r"\[([0-9]+)\]|([^.\[\]]+)", name):
        yield int(index) if index else part


def _by_rule(loc: Place, details: Mapping[str, Any], node: schema.Schema, places: Mapping[Place, _Mark]) -> Mistake:
    """What a rule written out in words says: one over several fields names the field, its value and the remedy."""
    words = str(details["msg"]).removeprefix("Value error, ")
    if "properties" not in node:
        return Mistake(schema.dotted(loc), f"is {schema.shown(details['input'])}; {words}", _line(loc, places))
    name, _, rest = words.partition(" ")
    path = (*loc, *_parts(name))
    return Mistake(schema.dotted(path), rest, _line(path, places))
