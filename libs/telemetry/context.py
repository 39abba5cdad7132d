"""The trace context of what is being handled now.

`life` is the life cycle a message belongs to (`ce-traceparent`, begun where a job is submitted and kept to its end);
`hop` is the step that caused it (`traceparent`). Both are W3C traceparents. Incoming messages set the context, rows
of the outbox store it, and the relay publishes with what was stored.
"""

import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

LIFE_HEADER = "ce-traceparent"
HOP_HEADER = "traceparent"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8


@dataclass(frozen=True)
class Trace:
    """Two traceparents; see the module."""

    life: str
    hop: str

    def headers(self) -> dict[str, str]:
        """The headers that carry it."""
        return {LIFE_HEADER: self.life, HOP_HEADER: self.hop}


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current() -> Trace | None:
    """The context of what is being handled now, if any."""
    return _current.get()


def from_headers(headers: Mapping[str, str]) -> Trace | None:
    """The context that headers (names in lower case) carry, or None. A lone traceparent serves as both.

    What is no traceparent is passed over: it would be kept with the job and sent on with each of its messages.
    """
    hop = _valid(headers.get(HOP_HEADER))
    life = _valid(headers.get(LIFE_HEADER)) or hop
    return Trace(life, hop or life) if life else None


def _valid(value: str | None) -> str | None:
    return value if value is not None and _TRACEPARENT.fullmatch(value) else None


@contextmanager
def use(trace: Trace | None) -> Generator[None, None, None]:
    """Make `trace` the current context inside the block."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def root(trace_id: bytes, span_id: bytes) -> Trace:
    """A new life cycle. The flags say sampled (01) and random id (02)."""
    assert len(trace_id) == TRACE_ID_BYTES
    assert len(span_id) == SPAN_ID_BYTES
    traceparent = f"00-{trace_id.hex()}-{span_id.hex()}-03"
    return Trace(traceparent, traceparent)


def new_root() -> Trace:
    """A life cycle that begins here."""
    return root(os.urandom(TRACE_ID_BYTES), os.urandom(SPAN_ID_BYTES))
