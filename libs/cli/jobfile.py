"""Job files: YAML text in, a JobSpec or every mistake in it out, before anything is sent.

A job file holds the fields of `contracts.jobs.JobSpec`, all but `job_id` and `tenant`, which `farside job submit`
supplies.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import yaml
from pydantic import ValidationError

from contracts.jobs import JobSpec
from libs.cli import schema
from libs.cli.errors import FileError
from libs.cli.schema import Path
from libs.cli.words import nearest

MAX_FILE_BYTES = 512 * 1024
GIVEN_BY_SUBMIT = {
    "job_id": "leave it out, or pass --job-id to `farside job submit`",
    "tenant": "leave it out and pass --tenant to `farside job submit`",
}
EMPTY = "is empty; expected a mapping with at least name, kind and command"


@dataclass(frozen=True)
class Mistake:
    """One mistake: where it stands and what was expected there. `line` counts from 1, 0 is the file as a whole."""

    field: str
    message: str
    line: int = 0


@dataclass(frozen=True)
class _Place:
    line: int
    twice: bool = False


def parse(text: str, *, job_id: str, tenant: str) -> JobSpec | list[Mistake]:
    """Read a job file. Returns the job, or all mistakes in the order of their lines."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return [_syntax(error)]
    if data is None:
        return [Mistake("the file", EMPTY)]
    if not isinstance(data, dict):
        return [Mistake("the file", f"is {schema.shown(data)}; expected a mapping of fields such as name: my-job")]
    return _check(cast("dict[str, Any]", data), node, {"job_id": job_id, "tenant": tenant})


def _check(data: dict[str, Any], node: yaml.Node | None, given: Mapping[str, str]) -> JobSpec | list[Mistake]:
    places = dict(_places(node, ()))
    mistakes = [
        Mistake(schema.dotted(path), "is given twice; keep one", place.line)
        for path, place in places.items()
        if place.twice
    ]
    mistakes += _unknown(data, places)
    found = _validate({**data, **given}, places)
    if isinstance(found, JobSpec) and not mistakes:
        return found
    mistakes += [] if isinstance(found, JobSpec) else found
    return sorted(mistakes, key=lambda mistake: (mistake.line == 0, mistake.line))


def read(path: str, text: str, *, job_id: str, tenant: str) -> JobSpec:
    """As `parse`; raises FileError that lists every mistake with `path` and line."""
    found = parse(text, job_id=job_id, tenant=tenant)
    if isinstance(found, JobSpec):
        return found
    lines = [f"{path}{f', line {m.line}' if m.line else ''}: {m.field} {m.message}" for m in found]
    count = "1 mistake" if len(found) == 1 else f"{len(found)} mistakes"
    raise FileError("\n  ".join([f"nothing was sent: {count} in {path}", *lines]))


def _syntax(error: Exception) -> Mistake:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return Mistake("the file", f"is not YAML: {problem}", mark.line + 1 if mark is not None else 0)


def _places(node: yaml.Node | None, path: Path) -> Iterator[tuple[Path, _Place]]:
    """The line of every key and list item; a key that comes again is marked."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            yield (*path, name), _Place(key.start_mark.line + 1, twice=name in seen)
            if name not in seen:
                yield from _places(value, (*path, name))
            seen.add(name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), _Place(value.start_mark.line + 1)
            yield from _places(value, (*path, index))


def _line(path: Path, places: Mapping[Path, _Place]) -> int:
    """The line of `path`, or of the nearest mapping around it."""
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return places[path[:length]].line
    return 0


def _unknown(data: Mapping[str, Any], places: Mapping[Path, _Place]) -> Iterator[Mistake]:
    for path, around in schema.unknown_fields(JobSpec, data):
        known = [name for name in around["properties"] if name not in GIVEN_BY_SUBMIT]
        hint = nearest(str(path[-1]), known) or f"; known are {', '.join(known)}"
        yield Mistake(schema.dotted(path), f"is no field of a job file{hint}", _line(path, places))
    for name, remedy in GIVEN_BY_SUBMIT.items():
        if name in data:
            yield Mistake(name, f"does not belong in a job file: {remedy}", _line((name,), places))


def _validate(data: dict[str, Any], places: Mapping[Path, _Place]) -> JobSpec | list[Mistake]:
    try:
        return JobSpec.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        return [_mistake(details["loc"], dict(details), places) for details in error.errors()]


def _mistake(loc: Path, details: Mapping[str, Any], places: Mapping[Path, _Place]) -> Mistake:
    if details["type"] == "value_error":
        # A rule over several fields: its message names the field, the value and the remedy by itself.
        field, _, rest = str(details["msg"]).removeprefix("Value error, ").partition(" ")
        return Mistake(field, rest, _line((field,), places))
    is_key = bool(loc) and loc[-1] == "[key]"
    path = loc[:-2] if is_key else loc
    node = schema.at(JobSpec, path)
    if is_key:
        words = schema.expected(schema.key_of(node))
        return Mistake(schema.dotted(path), f"has the key {loc[-2]!r}; expected {words}", _line(loc, places))
    if details["type"] == "missing":
        return Mistake(schema.dotted(path), f"is missing; expected {schema.expected(node)}", _line(path[:-1], places))
    value = details["input"]
    hint = nearest(value, [str(choice) for choice in node.get("enum", ())]) if isinstance(value, str) else ""
    words = schema.expected(node)
    return Mistake(schema.dotted(path), f"is {schema.shown(value)}; expected {words}{hint}", _line(path, places))
