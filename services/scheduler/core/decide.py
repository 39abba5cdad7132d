"""The plan: whose turn it is, where each job goes, and why the others stay. Pure, and the same for any order of input.

Hard constraints come first: gates, bounds of tenants, pools, and what the room says of nodes and cards. Then turns
(`order`), then places (`packing`). What does not fit is passed to `blocked`: room that victims leave, room kept for
later, or a reason. A plan promises nothing: a placement is checked again against versions when it is committed.
"""

import gc
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from contracts.base import Reason
from services.scheduler.core import stays
from services.scheduler.core.arrays import NEVER, Demand, Fleet, Placement, Plan, Queue, Running, Stay, Tenants
from services.scheduler.core.blocked import Blocked, Wait
from services.scheduler.core.fairness import Accounts, Short
from services.scheduler.core.figures import Figures
from services.scheduler.core.hopeless import Hopeless
from services.scheduler.core.keeping import Keeping
from services.scheduler.core.order import Turn, Turns
from services.scheduler.core.packing import PLACERS, Found, Memo, Mix, Room
from services.scheduler.core.policy import DEFAULT, Order, Policy
from services.scheduler.core.reserve import UNBOUNDED
from services.scheduler.core.scene import Scene, asked_of, end_us, held_by, nodes_of, pools_of
from services.scheduler.core.stages import staged
from services.scheduler.core.words import unknown_tenant

EARLIEST = "at the earliest, if nothing comes before: "
BEYOND = "not known: it asks more than the limit, whatever ends"


@contextmanager
def _no_collector() -> Generator[None]:
    """Nothing here makes cycles, and looking for some among all the answers takes a tenth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_no_collector()
def decide(
    fleet: Fleet,
    queue: Queue,
    running: Running,
    tenants: Tenants,
    mix: Mix,
    policy: Policy = DEFAULT,
    now_us: int = 0,
    *,
    memo: Memo | None = None,
) -> Plan:
    """What to place, to stop and to keep now; each waiting job is named once, in a placement or a stay.

    `memo` saves time between calls and changes nothing. Raises CohortCycleError for cohorts below themselves.
    """
    queue, running = staged(queue, running, policy, now_us)
    scene = Scene(
        fleet=fleet,
        queue=queue,
        running=running,
        tenants=tenants,
        policy=policy,
        now_us=now_us,
        room=Room(fleet, mix, PLACERS[policy.placer], memo),
        accounts=Accounts(tenants, policy),
        keeping=Keeping(fleet, tenants),
    )
    return _Planner(scene).plan()


@dataclass(frozen=True)
class _Hold:
    """What a tenant's limit does not allow yet; nothing that comes behind may put it off. `until_us`: when it will."""

    job: int
    asked: int
    until_us: int


