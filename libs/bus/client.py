"""The bus for those who are no service: tools, tests, agents' heartbeats, and each App's own reads.

A Client publishes directly (there is no transaction whose effect the message would tell), asks and reads.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.errors import NotFoundError
from pydantic import ValidationError

from contracts import requests
from contracts.base import Model
from contracts.registry import Message, Request
from contracts.requests import ProblemCode
from libs.bus.codec import CONTENT_TYPE, JSON, Envelope, decode
from libs.bus.connection import Address, Callbacks, Connection, close, connect, jetstream
from libs.bus.errors import BusError, Problem
from libs.bus.events import Event, Invalid
from libs.bus.outbox import make_row
from libs.bus.reader import Reader, Since
from libs.bus.serving import CALLER_HEADER, PROBLEM_HEADER
from libs.kit.clock import Clock, SystemClock
from libs.kit.ids import new_id
from libs.kit.retry import delays
from libs.telemetry import context

M = TypeVar("M", bound=Model)
R = TypeVar("R", bound=Model)

PUBLISH_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 5.0
RETRY_FIRST_S = 0.05
RETRY_CAP_S = 0.5
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
        self.js = jetstream(connection, address.domain)
        self.name = address.name
        self.source = source
        self._clock = clock or SystemClock()
        self._waiting: set[asyncio.Task[Any]] = set()

    def reconnected(self) -> None:
        """Answers to what was asked before will not come any more: ask again now."""
        for waiting in self._waiting:
            waiting.cancel()

    @classmethod
    async def connect(
        cls, url: str, *, name: str, domain: str | None = None, creds: Path | None = None, source: str | None = None
    ) -> Self:
        """Connect, waiting for the server. `domain` is `hub` behind a leaf node."""
        address = Address(url, name, creds, domain)
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
        row = make_row(message, body, key, envelope, context.current() or context.new_root())
        ack = await self.js.publish(
            row.subject, row.data, timeout=timeout_s, stream=row.stream, headers=dict(row.headers)
        )
        return PubAck(ack.stream, ack.seq, bool(ack.duplicate))

    async def request(self, request: Request[M, R], body: M, *, key: str, timeout_s: float = REQUEST_TIMEOUT_S) -> R:
        """Ask a service and return its reply.

        Asks again while nobody answers, until `timeout_s` is over. Raises Problem, with code `unavailable` when
        there was no answer in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        reason = "no answer in time"
        for delay_s in delays(RETRY_FIRST_S, RETRY_CAP_S):
            left_s = deadline - loop.time()
            if left_s <= 0:
                break
            try:
                return await self._ask(request, body, key, left_s)
            except NoRespondersError:
                reason = "nobody serves it at the moment"
            except Problem as problem:
                if problem.code is not ProblemCode.UNAVAILABLE:
                    raise
                reason = problem.message
            except (NatsError, TimeoutError) as error:
                reason = repr(error)
            await asyncio.sleep(min(delay_s, max(0.0, deadline - loop.time())))
        text = f"{request.id} for {key}: {reason} ({timeout_s} s)"
        raise Problem(ProblemCode.UNAVAILABLE, text)

    async def _ask(self, request: Request[M, R], body: M, key: str, timeout_s: float) -> R:
        trace = context.current() or context.new_root()
        headers = {CONTENT_TYPE: JSON, CALLER_HEADER: self.name, **trace.headers()}
        answer = await self._answer(request.subject(key), body.model_dump_json().encode(), headers, timeout_s)
        try:
            if (answer.headers or {}).get(PROBLEM_HEADER):
                problem = requests.Problem.model_validate_json(answer.data)
                raise Problem(problem.code, problem.message)
            return request.reply.model_validate_json(answer.data)
        except ValidationError as error:
            text = f"the reply to {request.id} does not fit its schema: {error}"
            raise Problem(ProblemCode.INTERNAL, text) from error

    async def _answer(self, subject: str, data: bytes, headers: dict[str, str], timeout_s: float) -> Msg:
        """One reply. Raises TimeoutError also when the connection was lost meanwhile, and the reply with it."""
        waiting = asyncio.create_task(self.connection.request(subject, data, timeout=timeout_s, headers=headers))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        try:
            await asyncio.wait([waiting])
        finally:
            waiting.cancel()
        if waiting.cancelled():
            msg = "the connection was lost while waiting for the reply"
            raise TimeoutError(msg)
        return waiting.result()

    def events(
        self, messages: Sequence[Message[Any]], *, key: str | Sequence[str] = "*", since: Since = "new"
    ) -> AsyncGenerator[Event[Any], None]:
        """Read messages of one stream in order, for ever: what is there (by `since`), then what comes."""
        keys = [key] if isinstance(key, str) else key
        return Reader(self.connection, self.js, self.address.domain, messages, keys, since).events()

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
        return await Reader(self.connection, self.js, self.address.domain, messages, keys, since).history(limit)

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
