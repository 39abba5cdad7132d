"""Spans: what was done, for how long and because of what, under the life and hop of libs.telemetry.context.

    with span("place job", **{"farside.job": job_id}):
        ...

While nothing records (libs.telemetry.process) a span is free and changes nothing: life and hop flow on as they came,
and no parent is named that nobody has written down.
"""

import asyncio
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from enum import Enum

from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    NoOpTracer,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from libs.telemetry import context
from libs.telemetry.context import Trace

MAX_LINKS = 128

Value = str | bool | int | float
Links = Sequence[Trace | str]


class Kind(Enum):
    """How a span stands to the bus."""

    INTERNAL = SpanKind.INTERNAL
    SERVER = SpanKind.SERVER
    CLIENT = SpanKind.CLIENT
    PRODUCER = SpanKind.PRODUCER
    CONSUMER = SpanKind.CONSUMER


class _Recording:
    """Where spans go; libs.telemetry.process puts a real tracer here."""

    tracer: Tracer = NoOpTracer()


_span: ContextVar[Span] = ContextVar("span", default=INVALID_SPAN)


def use_tracer(tracer: Tracer | None) -> None:
    """From now on `tracer` makes the spans of this process; None: nothing records."""
    _Recording.tracer = tracer or NoOpTracer()


@contextmanager
def span(
    name: str,
    *,
    kind: Kind = Kind.INTERNAL,
    links: Links = (),
    root: bool = False,
    trace: Trace | None = None,
    begins: bool = False,
    **attributes: Value | None,
) -> Generator[Span, None, None]:
    """A span for as long as the block, under `trace` or else the current context, and the current one inside.

    `root`: a trace of its own, whatever is current. `begins`: the life begins here, in the trace of the parent, whose
    own life is not ours. A span with no parent begins a life. Only the first MAX_LINKS of `links` are kept, and nothing
    that is no traceparent. What is raised makes the span an error. No message but the one it is about may be awaited
    inside, and nothing yielded.
    """
    parent = None if root else trace or context.current()
    started = _start(name, kind, parent, links, attributes, None)
    current = _under(started, parent, begins=begins)
    token = _span.set(started)
    try:
        with context.within(current):
            yield started
    except Exception as error:
        _fail(started, error)
        raise
    except asyncio.CancelledError:
        started.set_status(Status(StatusCode.ERROR, "cancelled"))
        raise
    finally:
        _span.reset(token)
        started.end()


def record(
    name: str,
    *,
    start: datetime,
    end: datetime,
    trace: Trace | None = None,
    links: Links = (),
    **attributes: Value | None,
) -> None:
    """Write a span that is over already, under `trace` or else the current context."""
    parent = trace or context.current()
    _start(name, Kind.INTERNAL, parent, links, attributes, _ns(start)).end(_ns(end))


def annotate(
    *, job: str | None = None, node: str | None = None, tenant: str | None = None, attempt: int | None = None
) -> None:
    """Say whom the current span is about, and have the log lines say it too until the span ends."""
    given = {"job": job, "node": node, "tenant": tenant, "attempt": attempt}
    known = {name: value for name, value in given.items() if value is not None}
    context.bind(known)
    put(**{f"farside.{name}": value for name, value in known.items()})


def put(**attributes: Value | None) -> None:
    """Set attributes of the current span; None sets nothing."""
    _span.get().set_attributes(_given(attributes))


def rename(name: str) -> None:
    """Give the current span another name."""
    _span.get().update_name(name)


def event(name: str, **attributes: Value | None) -> None:
    """Add an event to the current span."""
    _span.get().add_event(name, _given(attributes))


def failed(error: BaseException) -> None:
    """Make the current span an error although `error` goes no further."""
    _fail(_span.get(), error)


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))


def _start(
    name: str,
    kind: Kind,
    parent: Trace | None,
    links: Links,
    attributes: dict[str, Value | None],
    start: int | None,
) -> Span:
    under = Context()
    if parent is not None:
        under = set_span_in_context(NonRecordingSpan(_span_context(parent.hop)), under)
    return _Recording.tracer.start_span(
        name,
        context=under,
        kind=kind.value,
        attributes=_given(attributes),
        links=[Link(_span_context(to)) for to in _linked(links)],
        start_time=start,
    )


def _under(started: Span, parent: Trace | None, *, begins: bool) -> Trace | None:
    """What is current inside a span: its own hop, unless nothing records and the parent's flows on."""
    made = started.get_span_context()
    if not made.is_valid or isinstance(_Recording.tracer, NoOpTracer):
        return parent
    hop = f"00-{made.trace_id:032x}-{made.span_id:016x}-{made.trace_flags:02x}"
    return Trace(hop if parent is None or begins else parent.life, hop)


def _given(attributes: dict[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None}


def _linked(links: Links) -> Iterable[str]:
    hops = (to.hop if isinstance(to, Trace) else to for to in links[:MAX_LINKS])
    return filter(context.is_traceparent, hops)


def _span_context(traceparent: str) -> SpanContext:
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _ns(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000) * 1000
