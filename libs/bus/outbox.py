"""Rows of the outbox: a message ready to be published, made inside the transaction whose effect it tells."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic_core import to_json

from contracts.base import Model
from contracts.registry import Message
from libs.bus.codec import Envelope, encode, max_body_bytes, valid_key
from libs.bus.errors import BusError, TooLarge
from libs.telemetry.context import Trace

M = TypeVar("M", bound=Model)

MAX_HEADER_BYTES = 32 * 1024


@dataclass(frozen=True)
class OutboxRow:
    """One message to be published to `stream`. `number` is None until the ledger has stored it.

    Rows of one `aggregate` are published one after another, in the order of their numbers.
    """

    id: str
    aggregate: str
    stream: str
    subject: str
    headers: Mapping[str, str]
    data: bytes
    number: int | None = None

    @property
    def headers_json(self) -> str:
        """The headers as they are stored."""
        return to_json(self.headers).decode()


def make_row(message: Message[M], body: M, key: str, envelope: Envelope, trace: Trace | None) -> OutboxRow:
    """The outbox row of one message.

    Raises TooLarge when the body or the headers are above what the bus carries, BusError for a key that cannot
    stand in a subject.
    """
    if not valid_key(message.key, key):
        msg = f"key {key!r} of {message.id}: a {message.key} is lower-case letters, digits and dashes, 63 at most"
        raise BusError(msg)
    headers, data = encode(message, body, envelope, trace)
    limit = max_body_bytes(message)
    if len(data) > limit:
        msg = f"{message.id} {envelope.id} for {key} has a body of {len(data)} bytes, the limit is {limit}: put bulk "
        raise TooLarge(msg + "data on object storage and send its address")
    header_bytes = sum(len(name) + len(value) + 4 for name, value in headers.items())
    if header_bytes > MAX_HEADER_BYTES:
        msg = f"{message.id} {envelope.id} has {header_bytes} bytes of headers, the limit is {MAX_HEADER_BYTES}"
        raise TooLarge(msg)
    aggregate = envelope.subject or f"{message.id}/{key}"
    return OutboxRow(envelope.id, aggregate, message.stream.name, message.subject(key), headers, data)
