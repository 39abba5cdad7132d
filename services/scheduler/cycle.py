"""The cycle: changed rows -> arrays -> plan -> one transaction for each placement.

Apart from ingest: handlers only write rows. A placement is checked again against the versions of its job and nodes and
against what is allocated; one that has become stale is dropped alone, and the next cycle sees why.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from contracts.nodes import NodePhase
from libs.bus import Tx
from libs.db import Connection
from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from services.scheduler import allotments, store
from services.scheduler.core.admission import host_memory_bytes
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import Limits, Place, Tick, Wait
from services.scheduler.core.placement import Placement, Stay, plan
from services.scheduler.effects import CardTakenError, carry_out
from services.scheduler.snapshot import Snapshot
from services.scheduler.tenants import TenantBook

ACTOR = "scheduler"
MAX_DUE = 1000
STAYS_PER_TRANSACTION = 64
PLACEMENTS_AT_ONCE = 6
HOUSEKEEPING_S = 600.0
TENANTS_S = 1.0

Transaction = Callable[[], AbstractAsyncContextManager[Tx[Connection]]]


class StaleError(Exception):
    """A placement no longer fits what it was planned for."""


class Cycle:
    """Runs for as long as this process leads."""

    def __init__(
        self, transaction: Transaction, book: TenantBook, limits: Limits, clock: Clock, *, cycle_s: float
    ) -> None:
        self._transaction = transaction
        self._book = book
        self._limits = limits
        self._clock = clock
        self._cycle_s = cycle_s
        self._snapshot = Snapshot()
        self._rest_ends: datetime | None = None
        self._again = False
        self._tenants_read = float("-inf")
        self._housekept = float("-inf")

    async def run(self) -> None:
        """Look for changes every `cycle_s`, for ever. An error ends the memory of the cycle, not its work."""
        while True:
            await self.once()
            await asyncio.sleep(self._cycle_s)

    async def once(self) -> None:
        """One round: deadlines, changes, plan, commits."""
        try:
            now = self._clock.now()
            async with self._transaction() as tx:
                due = await store.due_jobs(tx.conn, now, MAX_DUE)
                changed = await self._snapshot.refresh(tx.conn)
            for job_id in due:
                await self._ring(job_id)
            changed = await self._tenants_changed() or changed or self._again
            if changed or (self._rest_ends is not None and self._rest_ends <= now):
                await self._place()
            await self._keep_house()
        except BaseException:
            self._snapshot = Snapshot()
            raise

    async def _ring(self, job_id: str) -> None:
        """Let a job look at its deadlines."""
        async with self._transaction() as tx:
            stored = await store.load_job(tx.conn, job_id)
            if stored is not None:
                decision = decide(stored.job, Tick(), self._clock.now(), self._limits)
                await carry_out(tx, stored, decision, actor=ACTOR, limits=self._limits, step="end wait")

    async def _tenants_changed(self) -> bool:
        if self._clock.monotonic() - self._tenants_read < TENANTS_S:
            return False
        self._tenants_read = self._clock.monotonic()
        return await asyncio.to_thread(self._book.refresh)

    async def _place(self) -> None:
        now = self._clock.now()
        snapshot = self._snapshot
        self._rest_ends = snapshot.next_rest_end(now)
        self._again = False
        ids = snapshot.waiting(now)
        if not ids:
            return
        fleet, tenants = snapshot.fleet(self._limits.node_slots), snapshot.tenants(self._book.tenants)
        decided = plan(fleet, snapshot.queue(ids, tenants, fleet.models), tenants)
        await self._commit_all(decided.placements)
        news = [stay for stay in decided.stays if stay.reason != snapshot.jobs[stay.job_id].reason]
        for group in _groups(sorted(news, key=lambda stay: stay.job_id)):
            await self._tell(group)

    async def _commit_all(self, placements: Sequence[Placement]) -> None:
        """Place a plan's jobs, some at once: each waits for the disk, and rows of nodes keep apart who shares one."""
        slots = asyncio.Semaphore(PLACEMENTS_AT_ONCE)

        async def commit(placement: Placement) -> None:
            async with slots:
                await self._commit(placement)

        for ended in await asyncio.gather(*map(commit, placements), return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _commit(self, placement: Placement) -> None:
        """Place one job, or drop the placement when job, nodes or cards are no longer as planned."""
        try:
            async with self._transaction() as tx:
                await commit_placement(tx, placement, self._clock.now(), self._limits)
        except (StaleError, CardTakenError) as error:
            self._again = True
            get_logger().info("placement.stale", job=placement.job_id, reason=str(error))

    async def _tell(self, stays: list[Stay]) -> None:
        """Keep the reasons of jobs that stay; those whose reason is another one make a transition."""
        async with self._transaction() as tx:
            for stay in stays:
                stored = await store.load_job(tx.conn, stay.job_id)
                if stored is None or stored.job.version != stay.version:
                    continue
                decision = decide(stored.job, Wait(stay.reason), self._clock.now(), self._limits)
                await carry_out(tx, stored, decision, actor=ACTOR, limits=self._limits, step="keep waiting")

    async def _keep_house(self) -> None:
        if self._clock.monotonic() - self._housekept < HOUSEKEEPING_S:
            return
        self._housekept = self._clock.monotonic()
        async with self._transaction() as tx:
            await store.expire_intents(tx.conn, self._clock.now())


async def commit_placement(tx: Tx[Connection], placement: Placement, now: datetime, limits: Limits) -> None:
    """Check a placement against the rows as they are and carry it out. Raises StaleError, CardTakenError."""
    for node, version in placement.node_versions:
        row = await allotments.lock_node(tx.conn, node)
        if row is None or row.version != version or row.state != NodePhase.READY:
            msg = f"node {node} has changed since version {version}"
            raise StaleError(msg)
    stored = await store.load_job(tx.conn, placement.job_id)
    if stored is None or stored.job.version != placement.version or not stored.job.placeable:
        msg = f"job {placement.job_id} has changed since version {placement.version}"
        raise StaleError(msg)
    decision = decide(stored.job, Place(placement.seats), now, limits)
    await carry_out(tx, stored, decision, actor=ACTOR, limits=limits, step="place job")
    asked = stored.job.spec.resources
    host = asked.cpu_milli > 0 or host_memory_bytes(asked) > 0
    for node, _ in placement.node_versions:
        if await allotments.overcommitted(tx.conn, node, limits.node_slots, host=host):
            msg = f"node {node} has no slots, processors or memory left for job {placement.job_id}"
            raise StaleError(msg)


def _groups(stays: list[Stay]) -> Iterator[list[Stay]]:
    for begin in range(0, len(stays), STAYS_PER_TRANSACTION):
        yield stays[begin : begin + STAYS_PER_TRANSACTION]
