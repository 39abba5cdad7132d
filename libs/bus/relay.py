"""The relay: publishes the outbox, and nothing else of a service publishes.

Woken by commits in this process, polling every 100 ms besides. Pipelined across aggregates, one message in flight per
aggregate, so that the order within an aggregate is kept: rows read become one chain for each aggregate, MAX_IN_FLIGHT
workers take a chain each, and an aggregate is read again once all that went out of it is marked. A row is marked after
its PubAck; what timed out is published again under the same Nats-Msg-Id. Failures of the transport never count; what
the server refuses for good is parked.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.js.errors import BadRequestError

from libs.bus import tracing
from libs.bus.connection import Connection
from libs.bus.gate import Health
from libs.bus.ledger import Ledger
from libs.bus.outbox import OutboxRow
from libs.bus.publisher import LostError, Publisher
from libs.kit.logs import get_logger
from libs.kit.retry import delay, delays
from libs.kit.tasks import reap

POLL_S = 0.1
BATCH_ROWS = 512
MAX_IN_FLIGHT = 256
PUBLISH_TIMEOUT_S = 5.0
RETRY_FIRST_S = 0.1
RETRY_CAP_S = 2.0


@dataclass(frozen=True)
class _Pause:
    """After `failures` of the transport in a row, an aggregate rests until `until` (loop time)."""

    failures: int
    until: float


class Marker:
    """Marks rows as published, many in one statement: whatever comes while one runs goes with the next.

    `settled` is told of the aggregates that were left since, when all that was published of them is marked.
    """

    def __init__(self, ledger: Ledger[Any], health: Health, settled: Callable[[list[str]], None]) -> None:
        self._ledger = ledger
        self._health = health
        self._settled = settled
        self._numbers: list[int] = []
        self._left: list[str] = []
        self._task: asyncio.Task[None] | None = None

    def mark(self, number: int) -> None:
        """Have a row marked soon, however long the store is away."""
        self._numbers.append(number)
        self._start()

    def leave(self, aggregate: str) -> None:
        """Nothing more of `aggregate` is published for now."""
        self._left.append(aggregate)
        self._start()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._numbers or self._left:
            numbers, self._numbers = self._numbers, []
            left, self._left = self._left, []
            if numbers:
                await self._store(numbers)
            self._settled(left)

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

    async def stop(self) -> None:
        """Give up; unmarked rows will be published again under their old ids."""
        if self._task is not None:
            await reap([self._task])


class Relay:
    """Runs while this process is the one of its service that publishes."""

    def __init__(
        self, ledger: Ledger[Any], connection: Connection, publisher: Publisher, health: Health, *, service: str
    ) -> None:
        self._ledger = ledger
        self._connection = connection
        self._publisher = publisher
        self._health = health
        self._service = service
        self._marker = Marker(ledger, health, self._settled)
        self._woken = asyncio.Event()
        self._chains: asyncio.Queue[list[OutboxRow]] = asyncio.Queue()
        self._busy: set[str] = set()
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
        self._publisher.reconnected()
        self.wake()

    async def run(self) -> None:
        """Publish until cancelled; when the store or the bus is away, wait for it."""
        self._chains, self._busy = asyncio.Queue(), set()
        self._marker = Marker(self._ledger, self._health, self._settled)
        workers = [asyncio.create_task(self._work()) for _ in range(MAX_IN_FLIGHT)]
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._woken.wait()
                self._woken.clear()
                if self._connection.is_connected and self._chains.qsize() < MAX_IN_FLIGHT:
                    await self._round()
        finally:
            await reap(workers)
            await self._marker.stop()

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
        """Read rows and hand them to the workers."""
        now = asyncio.get_running_loop().time()
        resting = [aggregate for aggregate, pause in self._pauses.items() if pause.until > now]
        try:
            rows = await self._ledger.waiting(BATCH_ROWS, [*self._busy, *resting])
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
        self._busy.update(by_aggregate)
        for chain in by_aggregate.values():
            self._chains.put_nowait(chain)

    def _settled(self, aggregates: list[str]) -> None:
        """What was committed of these meanwhile, and more where there is more, can be read now."""
        self._busy.difference_update(aggregates)
        self.wake()

    async def _work(self) -> None:
        """Publish one chain after another; stop each at the first row that must wait."""
        while True:
            chain = await self._chains.get()
            for row in chain:
                if not await self._publish(row):
                    break
            self._marker.leave(chain[0].aggregate)

    async def _publish(self, row: OutboxRow) -> bool:
        """Publish one row; False when it must be tried again later."""
        assert row.number is not None, "rows to publish come from the ledger"
        try:
            await self._send(row)
        except (BadRequestError, MaxPayloadError) as error:
            get_logger().error("relay.parked", app=self._service, subject=row.subject, id=row.id, reason=str(error))
            return await self._park(row, row.number, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the row waits
            self._rest(row, error)
            return False
        self._pauses.pop(row.aggregate, None)
        self._marker.mark(row.number)
        return True

    async def _park(self, row: OutboxRow, number: int, reason: str) -> bool:
        try:
            await self._ledger.park(number, reason)
        except Exception as error:  # noqa: BLE001 - it is refused, and parked, the next time
            self._rest(row, error)
            return False
        return True

    async def _send(self, row: OutboxRow) -> None:
        with tracing.publishing(row) as headers:
            ack = await self._publisher.publish(
                row.subject, row.data, headers, stream=row.stream, timeout_s=PUBLISH_TIMEOUT_S
            )
            tracing.stored(ack.seq, duplicate=bool(ack.duplicate))

    def _rest(self, row: OutboxRow, error: Exception) -> None:
        if isinstance(error, LostError):
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