class _Planner:
    """Goes through the turns once."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        queue = scene.queue
        asked = [asked_of(scene.fleet, demand) for demand in queue.shapes]
        self._shape: list[int] = queue.shape.tolist()
        self._asked = [asked[shape] for shape in self._shape]
        self._gate: list[int] = queue.gate.tolist()
        self._version: list[int] = queue.versions.tolist()
        self._longest: list[int] = queue.longest_us.tolist()
        self._node_version: list[int] = scene.fleet.versions.tolist()
        self._turns = Turns(queue, self._asked, scene.accounts, scene.policy.order)
        self._blocked = Blocked(scene, self._asked)
        self._full: set[tuple[int, int]] = set()
        self._hopeless = Hopeless()
        self._kept: dict[tuple[int, int], tuple[int, Reason]] = {}
        self._reserved: dict[tuple[int, int], Reason] = {}
        self._opens: dict[tuple[int, int], int] = {}
        self._pool = pools_of(queue.shapes)
        self._stuck: dict[int, int] = {}
        self._holds: dict[int, _Hold] = {}
        self._empty = Figures(scene.room)
        self._nevers: dict[tuple[int, int], bool] = {}
        self._untils: dict[tuple[int, Short], Wait] = {}
        self._done: set[int] = set()
        self._spared: tuple[int, ...] = ()
        self._placements: list[Placement] = []
        self._waits: list[tuple[int, Wait]] = []

    def plan(self) -> Plan:
        """Those for whom others leave, those that have waited too long, then each job in its turn."""
        self._spared = self._blocked.spared
        for turn in self._claims():
            self._settle(turn)
            self._done.add(turn.job)
        self._blocked.keep_moves()
        self._spared = ()
        for turn in self._patient():
            self._settle(turn)
            self._done.add(turn.job)
        turns = self._turns
        while (turn := turns.next()) is not None:
            if turn.job not in self._done:
                self._settle(turn)
            turns.settled(turn.tenant)
        blocked = self._blocked
        return Plan(
            tuple(self._placements), tuple(blocked.preemptions), tuple(blocked.reservations), tuple(self._stays())
        )

    def _claims(self) -> list[Turn]:
        names = self._blocked.claimants
        queue, accounts = self._scene.queue, self._scene.accounts
        jobs = [job for job, name in enumerate(queue.job_ids) if name in names] if names else []
        turns = [Turn(job, int(queue.tenant[job])) for job in jobs]
        return sorted(
            turns,
            key=lambda turn: (
                turn.job in queue.left_for,
                not accounts.claims(turn.tenant, self._asked[turn.job]),
                int(queue.rank[turn.job]),
                self._turns.place(turn.job),
            ),
        )

    def _patient(self) -> Iterator[Turn]:
        """Those that have waited too long, once the claims are settled."""
        for job in self._blocked.patient:
            if job not in self._done:
                yield Turn(job, int(self._scene.queue.tenant[job]))

    def _settle(self, turn: Turn) -> None:
        job = turn.job
        wait = self._barred(turn)
        if wait is None:
            outcome = self._place(turn)
            if isinstance(outcome, Found):
                self._give(turn, outcome)
                return
            wait = self._blocked.wait(turn, outcome)
            if outcome is not None and wait.reason is outcome:
                opens_us = self._opens[self._shape[job], self._scene.keeping.group(turn.tenant)]
                wait = replace(wait, frees=stays.before(opens_us, self._scene.now_us))
            self._stuck.setdefault(self._pool[self._shape[job]], job)
        self._waits.append((job, wait))

    def _stays(self) -> Iterator[Stay]:
        """What the fleet lacks is told as it is when all is placed, once for each shape."""
        scene, figures = self._scene, Figures(self._scene.room)
        known: dict[tuple[int, int], tuple[Reason, bool, str]] = {}
        tenants: list[int] = scene.queue.tenant.tolist()
        for job, wait in self._waits:
            reason, returns, frees, shape = wait.reason, False, wait.frees, self._shape[job]
            if reason is None:
                key = shape, scene.keeping.group(tenants[job])
                if key not in known:
                    demand, usable = scene.queue.shapes[shape], scene.keeping.usable(key[1])
                    supply = figures.with_pools(figures.supply(demand, key[1], usable), demand, usable)
                    known[key] = stays.explain(demand, supply), supply.returns(demand.members), stays.remedy(supply)
                reason, returns, frees = known[key]
            name, version = scene.queue.job_ids[job], self._version[job]
            yield Stay(name, version, reason, wait.starts_us, wait.basis, returns, wait.cohort, frees)

    # ---- bounds ------------------------------------------------------------------------------------------------------

    def _barred(self, turn: Turn) -> Wait | None:
        """What no free card would change."""
        scene, job, tenant = self._scene, turn.job, turn.tenant
        if self._gate[job] >= 0:
            return Wait(scene.queue.gates[self._gate[job]])
        name = scene.tenants.names[tenant]
        if not scene.tenants.known[tenant]:
            return Wait(unknown_tenant(name))
        short = scene.accounts.short(tenant, self._asked[job])
        if short is not None:
            return Wait(None) if self._never(turn) else self._short(turn, short)
        first = self._stuck.get(self._pool[self._shape[job]]) if scene.policy.strict else None
        if first is not None:
            demand = scene.queue.shapes[self._shape[job]]
            told = stays.blocked(scene.queue.job_ids[first], demand, self._asked[job])
            return Wait(told, frees="the start of the job that comes before it")
        return self._behind(turn)

    def _never(self, turn: Turn) -> bool:
        """Whether the fleet could not hold it even if nothing ran: no limit is kept for it then."""
        scene, shape = self._scene, self._shape[turn.job]
        key = shape, scene.keeping.group(turn.tenant)
        if key not in self._nevers:
            supply = self._empty.supply(scene.queue.shapes[shape], key[1], scene.keeping.usable(key[1]))
            self._nevers[key] = supply.never
        return self._nevers[key]

    def _short(self, turn: Turn, short: Short) -> Wait:
        """Over a bound: own work of a lower class may leave for it; and nothing behind it may put it off."""
        scene, tenant = self._scene, turn.tenant
        wait = self._until(turn, short)
        most = scene.accounts.most(tenant)
        if short.resource != "cards" or short.asked > most:
            return wait
        left = self._blocked.own(turn, scene.accounts.staying(tenant) + short.asked - most)
        if left is not None:
            self._holds.setdefault(tenant, _Hold(turn.job, short.asked, scene.now_us))
            return left
        if short.whose is not None or tenant in self._holds or scene.policy.order is not Order.FAIR:
            return wait
        endless = wait.starts_us == NEVER and self._blocked.impatient(turn.job)
        self._holds[tenant] = _Hold(turn.job, short.asked, scene.now_us if endless else wait.starts_us)
        return replace(wait, basis=wait.basis.removeprefix(EARLIEST))

    def _until(self, turn: Turn, short: Short) -> Wait:
        """Over a bound until jobs under the same are over, by the longest runs."""
        key = turn.tenant, short
        if key not in self._untils:
            reason = stays.beyond(self._scene.tenants.names[turn.tenant], short)
            until = self._limit_ends(turn.tenant, short)
            whose = "the tenant" if short.whose is None else f"cohort {short.whose}"
            rests = f"{EARLIEST}jobs of {whose} are over by the longest run" if until < NEVER else UNBOUNDED
            rests = BEYOND if short.asked > short.allowed else rests
            self._untils[key] = Wait(reason, until, rests, short.whose)
        return self._untils[key]

    def _limit_ends(self, tenant: int, short: Short) -> int:
        if short.asked > short.allowed:
            return NEVER
        below = self._scene.accounts.below(tenant, short.whose)
        return self._blocked.limit_ends(below, short.used + short.asked - short.allowed, short.resource)

    def _behind(self, turn: Turn) -> Wait | None:
        """Whether an earlier job of the tenant waits for its limit and would be put off."""
        scene, accounts = self._scene, self._scene.accounts
        hold, asked = self._holds.get(turn.tenant), self._asked[turn.job]
        if hold is None or not asked or self._end(turn.job) <= hold.until_us:
            return None
        used, limit = accounts.used[turn.tenant], accounts.most(turn.tenant)
        if used + asked + hold.asked <= limit:
            return None
        tenant, first = scene.tenants.names[turn.tenant], scene.queue.job_ids[hold.job]
        return Wait(stays.behind(tenant, first, asked, used, limit), frees=stays.before(hold.until_us, scene.now_us))

    # ---- places ------------------------------------------------------------------------------------------------------

    def _place(self, turn: Turn) -> Found | Reason | None:
        """Places that the job may take now; who keeps them from it; or None.

        Room only shrinks while a plan is made, so what failed once is not tried again.
        """
        scene, job = self._scene, turn.job
        keeping, shape = scene.keeping, self._shape[job]
        group, end = keeping.group(turn.tenant), self._end(job)
        if (shape, group) in self._full:
            return None
        kept = self._kept.get((shape, group))
        if kept is not None and end >= kept[0]:
            return kept[1]
        avoid = (*scene.queue.avoid.get(job, ()), *self._spared)
        found = self._find(scene.queue.shapes[shape], group, avoid)
        if found is None:
            self._full.add((shape, group))
            return None
        if not keeping.count or not keeping.kept(nodes_of(found), end):
            return found
        return self._place_beside(turn, found, avoid)

    def _find(self, demand: Demand, group: int, avoid: tuple[int, ...]) -> Found | None:
        if self._hopeless.covers(group, demand):
            return None
        found = self._scene.room.find(demand, self._scene.keeping.usable(group), avoid)
        if found is None:
            self._hopeless.add(group, demand)
        return found

    def _place_beside(self, turn: Turn, found: Found, avoid: tuple[int, ...]) -> Found | Reason:
        """Places that are kept for nobody for as long as the job may run; what ends later finds none either."""
        scene, job = self._scene, turn.job
        end, group = self._end(job), scene.keeping.group(turn.tenant)
        beside = scene.room.find(scene.queue.shapes[self._shape[job]], scene.keeping.open(group, end), avoid)
        if beside is not None:
            return beside
        owner, self._opens[self._shape[job], group] = scene.keeping.owner(nodes_of(found), end)
        told = owner, self._shape[job]
        if told not in self._reserved:
            demand = scene.queue.shapes[self._shape[job]]
            self._reserved[told] = stays.reserved(scene.queue.job_ids[owner], demand, self._asked[job])
        self._kept[self._shape[job], group] = end, self._reserved[told]
        return self._reserved[told]

    def _end(self, job: int) -> int:
        return end_us(self._scene.now_us, self._longest[job])

    def _give(self, turn: Turn, found: Found) -> None:
        scene = self._scene
        scene.room.take(found)
        self._blocked.placed(turn.tenant, found, self._end(turn.job))
        scene.accounts.take(turn.tenant, held_by(found))
        nodes = sorted({spot.node for spot in found.spots})
        versions = tuple((scene.fleet.nodes[node], self._node_version[node]) for node in nodes)
        job = scene.queue.job_ids[turn.job]
        self._placements.append(Placement(job, self._version[turn.job], scene.room.seats(found), versions))
