"""What the cycle and those who answer share: the memory, the rules in force, and one plan at a time.

A plan is made in a thread of its own from arrays that nobody changes meanwhile; the loop goes on serving. What was
decided last stays on the board, for whoever asks why.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime

from libs.bus import Tx
from libs.db import Connection
from libs.kit.clock import Clock
from services.scheduler.core.arrays import Plan, Reservation, Stay
from services.scheduler.core.decide import decide
from services.scheduler.core.fairness import shares_milli
from services.scheduler.core.forecast import earliest
from services.scheduler.core.model import Limits
from services.scheduler.core.packing import Memo
from services.scheduler.memory.rows import JobRow, micros, moment
from services.scheduler.policies import PolicyBook
from services.scheduler.snapshot import Scenery, Snapshot
from services.scheduler.tenants import TenantBook

Transaction = Callable[[], AbstractAsyncContextManager[Tx[Connection]]]


MAX_ASKING = 4


class BusyError(Exception):
    """So many ask what would be that what is must wait."""


@dataclass(frozen=True)
class Board:
    """A plan as others may read it: who stays, by job and in the order of turns, and what is kept for whom.

    `shares_milli` is what each tenant used of late and holds, by its weight, in thousandths of what all did.
    """

    as_of: datetime
    plan: Plan
    stays: dict[str, Stay]
    positions: dict[str, int]
    reservations: dict[str, Reservation]
    shares_milli: dict[str, int]

    @classmethod
    def of(cls, plan: Plan, as_of: datetime, shares_milli: dict[str, int]) -> "Board":
        """The board of a plan."""
        return cls(
            as_of=as_of,
            plan=plan,
            stays={stay.job_id: stay for stay in plan.stays},
            positions={stay.job_id: number for number, stay in enumerate(plan.stays, start=1)},
            reservations={kept.job_id: kept for kept in plan.reservations},
            shares_milli=shares_milli,
        )


@dataclass
class Desk:
    """One for each process; what is on it is true while this process leads."""

    transaction: Transaction
    book: TenantBook
    policies: PolicyBook
    limits: Limits
    clock: Clock
    snapshot: Snapshot = field(default_factory=Snapshot)
    board: Board | None = None
    moved: bool = False
    _asking: int = 0
    _memo: Memo = field(default_factory=Memo)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def clear(self) -> None:
        """Forget everything: what is remembered may not be what is true."""
        self.snapshot, self.board, self._memo = Snapshot(), None, Memo()
        self._lock = asyncio.Lock()

    async def look(self, conn: Connection) -> None:
        """Take in what has changed since; `moved` tells when a plan might come out otherwise."""
        async with self._lock:
            half_life_s = self.policies.rules.policy.half_life_s
            self.moved = await self.snapshot.refresh(conn, self.clock.now(), half_life_s) or self.moved

    async def plan(self) -> Plan:
        """What to do now."""
        async with self._lock:
            now, self.moved = self.clock.now(), False
            self.board = await self._board(now, self._scenery(now))
            return self.board.plan

    async def what_if(self, job: JobRow) -> Board:
        """What would be decided if the job were waiting; nothing of it is kept. Raises BusyError."""
        if self._asking >= MAX_ASKING:
            msg = f"{self._asking} dry runs are waiting already: ask again in a moment"
            raise BusyError(msg)
        self._asking += 1
        try:
            async with self._lock:
                now = self.clock.now()
                return await self._board(now, self._scenery(now, job))
        finally:
            self._asking -= 1

    async def earliest(self, job: JobRow) -> tuple[datetime | None, str] | None:
        """When the job would fit at the earliest, and what that rests on; None where nothing tells."""
        async with self._lock:
            now = self.clock.now()
            scene, tenant = self._scenery(now), self.snapshot.tenants.number(job.tenant)
            if tenant >= len(scene.tenants.names):
                return None
            found = await asyncio.to_thread(
                earliest,
                scene.fleet,
                scene.running,
                scene.tenants,
                self.snapshot.mix,
                self.policies.rules.policy,
                micros(now),
                demand=job.demand,
                tenant=tenant,
                memo=self._memo,
            )
        return None if found is None else (moment(found[0]), found[1])

    def _scenery(self, now: datetime, extra: JobRow | None = None) -> Scenery:
        rules, slots = self.policies.rules, self.limits.node_slots
        return self.snapshot.scenery(self.book.tenants, rules, slots, now, extra)

    async def _board(self, now: datetime, scene: Scenery) -> Board:
        shares = shares_milli(scene.tenants, self.policies.rules.policy)
        return Board.of(await self._decide(scene, now), now, shares)

    async def _decide(self, scene: Scenery, now: datetime) -> Plan:
        return await asyncio.to_thread(
            decide,
            scene.fleet,
            scene.queue,
            scene.running,
            scene.tenants,
            self.snapshot.mix,
            self.policies.rules.policy,
            micros(now),
            memo=self._memo,
        )
