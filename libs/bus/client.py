"""The bus for those who are no service: tools, tests, agents' heartbeats, and each App's own reads.

A Client publishes directly (there is no transaction whose effect the message would tell), asks and reads.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from nats.js.errors import NotFoundError

from contracts.base import Model
from contracts.registry import Message, Request
from libs.bus import tracing
from libs.bus.asking import Asker
from libs.bus.codec import Envelope, decode
from libs.bus.connection import Address, Callbacks, Connection, close, connect, jetstream
from libs.bus.errors import BusError
from libs.bus.events import Event, Invalid
from libs.bus.outbox import make_row
from libs.bus.reader import Reader, Since
from libs.kit.clock import Clock, SystemClock
from libs.kit.ids import new_id
from libs.kit.settings import JS_API
from libs.telemetry import context

M = TypeVar("M", bound=Model)
R = TypeVar("R", bound=Model)

PUBLISH_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 5.0
HISTORY_LIMIT = 10_000


@dataclass(frozen=True)
class PubAck:
    """The stream has the message. `duplicate`: it had it before under the same id."""

    stream: str
    sequence: int
    duplicate: bool


class Client:
    """A connection with the words of the registry. `name` says who asks and becomes the source of what it publishes."""

    def __init__(self, connection: Connection, address: Address, source: str, clock: Clock | None = None) -> None:
        self.connection = connection
        self.address = address
        self.js = jetstream(connection, address.api)
        self.name = address.name
        self.source = source
        self._clock = clock or SystemClock()
        self._asker = Asker(connection, address.name)

    def reconnected(self) -> None:
        """Answers to what was asked before will not come any more: ask again now."""
        self._asker.reconnected()

    @classmethod
    async def connect(
        cls, url: str, *, name: str, api: str = JS_API, creds: Path | None = None, source: str | None = None
    ) -> Self:
        """Connect, waiting for the server. `api` begins the subjects of the JetStream API."""
        address = Address(url, name, creds, api)
        callbacks = Callbacks()
        client = cls(await connect(address, callbacks), address, source or f"/farside/{name}")
        callbacks.reconnected = client.reconnected
        return client

    async def close(self) -> None:
        """Flush and close the connection."""
        await close(self.connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def publish(
        self,
        message: Message[M],
        body: M,
        *,
        key: str,
        subject: str,
        actor: str,
        sequence: int | None = None,
        incarnation: str | None = None,
        id: str | None = None,  # noqa: A002 - the attribute's name in CloudEvents
        timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> PubAck:
        """Publish one message and wait for its PubAck.

        Raises TooLarge, and nats.errors.Error when the bus cannot be reached or refuses. What timed out may still
        arrive: whoever tries again does it with the same `id`.
        """
        if sequence is None and message.kind == "event":
            sequence = 0
        envelope = Envelope(
            id=id or new_id(),
            source=self.source,
            subject=subject,
            sequence=sequence,
            actor=actor,
            incarnation=incarnation,
            time=self._clock.now(),
        )
        row = make_row(message, body, key, envelope, context.current())
        with tracing.publishing(row) as headers:
            ack = await self.js.publish(
                row.subject, row.data, timeout=timeout_s, stream=row.stream, headers=dict(headers)
            )
            tracing.stored(ack.seq, duplicate=bool(ack.duplicate))
        return PubAck(ack.stream, ack.seq, bool(ack.duplicate))

    async def request(self, request: Request[M, R], body: M, *, key: str, timeout_s: float = REQUEST_TIMEOUT_S) -> R:
        """Ask a service and return its reply.

        Asks again while nobody answers, until `timeout_s` is over. Raises Problem, with code `unavailable` when
        there was no answer in time.
        """
        return await self._asker.request(request, body, key, timeout_s)

    def events(
        self, messages: Sequence[Message[Any]], *, key: str | Sequence[str] = "*", since: Since = "new"
    ) -> AsyncGenerator[Event[Any], None]:
        """Read messages of one stream in order, for ever: what is there (by `since`), then what comes."""
        keys = [key] if isinstance(key, str) else key
        return Reader(self.connection, self.js, self.address.api, messages, keys, since).events()

    async def history(
        self,
        messages: Sequence[Message[Any]],
        *,
        key: str | Sequence[str] = "*",
        since: Since = "all",
        limit: int = HISTORY_LIMIT,
    ) -> list[Event[Any]]:
        """The messages of one stream that are there now, oldest first, the newest `limit` of them."""
        keys = [key] if isinstance(key, str) else key
        return await Reader(self.connection, self.js, self.address.api, messages, keys, since).history(limit)

    async def last(self, message: Message[M], *, key: str) -> Event[M] | None:
        """The newest message under one key, or None. Raises BusError when it cannot be decoded."""
        try:
            raw: Any = await self.js.get_last_msg(message.stream.name, message.subject(key), direct=True)
        except NotFoundError:
            return None
        data: bytes = raw.data or b""
        stored_at: datetime = raw.time or self._clock.now()
        decoded = decode(message, message.subject(key), raw.headers or {}, data, received_at=stored_at)
        if isinstance(decoded, Invalid):
            msg = f"the newest {message.id} of {key} cannot be read: {decoded.detail}"
            raise BusError(msg)
        return decoded
