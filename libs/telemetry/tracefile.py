"""A tracer of OpenTelemetry's API that writes every span to a file as it ends: OTLP JSON, one a line, one write each.

It stands in for the SDK where spans go nowhere else and nobody samples: with a span for every message, the SDK and its
file exporter take a quarter of a service's time. The lines are the same.
"""

import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, TextIO

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    use_span,
)

from libs.kit.clock import epoch_ns
from libs.kit.logs import get_logger

_KINDS = {kind: kind.value + 1 for kind in SpanKind}  # OTLP counts from 1
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SAMPLED_RANDOM = TraceFlags(TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID)
_KNOWS_REMOTE, _REMOTE = 0x100, 0x200
_CODES = {StatusCode.UNSET: "{}", StatusCode.OK: '{"code":1}'}

Attributes = Mapping[str, Any]


class FileTracer(Tracer):
    """Makes spans that end in `file`."""

    def __init__(self, file: TextIO, resource: Resource, scope: str) -> None:
        self._file = file
        self._ids = RandomIdGenerator()
        told = _attributes(resource.attributes)
        self._head = f'{{"resourceSpans":[{{"resource":{{{told}}},"scopeSpans":[{{"scope":{{"name":{quoted(scope)}}},'

    def start_span(  # noqa: D102, PLR0917 - OpenTelemetry's own
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes | None = None,
        links: Sequence[Link] | None = (),
        start_time: int | None = None,
        record_exception: bool = True,  # noqa: FBT001, FBT002
        set_status_on_exception: bool = True,  # noqa: FBT001, FBT002
    ) -> "FileSpan":
        del record_exception, set_status_on_exception
        above = get_current_span(context).get_span_context()
        parent = above if above.is_valid else None
        own = self._context(parent)
        return FileSpan(self, name, own, parent, kind, attributes=attributes or {}, links=links or (), start=start_time)

    def _context(self, parent: SpanContext | None) -> SpanContext:
        span_id = self._ids.generate_span_id()
        if parent is None:
            return SpanContext(self._ids.generate_trace_id(), span_id, is_remote=False, trace_flags=_SAMPLED_RANDOM)
        flags = _SAMPLED_RANDOM if parent.trace_flags.random_trace_id else _SAMPLED
        return SpanContext(parent.trace_id, span_id, is_remote=False, trace_flags=flags)

    @contextmanager
    def start_as_current_span(  # noqa: D102 # pyright: ignore[reportIncompatibleMethodOverride] - a private type of theirs
        self, name: str, *args: Any, end_on_exit: bool = True, **options: Any
    ) -> Generator[Span, None, None]:
        with use_span(self.start_span(name, *args, **options), end_on_exit=end_on_exit) as span:
            yield span

    def write(self, span: str) -> None:
        """Write one span; a file that takes no more is told in the log and stops nobody."""
        try:
            self._file.write(f'{self._head}"spans":[{span}]}}]}}]}}\n')
            self._file.flush()
        except (OSError, ValueError) as error:
            get_logger().error("telemetry.span_lost", error=repr(error))


class FileSpan(Span):
    """One span; written when it ends, and closed from then on."""

    def __init__(
        self,
        tracer: FileTracer,
        name: str,
        own: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        *,
        attributes: Attributes,
        links: Sequence[Link],
        start: int | None,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._own = own
        self._parent = parent
        self._kind = kind
        self._attributes = dict(attributes)
        self._links = links
        self._start = epoch_ns() if start is None else start
        self._events: list[str] = []
        self._status = _CODES[StatusCode.UNSET]
        self._open = True

    def get_span_context(self) -> SpanContext:
        """Its ids."""
        return self._own

    def set_attributes(self, attributes: Attributes) -> None:
        """Set some."""
        self._attributes.update(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one."""
        self._attributes[key] = value

    def add_event(self, name: str, attributes: Attributes | None = None, timestamp: int | None = None) -> None:
        """Something that happened on the way."""
        at, told = timestamp or epoch_ns(), _attributes(attributes or {})
        self._events.append(f'{{"timeUnixNano":"{at}","name":{quoted(name)}{"," if told else ""}{told}}}')

    def update_name(self, name: str) -> None:
        """Be named otherwise."""
        self._name = name

    def is_recording(self) -> bool:
        """Whether it has not ended yet."""
        return self._open

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """How it ended."""
        if isinstance(status, Status):
            status, description = status.status_code, status.description
        self._status = _CODES.get(status) or f'{{"message":{quoted(description or "")},"code":2}}'

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes | None = None,
        timestamp: int | None = None,
        escaped: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """What was raised, with its stack."""
        kind = type(exception)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        told = {
            "exception.type": f"{module}{kind.__qualname__}",
            "exception.message": str(exception),
            "exception.stacktrace": "".join(traceback.format_exception(exception)),
            "exception.escaped": str(escaped),
        }
        self.add_event("exception", {**told, **(attributes or {})}, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """Write it."""
        if self._open:
            self._open = False
            self._tracer.write(self._line(epoch_ns() if end_time is None else end_time))

    def _line(self, end: int) -> str:
        own, parent = self._own, self._parent
        above = "" if parent is None else f'"parentSpanId":"{parent.span_id:016x}",'
        told = _attributes(self._attributes)
        parts = [
            f'{{"traceId":"{own.trace_id:032x}","spanId":"{own.span_id:016x}",{above}"flags":{_flags(parent)}',
            f'"name":{quoted(self._name)},"kind":{_KINDS[self._kind]}',
            f'"startTimeUnixNano":"{self._start}","endTimeUnixNano":"{end}"',
            *([told] if told else []),
            *([f'"events":[{",".join(self._events)}]'] if self._events else []),
            *([f'"links":[{",".join(map(_link, self._links))}]'] if self._links else []),
            f'"status":{self._status}}}',
        ]
        return ",".join(parts)


def _flags(parent: SpanContext | None) -> int:
    return _KNOWS_REMOTE | _REMOTE if parent is not None and parent.is_remote else _KNOWS_REMOTE


def _link(link: Link) -> str:
    to = link.context
    return f'{{"traceId":"{to.trace_id:032x}","spanId":"{to.span_id:016x}","flags":{_flags(to)}}}'


def _attributes(attributes: Attributes) -> str:
    """The member `attributes` of an object, nothing where there are none."""
    if not attributes:
        return ""
    pairs = [f'{{"key":{quoted(key)},"value":{{{_value(value)}}}}}' for key, value in attributes.items()]
    return f'"attributes":[{",".join(pairs)}]'


def _value(value: Any) -> str:
    match value:
        case str():
            return f'"stringValue":{quoted(value)}'
        case bool():
            return f'"boolValue":{"true" if value else "false"}'
        case int():
            return f'"intValue":"{value}"'
        case float():
            return f'"doubleValue":{_number(value)}'
        case _:
            return f'"stringValue":{quoted(str(value))}'


def _number(value: float) -> str:
    """JSON has no word for what is no number, OTLP has."""
    return _UNUSUAL.get(repr(value), repr(value))


_UNUSUAL = {"inf": '"Infinity"', "-inf": '"-Infinity"', "nan": '"NaN"'}
