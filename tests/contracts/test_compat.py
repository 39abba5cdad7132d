"""Which changes of a stable schema break somebody, and which do not."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from contracts import registry, schema
from contracts.base import Model
from contracts.compat import FREE, breaks

Schema = dict[str, object]
Change = Callable[[Schema], None]

_BASE: Schema = {
    "$schema": schema.DIALECT,
    "$id": "urn:farside:jobs.probe.v1",
    "x-farside": {"type": "io.farside.jobs.probe.v1", "subject": "jobs.v1.probe.{tenant}", "stream": "JOBS"},
    "title": "Probe",
    "description": "A message with one of everything.",
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$", "title": "Name"},
        "size": {"type": "integer", "minimum": 0, "maximum": 10, "default": 3},
        "kind": {"$ref": "#/$defs/Kind"},
        "why": {"type": "string", "pattern": "^[a-z_]+$", "x-farside": {"words": ["cold", "hot"]}},
        "tree": {"$ref": "#/$defs/Node"},
        "maybe": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 4},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "default": {"of": "old"}},
        "limits": {
            "type": "object",
            "propertyNames": {"$ref": "#/$defs/Word"},
            "patternProperties": {"^[a-z]+$": {"$ref": "#/$defs/Limit"}},
        },
        "shut": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    },
    "required": ["name", "kind"],
    "dependentSchemas": {"tags": {"required": ["labels"]}},
    "if": {"properties": {"name": {"const": "free"}, "title": {"$ref": "#/$defs/Word"}}},
    "else": {"required": ["size"]},
    "$defs": {
        "Kind": {"type": "string", "enum": ["a", "b"]},
        "Limit": {"type": "object", "properties": {"most": {"type": "integer"}}},
        "Word": {"type": "string", "maxLength": 9},
        "Node": {
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        },
    },
}


def _at(document: Schema, path: str) -> Schema:
    """The object at a /-separated path."""
    here = document
    for part in path.split("/") if path else []:
        here = cast("Schema", here[part])
    return here


def put(path: str, **values: object) -> Change:
    """Set keywords of the object at `path`."""
    return lambda document: _at(document, path).update(values)


def drop(path: str, name: str) -> Change:
    """Remove one key of the object at `path`."""
    return lambda document: _at(document, path).__delitem__(name)


def rename_definition(document: Schema) -> None:
    definitions = _at(document, "$defs")
    definitions["Sort"] = definitions.pop("Kind")
    put("properties", kind={"$ref": "#/$defs/Sort"})(document)


def inline_definition(document: Schema) -> None:
    put("properties", kind=_at(document, "$defs/Kind"))(document)
    drop("$defs", "Kind")(document)


FREE_CHANGES: dict[str, Change] = {
    "nothing": lambda _: None,
    "optional field": put("properties", extra={"type": "string"}),
    "optional field with default": put("properties", extra={"type": "integer", "default": 7}),
    "optional object field": put("properties", extra={"type": "object", "required": ["x"]}),
    "optional field of a nested definition": put("$defs/Node/properties", colour={"type": "string"}),
    "optional field of a map's value": put("$defs/Limit/properties", least={"type": "integer"}),
    "title": put("", title="Something else"),
    "description": put("properties/name", description="Now explained."),
    "description removed": drop("", "description"),
    "examples": put("properties/name", examples=["abc"]),
    "stream moved": put("x-farside", stream="JOBS_TWO"),
    "required in another order": put("", required=["kind", "name"]),
    "enum in another order": put("$defs/Kind", enum=["b", "a"]),
    "alternatives in another order": put(
        "properties/maybe", anyOf=[{"type": "null"}, {"type": "integer", "minimum": 1}]
    ),
    "definition renamed": rename_definition,
    "definition inlined": inline_definition,
    "unused definition": put("$defs", Spare={"type": "string"}),
    "word added to an open vocabulary": put("properties/why/x-farside", words=["warm", "hot", "cold"]),
    "words listed for the first time": put("properties/name", **{"x-farside": {"words": ["a"]}}),
    "default of a new field within a default": put("properties/labels", default={"of": "old", "new": None}),
    "rule for whoever states a new field": put(
        "", dependentSchemas={"extra": {"required": ["size"]}, "tags": {"required": ["labels"]}}
    ),
    "condition explained": put("if", description="Free things have no size."),
}

BREAKING_CHANGES: dict[str, tuple[Change, str]] = {
    "field removed": (drop("properties", "size"), "/size: field removed"),
    "optional field made required": (put("", required=["name", "kind", "size"]), "/required"),
    "required field made optional": (put("", required=["name"]), "/required"),
    "rule for whoever states an old field": (
        put("dependentSchemas", size={"required": ["labels"]}),
        "/dependentSchemas/size",
    ),
    "rule changed": (put("dependentSchemas/tags", required=["labels", "size"]), "/dependentSchemas/tags"),
    "rule dropped": (drop("dependentSchemas", "tags"), "/dependentSchemas/tags"),
    "no longer any required": (drop("", "required"), "/required"),
    "new required field": (put("", required=["name", "kind", "new"]), "/required"),
    "type changed": (put("properties/size", type="string"), "/size/type"),
    "type widened": (put("properties/size", type=["integer", "null"]), "/size/type"),
    "minimum raised": (put("properties/size", minimum=1), "/size/minimum"),
    "minimum lowered": (put("properties/size", minimum=-1), "/size/minimum"),
    "maximum raised": (put("properties/size", maximum=11), "/size/maximum"),
    "maximum dropped": (drop("properties/size", "maximum"), "/size/maximum"),
    "bound added": (put("properties/name", maxLength=3), "/name/maxLength"),
    "pattern changed": (put("properties/name", pattern="^.*$"), "/name/pattern"),
    "default changed": (put("properties/size", default=4), "/size/default"),
    "default within a default changed": (put("properties/labels", default={"of": "new"}), "/labels/default"),
    "default within a default dropped": (put("properties/labels", default={}), "/labels/default"),
    "default changed from 0 to false": (put("properties/maybe", default=False), "/maybe/default"),
    "enum value added": (put("$defs/Kind", enum=["a", "b", "c"]), "/kind/enum"),
    "enum value removed": (put("$defs/Kind", enum=["a"]), "/kind/enum"),
    "word removed from an open vocabulary": (
        put("properties/why/x-farside", words=["cold", "warm"]),
        "/why/x-farside.words: 'hot' removed",
    ),
    "words of an open vocabulary no longer listed": (
        drop("properties/why", "x-farside"),
        "/why/x-farside.words: 'cold'",
    ),
    "open vocabulary closed": (put("properties/why", enum=["cold", "hot"]), "/why/enum"),
    "closed vocabulary opened": (drop("$defs/Kind", "enum"), "/kind/enum"),
    "alternative added": (
        put("properties/maybe", anyOf=[{"type": "integer", "minimum": 1}, {"type": "null"}, {"type": "string"}]),
        "/maybe/anyOf",
    ),
    "alternative removed": (put("properties/maybe", anyOf=[{"type": "null"}]), "/maybe/anyOf"),
    "alternative changed": (
        put("properties/maybe", anyOf=[{"type": "integer", "minimum": 2}, {"type": "null"}]),
        "/maybe/anyOf/0/minimum",
    ),
    "item changed": (put("properties/tags/items", maxLength=6), "/tags/items/maxLength"),
    "items dropped": (drop("properties/tags", "items"), "/tags/items"),
    "map value changed": (
        put("properties/labels", additionalProperties={"type": "integer"}),
        "/labels/additionalProperties/type",
    ),
    "object closed": (put("", additionalProperties=False), "/additionalProperties"),
    "object opened": (drop("properties/shut", "additionalProperties"), "/shut/additionalProperties"),
    "field added to a closed object": (put("properties/shut/properties", b={"type": "string"}), "/shut/b"),
    "condition changed": (put("if/properties/name", const="cheap"), "/if"),
    "field added to a condition": (put("if/properties", kind={"const": "a"}), "/if"),
    "consequence changed": (put("else", required=["size", "maybe"]), "/else"),
    "what a condition names changed": (put("$defs/Word", maxLength=8), "/if"),
    "field of a condition with the name of an annotation": (drop("if/properties", "title"), "/if"),
    "name of a map's keys changed": (put("$defs/Word", maxLength=8), "/limits/propertyNames/maxLength"),
    "map value named changed": (put("$defs/Limit/properties", most={"type": "number"}), "/limits/patternProperties/"),
    "pattern of a map's keys changed": (
        put("properties/limits", patternProperties={"^[a-z0-9]+$": {"$ref": "#/$defs/Limit"}}),
        "/limits/patternProperties: had the patterns",
    ),
    "condition dropped": (drop("", "if"), "/if"),
    "nested definition changed": (put("$defs/Node", required=["children"]), "/tree/required"),
    "recursive item changed": (put("$defs/Node/properties/children", maxItems=2), "/tree/children/maxItems"),
    "reference to another definition": (put("properties", kind={"$ref": "#/$defs/Node"}), "/kind"),
    "reference to nowhere": (drop("$defs", "Kind"), "/kind"),
    "type of the event": (put("x-farside", type="io.farside.jobs.other.v1"), "x-farside.type"),
    "subject": (put("x-farside", subject="jobs.v1.other.{tenant}"), "x-farside.subject"),
    "keyword unknown to the checker": (put("properties/size", multipleOf=2), "/size/multipleOf"),
    "schema became a constant": (put("properties", size=False), "/size"),
}


def _changed(change: Change) -> Schema:
    document = copy.deepcopy(_BASE)
    change(document)
    return document


@pytest.mark.parametrize("name", FREE_CHANGES)
def test_change_that_breaks_nobody(name: str) -> None:
    assert breaks(_BASE, _changed(FREE_CHANGES[name])) == []


@pytest.mark.parametrize("name", BREAKING_CHANGES)
def test_change_that_breaks_somebody(name: str) -> None:
    change, place = BREAKING_CHANGES[name]
    found = breaks(_BASE, _changed(change))
    assert any(problem.startswith(place) for problem in found), found


@pytest.mark.parametrize("id_", schema.all_schemas())
def test_every_real_schema_is_compatible_with_itself(id_: str) -> None:
    document = schema.all_schemas()[id_]
    assert breaks(document, copy.deepcopy(document)) == []


def _leaves(node: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of every constraint in a schema: all scalars that are not annotations."""
    if isinstance(node, dict):
        for key, inner in cast("Schema", node).items():
            if key not in FREE - {"$defs"} or (path and path[-1] in {"properties", "$defs"}):
                yield from _leaves(inner, (*path, key))
    elif isinstance(node, list):
        for index, inner in enumerate(cast("list[object]", node)):
            yield from _leaves(inner, (*path, index))
    else:
        yield path


@pytest.mark.parametrize("message", [registry.JOBS_SUBMIT, registry.ATTEMPTS_SAVED, registry.NODES_LOST])
def test_a_change_of_any_single_constraint_is_found(message: registry.Message[Model]) -> None:
    original = schema.message_schema(message)
    missed: list[object] = []
    for path in _leaves(original):
        changed = copy.deepcopy(original)
        here: Any = changed
        for part in path[:-1]:
            here = here[part]
        here[path[-1]] = "something else"
        if not breaks(original, changed):
            missed.append(path)
    assert missed == []


def test_two_different_messages_are_not_compatible() -> None:
    submit, cancel = schema.message_schema(registry.JOBS_SUBMIT), schema.message_schema(registry.JOBS_CANCEL)
    assert breaks(submit, cancel)
