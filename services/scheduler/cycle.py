"""The cycle: changed rows -> arrays -> plan -> one transaction for each placement and each preemption.

Apart from ingest: handlers only write rows. What was planned is checked again against the versions of its job and nodes
and against what is allocated; what has become stale is dropped alone, and the next cycle sees why.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from libs.bus import Tx
from libs.db import Connection
from libs.kit.logs import get_logger
from services.scheduler import allotments, store
from services.scheduler.core.arrays import Placement, Preemption, PreemptWhy, Stay
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import Limits, Place, Preempt, Tick, Wait
from services.scheduler.desk import Desk
from services.scheduler.effects import CardTakenError, carry_out
from services.scheduler.tenants import TenantFileError, check

ACTOR = "scheduler"
MAX_DUE = 1000
STAYS_PER_TRANSACTION = 64
MAX_TOLD = 1024
MAX_FIGURES = 256
COMMITS_AT_ONCE = 6
HOUSEKEEPING_S = 600.0
FILES_S = 1.0
REPLAN_S = 10.0

T = TypeVar("T")


class StaleError(Exception):
    """What was planned no longer fits what it was planned for."""


class Cycle:
    """Runs for as long as this process leads."""

    def __init__(self, desk: Desk, *, cycle_s: float) -> None:
        self._desk = desk
        self._cycle_s = cycle_s
        self._next_turn: datetime | None = None
        self._again = False
        self._untold: list[Stay] = []
        self._files_read = float("-inf")
        self._housekept = float("-inf")

    async def run(self) -> None:
        """Look for changes every `cycle_s`, for ever. An error ends the memory of the cycle, not its work."""
        while True:
            await self.once()
            await asyncio.sleep(self._cycle_s)

    async def once(self) -> None:
        """One round: deadlines, changes, plan, commits."""
        desk = self._desk
        try:
            now = desk.clock.now()
            async with desk.transaction() as tx:
                due = await store.due_jobs(tx.conn, now, MAX_DUE)
            for job_id in due:
                await self._ring(job_id)
            async with desk.transaction() as tx:
                await desk.look(tx.conn)
            changed = await self._files_changed()
            if changed or desk.moved or self._again or (self._next_turn is not None and self._next_turn <= now):
                await self._place()
            await self._tell_some()
            await self._keep_house()
        except BaseException:
            desk.clear()
            self._untold = []
            raise

    async def _ring(self, job_id: str) -> None:
        """Let a job look at its deadlines."""
        desk = self._desk
        async with desk.transaction() as tx:
            stored = await store.load_job(tx.conn, job_id)
            if stored is not None:
                decision = decide(stored.job, Tick(), desk.clock.now(), desk.limits)
                await carry_out(tx, stored, decision, actor=ACTOR, limits=desk.limits, step="end wait")

    async def _files_changed(self) -> bool:
        desk = self._desk
        if desk.clock.monotonic() - self._files_read < FILES_S:
            return False
        self._files_read = desk.clock.monotonic()
        tenants, policy = await asyncio.to_thread(desk.book.refresh), await asyncio.to_thread(desk.policies.refresh)
        if tenants or policy:
            desk.snapshot.rules_changed(desk.clock.now())
            try:
                check(desk.book, desk.policies)
            except TenantFileError as error:
                get_logger().error("tenants.unmatched", error=str(error))
        return tenants or policy

    async def _place(self) -> None:
        desk, now = self._desk, self._desk.clock.now()
        plan = await desk.plan()
        self._again = False
        self._next_turn = desk.snapshot.next_turn(desk.policies.rules, now)
        if plan.stays or plan.preemptions:
            soon = now + timedelta(seconds=REPLAN_S)
            self._next_turn = min(self._next_turn or soon, soon)
        await self._some_at_once(self._commit, plan.placements)
        await self._some_at_once(self._stop, plan.preemptions)
        self._untold = self._news(plan.stays)

    async def _some_at_once(self, commit: Callable[[T], Awaitable[None]], planned: Sequence[T]) -> None:
        """Commit what was planned, some at once: each waits for the disk, rows of nodes keep apart who shares one."""
        slots = asyncio.Semaphore(COMMITS_AT_ONCE)

        async def one(item: T) -> None:
            async with slots:
                await commit(item)

        for ended in await asyncio.gather(*map(one, planned), return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _commit(self, placement: Placement) -> None:
        """Place one job, or drop the placement when job, nodes or cards are no longer as planned."""
        desk = self._desk
        try:
            async with desk.transaction() as tx:
                await commit_placement(tx, placement, desk.clock.now(), desk.limits)
        except (StaleError, CardTakenError) as error:
            self._again = True
            get_logger().info("placement.stale", job=placement.job_id, reason=str(error))

    async def _stop(self, preemption: Preemption) -> None:
        """Preempt one attempt, unless it is another one by now."""
        desk = self._desk
        row = desk.snapshot.attempts.jobs.get(preemption.job_id)
        number = 0 if row is None or row.live is None else row.live.number
        try:
            async with desk.transaction() as tx:
                await commit_preemption(tx, preemption, number, desk.clock.now(), desk.limits)
        except StaleError as error:
            self._again = True
            get_logger().info("preemption.stale", job=preemption.job_id, reason=str(error))

    def _news(self, stays: Sequence[Stay]) -> list[Stay]:
        """Reasons that are not known yet: new ones, and the figures of some known ones."""
        fresh, figures = list[Stay](), list[Stay]()
        for stay in stays:
            row = self._desk.snapshot.job(stay.job_id)
            known = None if row is None else row.reason
            if known is None or (known.code, known.resource) != (stay.reason.code, stay.reason.resource):
                fresh.append(stay)
            elif known != stay.reason:
                figures.append(stay)
        return sorted([*fresh, *figures[:MAX_FIGURES]], key=lambda stay: stay.job_id)

    async def _tell_some(self) -> None:
        """Keep some of the reasons; those of a long queue take several rounds, and no plan waits for all of them."""
        now, self._untold = self._untold[:MAX_TOLD], self._untold[MAX_TOLD:]
        for group in _groups(now):
            await self._tell(group)

    async def _tell(self, stays: list[Stay]) -> None:
        """Keep the reasons of jobs that stay; those whose reason is another one make a transition."""
        desk = self._desk
        async with desk.transaction() as tx:
            for stay in stays:
                stored = await store.load_job(tx.conn, stay.job_id)
                if stored is None or stored.job.version != stay.version:
                    continue
                decision = decide(stored.job, Wait(stay.reason), desk.clock.now(), desk.limits)
                await carry_out(tx, stored, decision, actor=ACTOR, limits=desk.limits, step="keep waiting")

    async def _keep_house(self) -> None:
        desk = self._desk
        if desk.clock.monotonic() - self._housekept < HOUSEKEEPING_S:
            return
        self._housekept = desk.clock.monotonic()
        async with desk.transaction() as tx:
            await store.expire_intents(tx.conn, desk.clock.now())


async def commit_placement(tx: Tx[Connection], placement: Placement, now: datetime, limits: Limits) -> None:
    """Check a placement against the rows as they are and carry it out. Raises StaleError, CardTakenError."""
    for node, version in placement.node_versions:
        head = await allotments.lock_node(tx.conn, node)
        if head is None or head.version != version or not head.ready:
            msg = f"node {node} has changed since version {version}"
            raise StaleError(msg)
    stored = await store.load_job(tx.conn, placement.job_id)
    if stored is None or stored.job.version != placement.version or not stored.job.placeable:
        msg = f"job {placement.job_id} has changed since version {placement.version}"
        raise StaleError(msg)
    decision = decide(stored.job, Place(placement.seats), now, limits)
    await carry_out(tx, stored, decision, actor=ACTOR, limits=limits, step="place job")
    for node, _ in placement.node_versions:
        short = await allotments.overcommitted(tx.conn, node, limits.node_slots, stored.job.spec.resources)
        if short is not None:
            msg = f"node {node} has no {short} left for job {placement.job_id}"
            raise StaleError(msg)


async def commit_preemption(
    tx: Tx[Connection], preemption: Preemption, attempt: int, now: datetime, limits: Limits
) -> None:
    """Stop the attempt with that number, with its grace. Raises StaleError when it is over, or stops already."""
    stored = await store.load_job(tx.conn, preemption.job_id)
    live = None if stored is None else stored.job.attempt
    if stored is None or live is None or live.number != attempt or live.stop is not None:
        msg = f"attempt {attempt} of job {preemption.job_id} is over or being stopped"
        raise StaleError(msg)
    first = preemption.why is PreemptWhy.CONSOLIDATION
    asked = Preempt(preemption.reason, preemption.for_job, first)
    await carry_out(tx, stored, decide(stored.job, asked, now, limits), actor=ACTOR, limits=limits, step="preempt")


def _groups(stays: list[Stay]) -> Iterator[list[Stay]]:
    for begin in range(0, len(stays), STAYS_PER_TRANSACTION):
        yield stays[begin : begin + STAYS_PER_TRANSACTION]
