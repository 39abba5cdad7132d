"""FastStream subscribers that take messages as they arrive and stop at the gate.

FastStream's own pull loops wait for whole batches, spin on a closed connection and hide a deleted consumer. These
keep its broker, its middleware and its documents, and replace how messages come in.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from faststream.middlewares import BaseMiddleware
from faststream.nats import JStream, PullSub
from faststream.nats.subscriber.config import NatsSubscriberConfig
from faststream.nats.subscriber.usecases import (
    BatchPullStreamSubscriber,
    CoreSubscriber,
    LogicSubscriber,
    PullStreamSubscriber,
)
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from libs.bus.connection import FLUSH_TIMEOUT_S, settle, subscribe
from libs.bus.errors import NotProvisioned
from libs.bus.gate import Gate
from libs.bus.pull import Puller, PullTarget
from libs.kit.logs import get_logger
from libs.kit.tasks import reap

WATCH_S = 2.0
MISSING_TIMES = 2
STALLED_S = 60.0
CALLS_AT_ONCE = 16
PROVISION_WAIT_S = 120.0
GRACEFUL_S = 10.0
PROVISION_POLL_S = 0.25

Process = Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[None]]
"""Brings a raw message (or a list of them) to its outcome; the second argument runs FastStream's handler."""


@dataclass(frozen=True)
class Tap:
    """Where a subscriber takes from, how much at once, and whom it tells when its work has ended badly.

    `template` is the subject with its key as a placeholder, as spans and metrics name it.
    """

    gate: Gate
    subject: str
    process: Process
    template: str
    failed: Callable[[BaseException], None]
    stream: str = ""
    durable: str = ""
    capacity: int = 1
    batch: int = 1
    ack_wait_s: float = 30.0
    inbox: str = ""
    api: str = "$JS.API"
    queue: str = ""
    title: str = ""
    described: bool = True


class Settle(BaseMiddleware[Any, Any]):
    """FastStream's place for what surrounds a handler: decoding, transaction, outcome, ack."""

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: Any) -> Any:
        """Hand the raw message to the subscriber's `process`."""
        subscriber = self.context.get_local("handler_")
        await subscriber.tap.process(msg.raw_message, lambda: call_next(msg))


class _Hands:
    """Tasks that belong to one subscriber."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    async def finish(self, grace_s: float) -> None:
        """Give the tasks `grace_s` to end by themselves."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)

    async def cancel(self) -> None:
        """End them."""
        await reap(list(self._tasks))


