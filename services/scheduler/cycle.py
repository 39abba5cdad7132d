"""The cycle: changed rows -> arrays -> plan -> transactions of some placements or preemptions each.

Apart from ingest: handlers only write rows. What was planned is checked again against the versions of its job and nodes
and against what is allocated; what has become stale is dropped alone, and the next cycle sees why. One plan's commits
hold up the next for a bounded number of transactions: the rest is planned again, with whoever has come meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from libs.db import ConstraintError
from libs.kit.logs import get_logger
from services.scheduler import store
from services.scheduler.commits import ACTOR, commit_placements, commit_preemptions, commit_stays
from services.scheduler.core.arrays import Placement, Preemption, Stay
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import Tick
from services.scheduler.desk import Desk
from services.scheduler.effects import carry_out
from services.scheduler.memory.rows import JobRow
from services.scheduler.tenants import TenantFileError, check

MAX_DUE = 1000
MEMBERS_PER_TRANSACTION = 32
TRANSACTIONS_PER_PLAN = 32
MAX_TOLD = 1024
MAX_FIGURES = 256
COMMITS_AT_ONCE = 2
HOUSEKEEPING_S = 600.0
FILES_S = 1.0
REPLAN_S = 10.0

T = TypeVar("T")


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
        await self._some_at_once(self._place_some, _groups(plan.placements, lambda one: len(one.seats)))
        await self._some_at_once(self._stop_some, _groups(plan.preemptions))
        self._untold = self._news(plan.stays)

    async def _some_at_once(self, commit: Callable[[list[T]], Awaitable[None]], planned: Iterable[list[T]]) -> None:
        """Commit the first groups of what was planned, some at once: one is made while others wait for the disk."""
        slots = asyncio.Semaphore(COMMITS_AT_ONCE)

        async def one(group: list[T]) -> None:
            async with slots:
                await commit(group)

        groups = list(planned)
        self._again = self._again or len(groups) > TRANSACTIONS_PER_PLAN
        for ended in await asyncio.gather(*map(one, groups[:TRANSACTIONS_PER_PLAN]), return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _place_some(self, placements: Sequence[Placement]) -> None:
        """Place some jobs; what is no longer as planned is dropped, and nothing else."""
        desk = self._desk
        try:
            async with desk.transaction() as tx:
                stale = await commit_placements(tx, placements, desk.clock.now(), desk.limits)
        except ConstraintError as error:
            if len(placements) > 1:
                for alone in placements:
                    await self._place_some([alone])
                return
            stale = {placements[0].job_id: str(error)}
        self._drop("placement.stale", stale)

    async def _stop_some(self, preemptions: Sequence[Preemption]) -> None:
        """Preempt some attempts, unless they are others by now."""
        desk, jobs = self._desk, self._desk.snapshot.attempts.jobs
        seen = [(one, _number(jobs.get(one.job_id))) for one in preemptions]
        async with desk.transaction() as tx:
            stale = await commit_preemptions(tx, seen, desk.clock.now(), desk.limits)
        self._drop("preemption.stale", stale)

    def _drop(self, event: str, stale: Mapping[str, str]) -> None:
        for job_id, reason in stale.items():
            self._again = True
            get_logger().info(event, job=job_id, reason=reason)

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
            async with self._desk.transaction() as tx:
                await commit_stays(tx, group, self._desk.clock.now(), self._desk.limits)

    async def _keep_house(self) -> None:
        desk = self._desk
        if desk.clock.monotonic() - self._housekept < HOUSEKEEPING_S:
            return
        self._housekept = desk.clock.monotonic()
        async with desk.transaction() as tx:
            await store.expire_intents(tx.conn, desk.clock.now())
            await store.sum_ended(tx.conn)


def _groups(items: Iterable[T], members: Callable[[T], int] = lambda _: 1) -> Iterator[list[T]]:
    """What goes into one transaction each; a gang with more members than that goes alone."""
    group, count = list[T](), 0
    for item in items:
        if group and count + members(item) > MEMBERS_PER_TRANSACTION:
            yield group
            group, count = [], 0
        group.append(item)
        count += members(item)
    if group:
        yield group


def _number(row: JobRow | None) -> int:
    """The live attempt that the plan saw; 0: none."""
    return 0 if row is None or row.live is None else row.live.number
