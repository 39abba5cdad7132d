"""Turn what pydantic says of a mistake into what a person needs: the field, the value given, what was expected."""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

from contracts.base import INT64_MAX, NAME_PATTERN, UUID_PATTERN

Schema = Mapping[str, Any]
Path = tuple[str | int, ...]

WORDS = "x-expected"
SHOWN_VALUE = 80
BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "up to", "exclusiveMaximum": "below"}
PATTERNS = {
    NAME_PATTERN: "a name of 1 to 63 characters out of a-z, 0-9 and -",
    UUID_PATTERN: "a UUID in lower case",
    r"^[0-9a-f]{64}$": "a SHA-256 digest of 64 hexadecimal digits",
    r"^s3://[a-z0-9.-]{3,63}/.+$": "an address like s3://bucket/key",
    r"^[A-Za-z_][A-Za-z0-9_]{0,127}$": "a variable name out of A-Z, a-z, 0-9 and _, not starting with a digit",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'kind'?` when a known name is near, else nothing."""
    found = difflib.get_close_matches(name, [*known], n=1, cutoff=0.6)
    return f", did you mean {found[0]!r}?" if found else ""


def dotted(path: Path) -> str:
    """`resources.cards`, `command[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


def shown(value: object) -> str:
    """The value as it would stand in a file, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_VALUE else f"{text[:SHOWN_VALUE]}..."


def at(model: type[BaseModel], path: Path) -> Schema:
    """The part of the model's JSON schema that governs `path`; empty where the path leads nowhere."""
    root: Schema = model.model_json_schema()
    node = _resolve(root, root)
    for part in path:
        node = _below(root, node, part)
    return node


def _below(root: Schema, node: Schema, part: str | int) -> Schema:
    """The schema of a field, an item or an entry of `node`; empty where it has no such thing."""
    if isinstance(part, int):
        prefix = node.get("prefixItems", ())
        return _resolve(root, prefix[part] if part < len(prefix) else node.get("items", {}))
    return _resolve(root, node.get("properties", {}).get(part) or _entry(node))


def key_of(node: Schema) -> Schema:
    """The schema that the keys of a mapping must satisfy."""
    patterns = [*node.get("patternProperties", {})]
    return {"type": "string", "pattern": patterns[0]} if patterns else node.get("propertyNames", {"type": "string"})


def _entry(node: Schema) -> Schema:
    """The schema of a mapping's values; empty where `node` is no mapping of one kind of value."""
    for value in node.get("patternProperties", {}).values():
        return value
    inner = node.get("additionalProperties")
    return cast("Schema", inner) if isinstance(inner, Mapping) else {}


def _resolve(root: Schema, node: Schema) -> Schema:
    """Follow references and drop the null of an optional field."""
    if "$ref" in node:
        name = str(node["$ref"]).rsplit("/", 1)[-1]
        return _resolve(root, root["$defs"][name])
    choices: Sequence[Schema] = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    return _resolve(root, choices[0]) if len(choices) == 1 else node


def expected(node: Schema) -> str:
    """What the schema asks for, in words: its own (`WORDS`), where the model has some."""
    if WORDS in node:
        return str(node[WORDS])
    if "enum" in node:
        return f"one of {', '.join(str(value) for value in node['enum'])}"
    if "properties" in node:
        return f"a mapping with the fields {', '.join(node['properties'])}"
    describe = DESCRIPTIONS.get(str(node.get("type")))
    return describe(node) if describe is not None else "another value"


def mistaken(value: object, node: Schema) -> str:
    """What to say of a value: `is "trainning"; expected one of training, batch, did you mean 'training'?`."""
    hint = nearest(value, [str(choice) for choice in node.get("enum", ())]) if isinstance(value, str) else ""
    return f"is {shown(value)}; expected {expected(node)}{hint}"


def _number(node: Schema) -> str:
    what = "a whole number" if node["type"] == "integer" else "a number"
    bounded = {name: node[name] for name in BOUNDS if node.get(name, INT64_MAX) != INT64_MAX}
    if {"minimum", "maximum"} <= bounded.keys():
        return f"{what} from {bounded['minimum']} to {bounded['maximum']}"
    bounds = [f"{BOUNDS[name]} {bound}" for name, bound in bounded.items()]
    return ", ".join([f"{what} {bounds[0]}", *bounds[1:]]) if bounds else what


def _text(node: Schema) -> str:
    if "pattern" in node:
        return PATTERNS.get(node["pattern"], f"a text that matches {node['pattern']}")
    return _sized("a text", "characters", node.get("minLength"), node.get("maxLength"))


def _sized(what: str, unit: str, low: int | None, high: int | None) -> str:
    if low and high is not None:
        return f"{what} of {low} to {high} {unit}"
    if high is not None:
        return f"{what} of at most {high} {unit}"
    return f"{what} of at least {low} {unit.removesuffix('s') if low == 1 else unit}" if low else what


DESCRIPTIONS: Mapping[str, Callable[[Schema], str]] = {
    "integer": _number,
    "number": _number,
    "string": _text,
    "boolean": lambda _: "true or false",
    "array": lambda node: _sized("a list", "items", node.get("minItems"), node.get("maxItems")),
    "object": lambda node: _sized("a mapping", "entries", node.get("minProperties"), node.get("maxProperties")),
}


def unknown_fields(model: type[BaseModel], value: object) -> list[tuple[Path, Schema]]:
    """Paths in `value` that the model has no field for, each with the schema of the mapping it stands in.

    Models ignore fields they do not know (an older reader survives a newer writer); a person's file must not.
    """
    root: Schema = model.model_json_schema()
    found: list[tuple[Path, Schema]] = []
    _collect_unknown(root, _resolve(root, root), value, (), found)
    return found


def _collect_unknown(root: Schema, node: Schema, value: object, path: Path, found: list[tuple[Path, Schema]]) -> None:
    for part, inner in _inside(value):
        here = (*path, part)
        if isinstance(part, str) and "properties" in node and part not in node["properties"]:
            found.append((here, node))
        else:
            _collect_unknown(root, _below(root, node, part), inner, here, found)


def _inside(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, Mapping):
        yield from ((str(name), inner) for name, inner in cast("Mapping[object, object]", value).items())
    elif isinstance(value, list):
        yield from enumerate(cast("list[object]", value))
