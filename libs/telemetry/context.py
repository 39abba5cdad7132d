"""The trace context of what is being handled now, and the words that go with its log lines.

`life` is the life cycle a message belongs to (`ce-traceparent`, begun where a job is submitted and kept to its end);
`hop` is the step that caused it (`traceparent`). Both are W3C traceparents of one trace. Incoming messages set the
context, rows of the outbox store it, and the relay publishes under what was stored.
"""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

LIFE_HEADER = "ce-traceparent"
HOP_HEADER = "traceparent"
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True)
class Trace:
    """Two traceparents; see the module."""

    life: str
    hop: str

    def headers(self) -> dict[str, str]:
        """The headers that carry it."""
        return {LIFE_HEADER: self.life, HOP_HEADER: self.hop}


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)
_fields: ContextVar[Mapping[str, str | int]] = ContextVar("fields")


def current() -> Trace | None:
    """The context of what is being handled now, if any."""
    return _current.get()


def is_traceparent(value: str) -> bool:
    """Whether a text is a W3C traceparent that names a span."""
    return _TRACEPARENT.fullmatch(value) is not None


def trace_id(traceparent: str) -> str:
    """The 32 hex digits of the trace that a traceparent belongs to."""
    return traceparent.split("-")[1]


def from_headers(headers: Mapping[str, str]) -> Trace | None:
    """The context that headers carry, their names in any case, or None. A lone traceparent serves as both.

    What is no traceparent is passed over: it would be kept with the job and sent on with each of its messages.
    """
    return from_lower({name.lower(): value for name, value in headers.items()})


def from_lower(headers: Mapping[str, str]) -> Trace | None:
    """The same of headers whose names are in lower case already."""
    hop = _valid(headers.get(HOP_HEADER))
    life = _valid(headers.get(LIFE_HEADER)) or hop
    return Trace(life, hop or life) if life else None


def _valid(value: str | None) -> str | None:
    return value if value is not None and is_traceparent(value) else None


@contextmanager
def use(trace: Trace | None) -> Generator[None, None, None]:
    """Make `trace` the current context inside the block."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def fields() -> Mapping[str, str | int]:
    """What every log line of this context says besides: the trace, and what was bound."""
    trace = current()
    bound = _fields.get({})
    return bound if trace is None else {"trace": trace_id(trace.hop), **bound}


def bind(values: Mapping[str, str | int]) -> None:
    """Have the log lines of this context say `values`, to the end of the `within` block around."""
    _fields.set({**_fields.get({}), **values})


@contextmanager
def within(trace: Trace | None) -> Generator[None, None, None]:
    """As `use`; besides, what is bound inside the block ends with it."""
    current, bound = _current.set(trace), _fields.set(_fields.get({}))
    try:
        yield
    finally:
        _fields.reset(bound)
        _current.reset(current)
