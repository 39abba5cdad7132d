"""The background loop that carries closings out: plan, write extracts, tell. Killed anywhere, it goes on from the rows.

Roll-up ids, their samples and the bytes of an extract follow from the closing alone, so a step done twice is done once.
"""

import gzip
import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from contracts import registry
from contracts.usage import UsagePeriodClosed, UsageRolledUp, UsageRow
from libs.bus import Tx
from libs.db import Connection
from libs.kit.bell import Bell
from libs.kit.clock import Clock
from libs.kit.ids import new_id
from libs.kit.logs import get_logger
from libs.kit.retry import delay
from libs.objects import AsyncStore, ObjectsError, usage_extract_key
from libs.telemetry.spans import MAX_LINKS, annotate, span
from services.metering import closing
from services.metering.closing import Close, Unwritten
from services.metering.core.periods import month_due
from services.metering.core.rollup import plan
from services.metering.meters import Meters
from services.metering.settings import MeteringSettings

ACTOR = registry.METERING
RETRY_FIRST_S = 1.0
RETRY_CAP_S = 60.0

Transaction = Callable[[], AbstractAsyncContextManager[Tx[Connection]]]


class Closer:
    """Woken by a call, and every `metering_poll_s`."""

    def __init__(
        self, transaction: Transaction, objects: AsyncStore, settings: MeteringSettings, meters: Meters, clock: Clock
    ) -> None:
        """Nothing runs before `run`."""
        self._transaction = transaction
        self._objects = objects
        self._settings = settings
        self._meters = meters
        self._clock = clock
        self._bell = Bell()
        self._tries: dict[str, tuple[int, float]] = {}

    def wake(self) -> None:
        """There may be a closing."""
        self._bell.ring()

    async def run(self) -> None:
        """Work for ever; while the object store is away, closings wait."""
        while True:
            self._bell.quiet()
            await self._close_month()
            async with self._transaction() as tx:
                found = await closing.opened(tx.conn)
            for close in found:
                await self._try(close)
            await self._bell.wait(self._settings.metering_poll_s)

    async def _close_month(self) -> None:
        """Close the past month of every tenant, once its grace is over (MB6)."""
        now = self._clock.now()
        end = month_due(now, self._settings.metering_close_grace_s)
        if end is None:
            return
        while await self._close_one(end, now):
            pass

    async def _close_one(self, end: datetime, now: datetime) -> bool:
        async with self._transaction() as tx:
            if await closing.tenant_due(tx.conn, end) is None:
                return False
            await closing.lock(tx.conn)
            tenant = await closing.tenant_due(tx.conn, end)
            if tenant is not None:
                await closing.open_close(tx.conn, tenant, new_id(), end, now, ACTOR, None)
        return True

    async def _try(self, close: Close) -> None:
        tries, due = self._tries.get(close.close_id, (0, 0.0))
        if self._clock.monotonic() < due:
            return
        try:
            await self.carry_out(close)
        except ObjectsError as error:
            get_logger().warning("usage.close_postponed", close=close.close_id, tenant=close.tenant, error=str(error))
        except Exception as error:  # noqa: BLE001 - one closing that cannot be carried out must not hold up the others
            due = self._clock.monotonic() + delay(tries, RETRY_FIRST_S, RETRY_CAP_S)
            self._tries[close.close_id] = (tries + 1, due)
            get_logger().error("usage.close_failed", close=close.close_id, tenant=close.tenant, exc_info=error)
        else:
            self._tries.pop(close.close_id, None)

    async def carry_out(self, close: Close) -> None:
        """Bring one closing to its end. Raises ObjectsError while the object store is away."""
        async with self._transaction() as tx:
            linked = await closing.traces(tx.conn, close.close_id, MAX_LINKS)
        with span("roll up usage", links=linked, trace=close.trace):
            annotate(tenant=close.tenant)
            if close.state == "open":
                await self._plan(close)
            async with self._transaction() as tx:
                unwritten = await closing.unwritten(tx.conn, close.close_id)
            for rollup in unwritten:
                await self._write(close, rollup)
            await self._tell(close)

    async def _plan(self, close: Close) -> None:
        async with self._transaction() as tx:
            planned = plan(close.close_id, await closing.shares(tx.conn, close.close_id))
            await closing.add_rollups(tx.conn, close, planned)

    async def _write(self, close: Close, rollup: Unwritten) -> None:
        async with self._transaction() as tx:
            rows = await closing.rows_of(tx.conn, rollup.rollup_id)
            entries = await closing.entries_of(tx.conn, rollup.rollup_id)
        lines = extract(rows)
        key = usage_extract_key(close.tenant, rollup.hour, rollup.rollup_id)
        await self._objects.put(key, gzip.compress(lines, mtime=0))
        body = UsageRolledUp(
            rollup_id=rollup.rollup_id,
            close_id=close.close_id,
            tenant=close.tenant,
            hour=rollup.hour,
            number=rollup.number,
            entries=entries,
            samples=len(rows),
            extract=self._objects.uri(key),
            sha256=hashlib.sha256(lines).hexdigest(),
        )
        async with self._transaction() as tx:
            await closing.written(tx.conn, body)

    async def _tell(self, close: Close) -> None:
        async with self._transaction() as tx:
            if not await closing.finish(tx.conn, close.close_id):
                return
            rollups = await closing.bodies(tx.conn, close.close_id)
            for number, body in enumerate(rollups, start=1):
                self._emit(tx, registry.USAGE_ROLLED_UP, body, close, number)
            told = UsagePeriodClosed(
                close_id=close.close_id,
                tenant=close.tenant,
                number=close.number,
                period_start=close.period_start,
                period_end=close.period_end,
                cutoff=close.cutoff,
                rollups=len(rollups),
                samples=close.samples,
            )
            self._emit(tx, registry.USAGE_PERIOD_CLOSED, told, close, len(rollups) + 1)
        self._meters.closed()
        get_logger().info(
            "usage.closed", close=close.close_id, tenant=close.tenant, rollups=len(rollups), samples=close.samples
        )

    def _emit(
        self,
        tx: Tx[Connection],
        message: registry.Message[UsageRolledUp | UsagePeriodClosed],
        body: UsageRolledUp | UsagePeriodClosed,
        close: Close,
        number: int,
    ) -> None:
        tx.emit(message, body, key=close.tenant, subject=close.close_id, sequence=number, actor=close.actor)


def extract(rows: Sequence[UsageRow]) -> bytes:
    """The lines of an extract, one sample each, in the order given."""
    return b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