class _Pulling:
    """Pulls from one durable while the gate is open, keeps what is held alive at the server, watches the durable."""

    def __init__(self, tap: Tap, subscriber: LogicSubscriber[Any], arrived: Callable[[Msg], None]) -> None:
        self._tap = tap
        self._subscriber = subscriber
        self._arrived = arrived
        self._held: dict[int, Msg] = {}
        self.hands = _Hands(tap.failed)
        self.puller: Puller | None = None
        self._delivered = 0
        self._missing = 0
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._provisioned()
        tap = self._tap
        target = PullTarget(tap.api, tap.stream, tap.durable, tap.inbox)
        self.puller = Puller(self._subscriber.connection, target, tap.capacity, self._take)
        self._loops = [self.hands.start(loop()) for loop in (self._pull, self._keep_alive, self._watch)]

    async def stop_pulling(self) -> None:
        await reap(self._loops)

    async def stop(self) -> None:
        """Finish what is held; hand back at once what cannot be finished in time."""
        await self.hands.finish(GRACEFUL_S)
        unfinished = list(self._held.values())
        await self.hands.cancel()
        for message in unfinished:
            with contextlib.suppress(NatsError):
                await message.nak()

    def done(self, message: Msg) -> None:
        if self._held.pop(id(message), None) is not None and self.puller is not None:
            self.puller.release()

    def _take(self, message: Msg) -> None:
        self._delivered += 1
        self._held[id(message)] = message
        self._arrived(message)

    async def _pull(self) -> None:
        assert self.puller is not None
        gate = self._tap.gate
        while True:
            await gate.wait_open()
            pulling = asyncio.create_task(self.puller.run())
            closing = asyncio.create_task(gate.wait_closed())
            try:
                done, _ = await asyncio.wait([pulling, closing], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await reap([pulling, closing])
            if pulling in done:
                pulling.result()

    async def _keep_alive(self) -> None:
        while True:
            before = set(self._held)
            await asyncio.sleep(self._tap.ack_wait_s / 3)
            for key in before & set(self._held):
                try:
                    await self._held[key].in_progress()
                except (NatsError, KeyError) as error:
                    get_logger().warning("bus.keep_alive_failed", consumer=self._tap.durable, error=repr(error))

    async def _watch(self) -> None:
        """Find out about a durable that was deleted, and about messages that wait but do not come."""
        assert self.puller is not None
        loop = asyncio.get_running_loop()
        delivered, since = -1, loop.time()
        while True:
            await asyncio.sleep(WATCH_S)
            pending = await self._pending()
            if pending == 0 or delivered != self._delivered or self._held or not self._tap.gate.is_open:
                delivered, since = self._delivered, loop.time()
            elif loop.time() - since > STALLED_S:
                get_logger().error("bus.consumer_stalled", consumer=self._tap.durable, pending=pending)
                self.puller.restart()
                since = loop.time()

    async def _pending(self) -> int:
        """Messages waiting at the server; 0 when it cannot be asked now. Raises NotProvisioned."""
        js: JetStreamContext = self._subscriber.jetstream
        try:
            info = await js.consumer_info(self._tap.stream, self._tap.durable)
        except NotFoundError:
            self._missing += 1
            if self._missing < MISSING_TIMES:
                return 0
            msg = (
                f"durable {self._tap.durable} of stream {self._tap.stream} was deleted while in use: "
                "run `farside provision`, then start this service again"
            )
            raise NotProvisioned(msg) from None
        except (NatsError, TimeoutError):
            return 0
        self._missing = 0
        return info.num_pending or 0

    async def _provisioned(self) -> None:
        """Return once the durable is there. Raises NotProvisioned after PROVISION_WAIT_S."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PROVISION_WAIT_S
        told = False
        while loop.time() < deadline:
            try:
                await self._subscriber.jetstream.consumer_info(self._tap.stream, self._tap.durable)
            except (NatsError, TimeoutError) as error:
                if not told:
                    get_logger().warning("bus.not_provisioned", consumer=self._tap.durable, error=repr(error))
                told = True
                await asyncio.sleep(PROVISION_POLL_S)
            else:
                return
        msg = f"durable {self._tap.durable} of stream {self._tap.stream} is not there: run `farside provision`"
        raise NotProvisioned(msg)


class _Straight(LogicSubscriber[Any]):
    """FastStream's way from a message through the middleware to the handler, and nothing else of it.

    Its own enters stacks, scopes and publishers of answers, for which nobody here has a use, and takes a fifth of the
    time of a message.
    """

    async def process_message(self, msg: Any) -> Any:
        """Called for each message, batch or request."""
        untyped: Any = self
        config = untyped._outer_config  # noqa: SLF001 - FastStream's own
        (item,) = untyped.calls
        token = config.context.set_local("handler_", self)
        try:
            call = item.handler.call_wrapped
            for middleware in reversed(config.broker_middlewares):
                call = partial(middleware(msg, context=config.context).consume_scope, call)
            await call(await item.is_suitable(msg, {}))
        finally:
            config.context.reset_local("handler_", token)


class EachSubscriber(_Straight, PullStreamSubscriber):
    """One handler call per message, up to `tap.capacity` at once, those of one aggregate in the order they came."""

    def __init__(self, config: NatsSubscriberConfig, specification: Any, calls: Any, *, tap: Tap) -> None:
        pull_sub = PullSub(batch_size=tap.capacity)
        stream = JStream(tap.stream, declare=False)
        super().__init__(config, specification, calls, queue="", pull_sub=pull_sub, stream=stream)
        self.tap = tap
        self.pulling = _Pulling(tap, self, self._arrived)
        self._lanes: dict[str, asyncio.Task[None]] = {}

    async def _create_subscription(self) -> None:
        await self.pulling.start()

    def _arrived(self, message: Msg) -> None:
        lane = (message.headers or {}).get("ce-subject")
        task = self.pulling.hands.start(self._handle(message, None if lane is None else self._lanes.get(lane)))
        if lane is not None:
            self._lanes[lane] = task
            task.add_done_callback(lambda done: self._leave(lane, done))

    def _leave(self, lane: str, done: asyncio.Task[None]) -> None:
        if self._lanes.get(lane) is done:
            del self._lanes[lane]

    async def _handle(self, message: Msg, before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            await self.consume(message)
        finally:
            self.pulling.done(message)

    async def stop(self) -> None:
        """Stop pulling, then finish what is held."""
        await self.pulling.stop_pulling()
        await self.pulling.stop()
        await super().stop()


class BatchSubscriber(_Straight, BatchPullStreamSubscriber):
    """One handler call for all messages at hand, up to `tap.batch`; never waits for a batch to fill."""

    def __init__(self, config: NatsSubscriberConfig, specification: Any, calls: Any, *, tap: Tap) -> None:
        pull_sub = PullSub(batch_size=tap.batch, batch=True)
        super().__init__(config, specification, calls, stream=JStream(tap.stream, declare=False), pull_sub=pull_sub)
        self.tap = tap
        self.pulling = _Pulling(tap, self, self._arrived)
        self._buffer: list[Msg] = []
        self._filled = asyncio.Event()
        self._closing = False

    async def _create_subscription(self) -> None:
        self.pulling.hands.start(self._batches())
        await self.pulling.start()

    def _arrived(self, message: Msg) -> None:
        self._buffer.append(message)
        self._filled.set()

    async def _batches(self) -> None:
        while self._buffer or not self._closing:
            await self._filled.wait()
            batch, self._buffer = self._buffer[: self.tap.batch], self._buffer[self.tap.batch :]
            if not self._buffer and not self._closing:
                self._filled.clear()
            try:
                if batch:
                    await self.consume(batch)
            finally:
                for message in batch:
                    self.pulling.done(message)

    async def stop(self) -> None:
        """Stop pulling, then finish what is held."""
        await self.pulling.stop_pulling()
        self._closing = True
        self._filled.set()
        await self.pulling.stop()
        await super().stop()


class CallSubscriber(_Straight, CoreSubscriber):
    """Serves requests while the gate is open, up to CALLS_AT_ONCE at once, one replica of the service each."""

    def __init__(self, config: NatsSubscriberConfig, specification: Any, calls: Any, *, tap: Tap) -> None:
        super().__init__(config, specification, calls, queue=tap.queue)
        self.tap = tap
        self._hands = _Hands(tap.failed)
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._serving: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()

    async def _create_subscription(self) -> None:
        self.running = True  # FastStream says so only afterwards, and drops what comes before
        self._serving = self._hands.start(self._serve())
        if self.tap.gate.is_open:
            await self._subscribed.wait()

    async def _serve(self) -> None:
        gate = self.tap.gate
        while True:
            await gate.wait_open()
            subscription = await subscribe(self.connection, self.tap.subject, self._arrived, self.tap.queue)
            with contextlib.suppress(NatsError, TimeoutError):
                await settle(self.connection, FLUSH_TIMEOUT_S)
            self._subscribed.set()
            try:
                await gate.wait_closed()
            finally:
                with contextlib.suppress(NatsError, TimeoutError):
                    await subscription.drain()

    async def _arrived(self, message: Msg) -> None:
        await self._slots.acquire()
        self._hands.start(self._handle(message))

    async def _handle(self, message: Msg) -> None:
        try:
            await self.consume(message)
        finally:
            self._slots.release()

    async def stop(self) -> None:
        """Take no more requests, then answer those that are here."""
        if self._serving is not None:
            await reap([self._serving])
        await self._hands.finish(GRACEFUL_S)
        await self._hands.cancel()
        await super().stop()
