"""The relay: publishes the outbox, and nothing else of a service publishes.

Woken by commits in this process, polling every 100 ms besides. Pipelined across aggregates, one message in flight per
aggregate, so that the order within an aggregate is kept. A row is marked after its PubAck; what timed out is published
again under the same Nats-Msg-Id. Failures of the transport never count; what the server refuses for good is parked.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError

from libs.bus import tracing
from libs.bus.connection import Connection
from libs.bus.gate import Health
from libs.bus.ledger import Ledger
from libs.bus.outbox import OutboxRow
from libs.kit.logs import get_logger
from libs.kit.retry import delay, delays
from libs.kit.tasks import reap

POLL_S = 0.1
BATCH_ROWS = 512
MAX_IN_FLIGHT = 128
MAX_AGGREGATES = 2048
PUBLISH_TIMEOUT_S = 5.0
RETRY_FIRST_S = 0.1
RETRY_CAP_S = 2.0


@dataclass(frozen=True)
class _Pause:
    """After `failures` of the transport in a row, an aggregate rests until `until` (loop time)."""

    failures: int
    until: float


class Marker:
    """Marks rows as published, many in one statement: whoever comes while one runs goes with the next."""

    def __init__(self, ledger: Ledger[Any], health: Health) -> None:
        self._ledger = ledger
        self._health = health
        self._numbers: list[int] = []
        self._next: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def mark(self, number: int) -> None:
        """Return once the row is marked, however long the store is away."""
        self._numbers.append(number)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        future = self._next
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        await asyncio.shield(future)

    async def _run(self) -> None:
        while self._next is not None:
            numbers, self._numbers = self._numbers, []
            future, self._next = self._next, None
            await self._store(numbers)
            future.set_result(None)

    async def _store(self, numbers: list[int]) -> None:
        for delay_s in delays(RETRY_FIRST_S, RETRY_CAP_S):
            try:
                await self._ledger.mark_published(numbers)
            except Exception as error:  # noqa: BLE001 - marking must happen; until then the rows count as in flight
                await self._health.alive()
                get_logger().warning("relay.mark_failed", rows=len(numbers), error=repr(error), retry_s=delay_s)
                await asyncio.sleep(delay_s)
            else:
                return

    def stop(self) -> None:
        """Give up; unmarked rows will be published again under their old ids."""
        if self._task is not None:
            self._task.cancel()


class Relay:
    """Runs while this process is the one of its service that publishes."""

    def __init__(
        self, ledger: Ledger[Any], connection: Connection, js: JetStreamContext, health: Health, *, service: str
    ) -> None:
        self._ledger = ledger
        self._connection = connection
        self._js = js
        self._health = health
        self._service = service
        self._marker = Marker(ledger, health)
        self._woken = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._chains: dict[str, asyncio.Task[None]] = {}
        self._publishes: set[asyncio.Task[Any]] = set()
        self._pauses: dict[str, _Pause] = {}
        self._failures = 0

    @property
    def paused(self) -> frozenset[str]:
        """Aggregates that rest after a failure."""
        return frozenset(self._pauses)

    def wake(self) -> None:
        """Say that there may be rows to publish."""
        self._woken.set()

    def reconnected(self) -> None:
        """Acks of what is in flight will not come any more: publish it again now."""
        self._pauses.clear()
        for publish in self._publishes:
            publish.cancel()
        self.wake()

    async def run(self) -> None:
        """Publish until cancelled; when the store or the bus is away, wait for it."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._woken.wait()
                self._woken.clear()
                if self._connection.is_connected and len(self._chains) < MAX_AGGREGATES:
                    await self._round()
        finally:
            await reap(list(self._chains.values()))
            self._marker.stop()

    async def drain(self, timeout_s: float) -> None:
        """Wait, at most `timeout_s`, until the outbox is published; what is left goes out after the next start."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._connection.is_connected and await self._unpublished():
                    self.wake()
                    await asyncio.sleep(POLL_S)

    async def _unpublished(self) -> bool:
        try:
            return (await self._ledger.counts()).waiting > 0
        except Exception as error:  # noqa: BLE001 - the process is ending; the rows are safe
            get_logger().warning("relay.drain_failed", app=self._service, error=repr(error))
            return False

    async def _round(self) -> None:
        now = asyncio.get_running_loop().time()
        resting = [aggregate for aggregate, pause in self._pauses.items() if pause.until > now]
        try:
            rows = await self._ledger.waiting(BATCH_ROWS, [*self._chains, *resting])
        except Exception as error:  # noqa: BLE001 - judged
            self._failures += 1
            await self._health.judge(error, self._ledger.is_transient(error), self._failures)
            get_logger().warning("relay.read_failed", app=self._service, error=repr(error))
            await asyncio.sleep(RETRY_FIRST_S)
            return
        self._failures = 0
        by_aggregate: dict[str, list[OutboxRow]] = {}
        for row in rows:
            by_aggregate.setdefault(row.aggregate, []).append(row)
        for aggregate, chain in by_aggregate.items():
            self._chains[aggregate] = asyncio.create_task(self._publish_chain(aggregate, chain))
        if len(rows) == BATCH_ROWS:
            self.wake()

    async def _publish_chain(self, aggregate: str, rows: Sequence[OutboxRow]) -> None:
        """Publish the rows of one aggregate in their order; stop at the first that must wait."""
        try:
            for row in rows:
                async with self._slots:
                    published = await self._publish(row)
                if not published:
                    break
        finally:
            del self._chains[aggregate]
            self.wake()

    async def _publish(self, row: OutboxRow) -> bool:
        """Publish and mark one row; False when it must be tried again later."""
        assert row.number is not None, "rows to publish come from the ledger"
        publish = asyncio.create_task(self._send(row))
        self._publishes.add(publish)
        publish.add_done_callback(self._publishes.discard)
        try:
            await asyncio.wait([publish])
        finally:
            publish.cancel()
        error = asyncio.CancelledError("reconnected") if publish.cancelled() else publish.exception()
        match error:
            case None:
                self._pauses.pop(row.aggregate, None)
                await self._marker.mark(row.number)
                return True
            case BadRequestError() | MaxPayloadError():
                get_logger().error("relay.parked", app=self._service, subject=row.subject, id=row.id, reason=str(error))
                await self._ledger.park(row.number, str(error))
                return True
            case _:
                self._rest(row, error)
                return False

    async def _send(self, row: OutboxRow) -> None:
        with tracing.publishing(row) as headers:
            ack = await self._js.publish(
                row.subject, row.data, timeout=PUBLISH_TIMEOUT_S, stream=row.stream, headers=dict(headers)
            )
            tracing.stored(ack.seq, duplicate=bool(ack.duplicate))

    def _rest(self, row: OutboxRow, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            return
        previous = self._pauses.get(row.aggregate)
        failures = 1 if previous is None else previous.failures + 1
        pause_s = delay(failures - 1, RETRY_FIRST_S, RETRY_CAP_S)
        self._pauses[row.aggregate] = _Pause(failures, asyncio.get_running_loop().time() + pause_s)
        get_logger().warning(
            "relay.publish_failed",
            app=self._service,
            subject=row.subject,
            id=row.id,
            failures=failures,
            error=repr(error),
            unexpected=not isinstance(error, NatsError | OSError | TimeoutError),
        )
