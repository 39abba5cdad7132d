"""Reading a stream in order without a durable: for watching, for catching up, for tools.

An ephemeral consumer in the server's memory feeds a reader; when it is lost (restart, cut link, gap) the reader makes a
new one that starts behind the last message seen. A stream that was made anew, or that may have gone back, is read from
its beginning.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo
from nats.js.errors import BadRequestError

from contracts.registry import Message
from libs.bus.codec import decode
from libs.bus.connection import add_consumer, server_of
from libs.bus.errors import BusError
from libs.bus.events import Event, Invalid
from libs.bus.pull import Puller, PullTarget
from libs.bus.work import delivery_of
from libs.kit.logs import get_logger
from libs.kit.retry import delay
from libs.kit.tasks import reap

Since = Literal["new", "all", "newest"] | int
"""`new`: from now on; `all`: from the beginning; `newest`: the newest of each subject, then on; a number: from that
stream sequence."""

WINDOW = 256
INACTIVE_S = 300.0
RETRY_FIRST_S = 0.1
RETRY_CAP_S = 2.0


class Reader:
    """Reads `messages` of one stream in order, for ever."""

    def __init__(
        self,
        connection: NatsClient,
        js: JetStreamContext,
        api: str,
        messages: Sequence[Message[Any]],
        keys: Sequence[str],
        since: Since,
    ) -> None:
        streams = {message.stream.name: message.stream for message in messages}
        if len(streams) != 1:
            msg = f"a reader reads one stream, not {sorted(streams)}: take one reader for each"
            raise BusError(msg)
        if any(stream.retention == "workqueue" for stream in streams.values()):
            msg = f"{', '.join(streams)} is a work queue: its messages belong to the durable of their consumer"
            raise BusError(msg)
        self._connection = connection
        self._js = js
        self._api = api
        self._stream = next(iter(streams.values()))
        self._by_prefix = {message.subject(""): message for message in messages}
        self._subjects = [message.subject(key) for message in messages for key in keys]
        self._since: Since = since
        self._last = 0
        self._life: str | None = None
        self._consumer: str | None = None

    async def events(self) -> AsyncGenerator[Event[Any], None]:
        """Yield each message, for ever; what cannot be decoded is logged and left out. Raises BusError."""
        messages = self._messages()
        try:
            async for message in messages:
                event = self._decode(message)
                if event is not None:
                    yield event
        finally:
            await messages.aclose()

    async def replay(self) -> AsyncGenerator[Event[Any], None]:
        """Yield the messages that are there now, oldest first and however many, and end. Raises BusError."""
        messages = self._messages(end=True)
        try:
            async for message in messages:
                event = self._decode(message)
                if event is not None:
                    yield event
        finally:
            await messages.aclose()

    async def history(self, limit: int) -> list[Event[Any]]:
        """The messages that are there now, oldest first; of more than `limit` the newest."""
        found: deque[Event[Any]] = deque(maxlen=limit)
        async with contextlib.aclosing(self.replay()) as events:
            async for event in events:
                found.append(event)
        return list(found)

    async def _messages(self, *, end: bool = False) -> AsyncGenerator[Msg, None]:
        """Messages in the order of the stream, across lost consumers; with `end` up to the last one there is."""
        failures = 0
        while True:
            queue: asyncio.Queue[Msg] = asyncio.Queue(WINDOW)
            pulling: asyncio.Task[None] | None = None
            try:
                puller, pending = await self._begin(queue)
                if end and pending == 0:
                    return
                failures = 0
                pulling = asyncio.create_task(puller.run())
                expected = 1
                while True:
                    message = await self._next(queue, puller)
                    if message is None or message.metadata.sequence.consumer != expected:
                        break
                    expected += 1
                    puller.release()
                    self._last = message.metadata.sequence.stream
                    yield message
                    if end and message.metadata.num_pending == 0:
                        return
            except BadRequestError as error:
                msg = f"stream {self._stream.name} cannot be read: {error.description}"
                raise BusError(msg) from error
            except (NatsError, TimeoutError, OSError) as error:
                failures += 1
                get_logger().warning("bus.reader_retry", stream=self._stream.name, error=repr(error))
                await asyncio.sleep(delay(failures - 1, RETRY_FIRST_S, RETRY_CAP_S))
            finally:
                if pulling is not None:
                    await reap([pulling])
                await self._end()

    async def _begin(self, queue: asyncio.Queue[Msg]) -> tuple[Puller, int]:
        """Make a consumer that goes on where the last one stopped; also how many messages wait for it."""
        info = await self._js.stream_info(self._stream.name)
        life = self._life_of(info)
        if self._life is not None and life != self._life:
            get_logger().warning("bus.stream_renewed", stream=self._stream.name)
            self._last, self._since = 0, "all"
        self._life = life
        if self._since == "new" and self._last == 0:
            self._last = info.state.last_seq
        consumer = await add_consumer(self._js, self._stream.name, self._config())
        self._consumer = consumer.name
        inbox = self._connection.new_inbox()
        target = PullTarget(self._api, self._stream.name, consumer.name, inbox)
        return Puller(self._connection, target, WINDOW, queue.put_nowait), consumer.num_pending or 0

    def _life_of(self, info: StreamInfo) -> str:
        """Tells one life of the stream from the next.

        A stream that is not synced begins a new one with each run of its server: one that was killed may have lost what
        it acknowledged, and gives the same sequences again.
        """
        run = "" if self._stream.synced else server_of(self._connection)
        return f"{info.created} {run}"

    async def _end(self) -> None:
        """Remove the consumer; the server does so by itself after INACTIVE_S."""
        name, self._consumer = self._consumer, None
        if name is not None and self._connection.is_connected:
            with contextlib.suppress(NatsError, TimeoutError):
                await self._js.delete_consumer(self._stream.name, name)

    def _config(self) -> ConsumerConfig:
        policy, start = DeliverPolicy.ALL, None
        if isinstance(self._since, int) or self._last > 0 or self._since == "new":
            policy = DeliverPolicy.BY_START_SEQUENCE
            start = max(self._last + 1, self._since if isinstance(self._since, int) else 1)
        elif self._since == "newest":
            policy = DeliverPolicy.LAST_PER_SUBJECT
        return ConsumerConfig(
            deliver_policy=policy,
            opt_start_seq=start,
            ack_policy=AckPolicy.NONE,
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=INACTIVE_S,
            filter_subjects=self._subjects,
        )

    async def _next(self, queue: asyncio.Queue[Msg], puller: Puller) -> Msg | None:
        """The next message; None when the consumer is gone."""
        while puller.refused == 0:
            try:
                async with asyncio.timeout(1.0):
                    return await queue.get()
            except TimeoutError:
                continue
        return None

    def _decode(self, message: Msg) -> Event[Any] | None:
        prefix = message.subject.rpartition(".")[0] + "."
        delivery = delivery_of(message)
        decoded = decode(
            self._by_prefix[prefix],
            message.subject,
            message.headers or {},
            message.data,
            received_at=delivery.stored_at,
            delivery=delivery,
        )
        if isinstance(decoded, Invalid):
            get_logger().warning("bus.reader_skipped", subject=message.subject, detail=decoded.detail)
            return None
        return decoded
