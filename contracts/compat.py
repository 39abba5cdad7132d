"""May a stable schema become another? Only by optional fields that older readers ignore.

Comes in: an earlier committed schema and today's. Goes out: one sentence for each change that would break a reader.
Events are replayed and services are deployed one by one, so both directions count: today's readers take yesterday's
messages, and yesterday's readers take today's. That leaves three changes in v1: a new field, not required, of an
object that ignores fields it does not know; a rule for those who state such a field (`dependentSchemas`); a new word of
an open vocabulary (`contracts.base.Open`), whose readers take any word. Titles, descriptions, examples and the names of
`$defs` are free.

The same holds for commands and requests. A wider bound would be taken from the sender by the service of today, but not
by that of yesterday, which may run beside it or come back, and what a command says is told again in events.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

JsonMap = Mapping[str, object]

MAX_DEPTH = 64
FREE = frozenset({"$schema", "$id", "$comment", "$defs", "title", "description", "examples", "deprecated", "x-farside"})
FIXED_FACTS = ("type", "kind", "subject", "verb", "header")

NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
CONSTANTS = frozenset({"const", "default", "enum"})

_ABSENT = object()


def breaks(old: JsonMap, new: JsonMap) -> list[str]:
    """What in `new` breaks readers or writers of `old`; empty when nothing does."""
    return [*_facts(old, new), *_Comparison(old, new).schemas(old, new, "", 0)]


def _facts(old: JsonMap, new: JsonMap) -> Iterator[str]:
    """The message itself may not change its name on the bus."""
    before, after = _map(old.get("x-farside")), _map(new.get("x-farside"))
    for fact in FIXED_FACTS:
        if fact in before and before[fact] != after.get(fact):
            yield f"x-farside.{fact}: was {before[fact]!r}, is {after.get(fact)!r}"


class _Comparison:
    """Two documents side by side; each resolves `$ref` in its own `$defs`."""

    def __init__(self, old: JsonMap, new: JsonMap) -> None:
        self._old_defs = _map(old.get("$defs"))
        self._new_defs = _map(new.get("$defs"))
        self._open: set[tuple[str, str]] = set()

    def schemas(self, old: object, new: object, path: str, depth: int) -> list[str]:
        """Compare two schemas that stand at the same `path`; a pair of references already open is not entered again."""
        if depth > MAX_DEPTH:
            return [f"{path or '/'}: nested deeper than {MAX_DEPTH}, cannot be compared"]
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            return [] if old == new else [f"{path or '/'}: was {old!r}, is {new!r}"]
        before, after = _map(cast("object", old)), _map(cast("object", new))
        pair = (_ref(before), _ref(after))
        if all(pair) and pair in self._open:
            return []
        self._open.add(pair)
        try:
            return self._keywords(_resolve(before, self._old_defs), _resolve(after, self._new_defs), path, depth + 1)
        finally:
            self._open.discard(pair)

    def _keywords(self, old: JsonMap, new: JsonMap, path: str, depth: int) -> list[str]:
        found = _words_lost(old, new, path)
        for keyword in sorted((old.keys() | new.keys()) - FREE):
            before, after = old.get(keyword, _ABSENT), new.get(keyword, _ABSENT)
            here = f"{path}/{keyword}"
            match keyword:
                case "properties":
                    found += self._properties(old, new, path, depth)
                case "required" | "enum" | "type" | "dependentRequired":
                    found += _same(_sorted(before), _sorted(after), here)
                case "anyOf" | "oneOf":
                    found += self._branches(before, after, here, depth)
                case "default":
                    found += _same(before, _of_old(before, after), here)
                case "dependentSchemas":
                    found += self._dependents(old, new, here)
                case "items" | "additionalProperties" | "propertyNames":
                    found += self._nested(before, after, here, depth)
                case "patternProperties":
                    found += self._patterns(before, after, here, depth)
                case _:
                    found += _same(_bare_of(old, keyword, self._old_defs), _bare_of(new, keyword, self._new_defs), here)
        return found

    def _properties(self, old: JsonMap, new: JsonMap, path: str, depth: int) -> list[str]:
        """Every old field stays as it was; a new one needs a reader that ignores what it does not know.

        Whether the new one is required shows in `required`, which may not change.
        """
        before, after = _map(old.get("properties")), _map(new.get("properties"))
        found: list[str] = []
        for name in before:
            if name in after:
                found += self.schemas(before[name], after[name], f"{path}/{name}", depth)
            else:
                found.append(f"{path}/{name}: field removed")
        closed = old.get("additionalProperties", True) is not True
        if closed:
            found += [
                f"{path}/{name}: field added where older readers refuse it" for name in after if name not in before
            ]
        return found

    def _dependents(self, old: JsonMap, new: JsonMap, path: str) -> list[str]:
        """Rules for whoever states a field: those for fields of old stay, for others nobody has been bound yet."""
        before, after = _map(old.get("dependentSchemas")), _map(new.get("dependentSchemas"))
        bound = before.keys() | (after.keys() & _map(old.get("properties")).keys())
        olds = {name: _bare(before[name], self._old_defs) for name in before}
        news = {name: _bare(after[name], self._new_defs) for name in after}
        return [
            problem
            for name in sorted(bound)
            for problem in _same(olds.get(name, _ABSENT), news.get(name, _ABSENT), f"{path}/{name}")
        ]

    def _branches(self, before: object, after: object, path: str, depth: int) -> list[str]:
        """Alternatives may change places; each old one needs one of its own today, and none may be new."""
        olds, news = _list(before), _list(after)
        if olds is None or news is None:
            return _same(before, after, path)
        if len(olds) != len(news):
            return [f"{path}: had {len(olds)} alternatives, has {len(news)}"]
        found: list[str] = []
        for index, old in enumerate(olds):
            problems = [self.schemas(old, new, f"{path}/{index}", depth) for new in news]
            best = min(range(len(news)), key=lambda place: len(problems[place]))
            found += problems[best]
            del news[best]
        return found

    def _patterns(self, before: object, after: object, path: str, depth: int) -> list[str]:
        """The same patterns, and of each what it was."""
        olds, news = _map(before), _map(after)
        if olds.keys() != news.keys():
            return [f"{path}: had the patterns {sorted(olds)}, has {sorted(news)}"]
        return [found for name in olds for found in self.schemas(olds[name], news[name], f"{path}/{name}", depth)]

    def _nested(self, before: object, after: object, path: str, depth: int) -> list[str]:
        if before is _ABSENT or after is _ABSENT:
            return _same(before, after, path)
        return self.schemas(before, after, path, depth)


def _words_lost(old: JsonMap, new: JsonMap, path: str) -> list[str]:
    """An open vocabulary grows and never shrinks: what was said once is replayed to readers of today."""
    before, after = (_list(_map(schema.get("x-farside")).get("words")) or [] for schema in (old, new))
    return [f"{path}/x-farside.words: {word!r} removed" for word in before if word not in after]


def _map(value: object) -> JsonMap:
    return cast("JsonMap", value) if isinstance(value, Mapping) else {}


def _ref(schema: JsonMap) -> str:
    ref = schema.get("$ref")
    return ref if isinstance(ref, str) else ""


def _resolve(schema: JsonMap, defs: JsonMap) -> JsonMap:
    """`schema` with its reference, if it has one, replaced by what it names; keywords beside a `$ref` stay."""
    seen: set[str] = set()
    while (ref := _ref(schema)) and ref not in seen:
        seen.add(ref)
        target = _map(defs.get(ref.removeprefix("#/$defs/")))
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _list(value: object) -> list[object] | None:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(cast("Sequence[object]", value))
    return None


def _sorted(value: object) -> object:
    """A list whose order means nothing, put into one order."""
    items = _list(value)
    return value if items is None else sorted(items, key=repr)


def _bare(value: object, defs: JsonMap, opened: tuple[str, ...] = ()) -> object:
    """A condition (`if`, `not`, ...) or a bound without annotations: it may not change at all, nor what it names."""
    items = _list(value)
    if items is not None:
        return [_bare(item, defs, opened) for item in items]
    schema = _map(value)
    ref = _ref(schema)
    if not schema or ref in opened:
        return value
    within = (*opened, ref) if ref else opened
    bare = {key: inner for key, inner in _resolve(schema, defs).items() if key not in FREE}
    return {key: _bare_keyword(key, inner, defs, within) for key, inner in bare.items()}


def _bare_of(schema: JsonMap, keyword: str, defs: JsonMap) -> object:
    return _bare_keyword(keyword, schema[keyword], defs, ()) if keyword in schema else _ABSENT


def _bare_keyword(keyword: str, value: object, defs: JsonMap, opened: tuple[str, ...]) -> object:
    """A field may have the name of an annotation, and a constant is no schema."""
    if keyword in NAMED:
        return {name: _bare(schema, defs, opened) for name, schema in _map(value).items()}
    return value if keyword in CONSTANTS else _bare(value, defs, opened)


def _of_old(before: object, after: object) -> object:
    """A default of today without what it says of fields that are new."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return after
    return {name: value for name, value in _map(cast("object", after)).items() if name in before}


def _same(before: object, after: object, path: str) -> list[str]:
    if before is _ABSENT:
        return [f"{path}: {after!r} added"]
    if after is _ABSENT:
        return [f"{path}: {before!r} removed"]
    if before != after or type(before) is not type(after):
        return [f"{path}: was {before!r}, is {after!r}"]
    return []
