"""Spans as a journey needs them, read from OTLP JSON.

One line holds one `TracesData` object: as our own processes write it, a span a line, or as the OpenTelemetry
Collector's file exporter does, many spans of many processes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

Value = str | int | float | bool | None

TRACE_ID = re.compile(r"[0-9a-f]{32}")
SPAN_ID = re.compile(r"[0-9a-f]{16}")
ERROR = 2
OTHER_SIGNALS = ("resourceMetrics", "resourceLogs", "resourceProfiles")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DamagedError(ValueError):
    """A line that is no OTLP JSON."""


@dataclass(frozen=True, order=True)
class Ref:
    """A span by its ids."""

    trace_id: str
    span_id: str


@dataclass(frozen=True)
class Origin:
    """The process that a span stems from. `instance` is the node of an agent."""

    service: str
    instance: str
    pid: int

    @property
    def node(self) -> str:
        """The node of an agent, else nothing: other services name their process there."""
        return self.instance if self.service == "agent" and self.instance != str(self.pid) else ""


@dataclass(frozen=True)
class Span:
    """One span. Times in nanoseconds since 1970."""

    ref: Ref
    parent: str
    name: str
    start_ns: int
    end_ns: int
    links: tuple[Ref, ...]
    attributes: Mapping[str, Value]
    error: bool
    origin: Origin

    @property
    def started_at(self) -> datetime:
        """Its start as a time, to the microsecond."""
        return at(self.start_ns)

    def text(self, key: str) -> str:
        """An attribute as text, nothing where there is none."""
        value = self.attributes.get(key)
        return "" if value is None else str(value)

    def number(self, key: str) -> int | None:
        """An attribute that is a whole number, else None."""
        value = self.attributes.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def at(ns: int) -> datetime:
    """Nanoseconds since 1970 as a time."""
    return EPOCH + timedelta(microseconds=ns // 1_000)


def spans_of(line: bytes) -> Iterator[Span]:
    """The spans of one line. Raises DamagedError; spans that came before the damage are good."""
    try:
        data: Any = json.loads(line)
        if "resourceSpans" not in data and any(name in data for name in OTHER_SIGNALS):
            return
        for resource in data["resourceSpans"]:
            origin = _origin(_attributes(resource.get("resource", {})))
            for scope in resource.get("scopeSpans", ()):
                for span in scope.get("spans", ()):
                    yield _span(span, origin)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"no OTLP JSON: {type(error).__name__}: {error}"
        raise DamagedError(msg) from None


def _origin(attributes: Mapping[str, Value]) -> Origin:
    pid = attributes.get("process.pid")
    instance = attributes.get("service.instance.id")
    return Origin(
        service=str(attributes.get("service.name") or "unknown"),
        instance="" if instance is None else str(instance),
        pid=pid if isinstance(pid, int) else 0,
    )


def _span(span: Mapping[str, Any], origin: Origin) -> Span:
    parent = str(span.get("parentSpanId") or "").lower()
    return Span(
        ref=_ref(span),
        parent=parent,
        name=str(span["name"]),
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        links=tuple(_ref(link) for link in span.get("links", ())),
        attributes=_attributes(span),
        error=span.get("status", {}).get("code") in {ERROR, "STATUS_CODE_ERROR"},
        origin=origin,
    )


def _ref(holder: Mapping[str, Any]) -> Ref:
    ref = Ref(holder["traceId"].lower(), holder["spanId"].lower())
    if not TRACE_ID.fullmatch(ref.trace_id) or not SPAN_ID.fullmatch(ref.span_id):
        msg = f"{ref.trace_id!r}, {ref.span_id!r} are no ids of a span"
        raise ValueError(msg)
    return ref


def _attributes(holder: Mapping[str, Any]) -> dict[str, Value]:
    return {pair["key"]: _value(pair.get("value") or {}) for pair in holder.get("attributes", ())}


def _value(value: Mapping[str, Any]) -> Value:
    """The value of an attribute; lists and maps, which no attribute of ours is, come out as JSON."""
    if not value:
        return None
    kind, content = next(iter(value.items()))
    match kind:
        case "intValue":
            return int(content)
        case "stringValue" | "boolValue" | "doubleValue":
            return cast("Value", content)
        case _:
            return json.dumps(content)
