"""What handlers get: decoded messages, refused ones, and requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from contracts.base import Model
from contracts.deadletters import DeadReason
from contracts.registry import Message

M = TypeVar("M", bound=Model, covariant=True)


@dataclass(frozen=True)
class Delivery:
    """Where a message stands in its stream, and the how many-th time it is delivered to `consumer`."""

    stream: str
    consumer: str
    stream_sequence: int
    deliveries: int
    stored_at: datetime


@dataclass(frozen=True)
class Event(Generic[M]):
    """A decoded and validated message.

    `key` is the tenant or node named by the subject; `subject` is the aggregate (`ce-subject`) and `sequence` its
    version; `actor` is who caused the message. Commands of outsiders may lack the last three.
    """

    message: Message[M]
    body: M
    id: str
    source: str
    key: str
    subject: str | None
    sequence: int | None
    actor: str | None
    incarnation: str | None
    time: datetime
    traceparent: str | None
    delivery: Delivery | None = None


@dataclass(frozen=True)
class Invalid:
    """A message that cannot be decoded, with the reason for its dead letter. `id` and `source` may be missing."""

    key: str
    id: str | None
    source: str | None
    subject: str
    headers: Mapping[str, str]
    data: bytes
    reason: DeadReason
    detail: str
    delivery: Delivery | None = None

    @property
    def message(self) -> str:
        """The reason in words."""
        return self.detail


@dataclass(frozen=True)
class Call(Generic[M]):
    """A request: `key` is the tenant or node named by the subject, `caller` what the sender says it is."""

    body: M
    key: str
    caller: str | None
