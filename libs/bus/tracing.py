"""What the bus tells of itself: a span for each message on its way and each request, and what Prometheus counts.

A message is published under what its outbox row has stored, and the span of that step goes along as `traceparent`;
`ce-traceparent` stays. Whoever takes it opens a span below. Names are templates, so that they are few.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import Any

from faststream.middlewares import BaseMiddleware
from nats.aio.msg import Msg

from contracts import registry
from contracts.base import MAX_ATTRIBUTE_CHARS, Model
from contracts.registry import Key, Message, Request
from libs.bus.codec import readable, time_text
from libs.bus.outbox import OutboxRow
from libs.telemetry import context, spans
from libs.telemetry.context import HOP_HEADER, LIFE_HEADER, Trace
from libs.telemetry.metrics import counter, histogram
from libs.telemetry.spans import Kind, Value, span

OUR_SOURCES = "/farside/"
SYSTEM = {"messaging.system": "nats"}

_PROCESSED = counter("farside.messages.processed", "{message}", "Messages that came to an outcome.")
_PROCESSING = histogram("farside.processing.duration", "From delivery to outcome, of a message or of a batch of them.")
_REDELIVERED = counter("farside.messages.redelivered", "{message}", "Deliveries that were not the first of a message.")
_DEAD = counter("farside.dead_letters", "{message}", "Messages that were buried.")
_PUBLISHED = counter("farside.messages.published", "{message}", "Messages that a stream has taken.")
_NOT_PUBLISHED = counter("farside.publish.failures", "{try}", "Tries to publish that failed.")
_ANSWERED = counter("farside.requests.answered", "{request}", "Requests that were answered, by the code of the answer.")
_ANSWERING = histogram("farside.request.duration", "From the arrival of a request to its answer.")

ANSWERED = "ok"


class Outcome(StrEnum):
    """What became of a delivery."""

    DONE = "done"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    INVALID = "invalid"
    FAILED = "failed"
    REDELIVERED = "redelivered"


class Traced(BaseMiddleware[Any, Any]):
    """FastStream's place for what surrounds everything else: the span of a message, of a batch, of a request."""

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: Any) -> Any:
        """Open the span that fits and measure."""
        tap = self.context.get_local("handler_").tap
        raw: Msg | list[Msg] = msg.raw_message
        begun = time.perf_counter()
        if isinstance(raw, list):
            with _batch(tap.template, tap.durable, raw):
                await call_next(msg)
        elif tap.durable:
            with processing(tap.template, tap.durable, raw):
                await call_next(msg)
        else:
            with _answering(tap.template, raw):
                await call_next(msg)
            _ANSWERING.record(time.perf_counter() - begun, template=tap.template)
            return
        _PROCESSING.record(time.perf_counter() - begun, template=tap.template, consumer=tap.durable)


@contextmanager
def processing(template: str, durable: str, message: Msg) -> Generator[None, None, None]:
    """The span of one delivered message."""
    meta = message.metadata
    if meta.num_delivered > 1:
        _REDELIVERED.add(template=template, consumer=durable)
    headers = _lower(message)
    attributes: dict[str, Value | None] = {
        **SYSTEM,
        "messaging.destination.name": template,
        "messaging.message.id": _words(headers, "ce-id"),
        "messaging.nats.stream": meta.stream,
        "messaging.nats.consumer": durable,
        "messaging.nats.sequence": meta.sequence.stream,
        "messaging.nats.deliveries": meta.num_delivered,
        "farside.source": _words(headers, "ce-source"),
        "farside.stored_at": time_text(meta.timestamp),
    }
    with _arrived(f"process {template}", Kind.CONSUMER, headers, attributes):
        try:
            yield
        except asyncio.CancelledError:
            outcome(template, durable, Outcome.REDELIVERED)
            raise


@contextmanager
def _batch(template: str, durable: str, messages: list[Msg]) -> Generator[None, None, None]:
    """The span of a batch: a trace of its own, linked to those of its messages."""
    again = sum(1 for message in messages if message.metadata.num_delivered > 1)
    if again:
        _REDELIVERED.add(again, template=template, consumer=durable)
    linked = messages[: spans.MAX_LINKS]
    causes = [cause for message in linked if (cause := context.from_headers(message.headers or {})) is not None]
    attributes: dict[str, Value] = {
        **SYSTEM,
        "messaging.destination.name": template,
        "messaging.nats.stream": messages[0].metadata.stream,
        "messaging.nats.consumer": durable,
        "messaging.batch.message_count": len(messages),
    }
    with span(f"process {template}", kind=Kind.CONSUMER, root=True, links=causes):
        spans.put(**attributes)
        yield


@contextmanager
def _answering(template: str, message: Msg) -> Generator[None, None, None]:
    attributes: dict[str, Value | None] = {**SYSTEM, "messaging.destination.name": template}
    with _arrived(f"answer {template}", Kind.SERVER, _lower(message), attributes):
        yield


@contextmanager
def _arrived(
    name: str, kind: Kind, headers: Mapping[str, str], attributes: Mapping[str, Value | None]
) -> Generator[None, None, None]:
    """A span below the step that its headers name. Where that is an outsider's, the life begins with this span."""
    trace = context.from_lower(headers)
    outside = trace is not None and _is_outside(headers)
    links = [trace.life] if trace and context.trace_id(trace.life) != context.trace_id(trace.hop) else []
    with span(name, kind=kind, trace=trace, root=trace is None, begins=outside, links=links):
        spans.put(**attributes, **{"farside.outside_parent": True if outside else None})
        yield


def _is_outside(headers: Mapping[str, str]) -> bool:
    """Whether somebody who is no part of Farside named the parent: nobody here has that span."""
    return LIFE_HEADER not in headers or not headers.get("ce-source", OUR_SOURCES).startswith(OUR_SOURCES)


def replaying(message: Message[Any], durable: str) -> None:
    """Say what the current message is: one that is sent again to the durable that had buried it."""
    spans.rename(f"process {message.template}")
    spans.put(**{"messaging.destination.name": message.template, "messaging.nats.consumer": durable})


def about(key_kind: Key, key: str, body: Model) -> None:
    """Say whom a message or request is about, as its subject and body name them."""
    attempt: Any = getattr(body, "attempt", None)
    spans.annotate(
        job=getattr(body, "job_id", None),
        node=key if key_kind is Key.NODE else getattr(body, "node", None),
        tenant=key if key_kind is Key.TENANT else getattr(body, "tenant", None),
        attempt=attempt if isinstance(attempt, int) else getattr(attempt, "number", None),
    )
    spans.put(**{"farside.member": getattr(body, "member", None)})


def outcome(template: str, durable: str, what: Outcome, messages: int = 1) -> None:
    """Say what became of the current message, or of so many of a batch."""
    spans.put(**{"farside.outcome": what.value})
    _PROCESSED.add(messages, template=template, consumer=durable, outcome=what.value)


def buried(durable: str, reason: str) -> None:
    """Count a dead letter."""
    _DEAD.add(consumer=durable, reason=reason)


def answered(request: Request[Any, Any], code: str) -> None:
    """Say how the current request was answered."""
    spans.put(**{"farside.code": code})
    _ANSWERED.add(template=request.template, code=code)


@contextmanager
def publishing(row: OutboxRow) -> Generator[dict[str, str], None, None]:
    """The step that publishes a row, under what it has stored; yields the headers to send.

    Heartbeats and ticks leave no span: they would be most of what there is to read.
    """
    message = registry.by_type(row.headers.get("ce-type", ""))
    template = row.stream if message is None else _template(message.type)
    trace = context.from_lower(row.headers)
    try:
        if message is not None and message.stream is registry.HEARTBEATS:
            yield dict(row.headers)
        else:
            attributes = _published(row, template, message)
            with span(f"publish {template}", kind=Kind.PRODUCER, trace=trace, root=trace is None):
                spans.put(**attributes)
                yield _sent(row.headers, context.current())
    except Exception:
        _NOT_PUBLISHED.add(template=template)
        raise
    _PUBLISHED.add(template=template)


@cache
def _template(type_: str) -> str:
    """The template of a message of the registry, by its type."""
    message = registry.by_type(type_)
    assert message is not None, f"{type_} is of the registry"
    return message.template


def _published(row: OutboxRow, template: str, message: Message[Any] | None) -> dict[str, Value | None]:
    key = row.subject.rpartition(".")[2]
    return {
        **SYSTEM,
        "messaging.destination.name": template,
        "messaging.message.id": row.id,
        "messaging.nats.stream": row.stream,
        "farside.source": row.headers.get("ce-source"),
        "farside.tenant": key if message is not None and message.key is Key.TENANT else None,
        "farside.node": key if message is not None and message.key is Key.NODE else None,
    }


def _sent(stored: Mapping[str, str], trace: Trace | None) -> dict[str, str]:
    headers = {name: value for name, value in stored.items() if name not in {LIFE_HEADER, HOP_HEADER}}
    return headers if trace is None else {**headers, **trace.headers()}


def stored(sequence: int, *, duplicate: bool) -> None:
    """Say where the message that is being published has come to lie."""
    spans.put(**{"messaging.nats.sequence": sequence, "farside.duplicate": True if duplicate else None})


@contextmanager
def asking(request: Request[Any, Any], key: str, body: Model) -> Generator[None, None, None]:
    """The span of a request, however often it is asked."""
    with span(f"ask {request.template}", kind=Kind.CLIENT):
        spans.put(**SYSTEM, **{"messaging.destination.name": request.template})
        about(request.key, key, body)
        yield


def _lower(message: Msg) -> dict[str, str]:
    return {name.lower(): value for name, value in (message.headers or {}).items()}


def _words(headers: Mapping[str, str], name: str) -> str | None:
    words = readable(headers.get(name))
    return None if words is None else words[:MAX_ATTRIBUTE_CHARS]
