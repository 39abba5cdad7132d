"""The plan: whose turn it is, where each job goes, and why the others stay. Pure, and the same for any order of input.

Hard constraints come first: gates, bounds of tenants, pools, and what the room says of nodes and cards. Then turns
(`order`), then places (`packing`). What does not fit is passed to `blocked`: room that victims leave, room kept for
later, or a reason. A plan promises nothing: a placement is checked again against versions when it is committed.
"""

from services.scheduler.core import stays
from services.scheduler.core.arrays import Fleet, Placement, Plan, Queue, Running, Stay, Tenants
from services.scheduler.core.blocked import Blocked, Wait
from services.scheduler.core.fairness import Accounts
from services.scheduler.core.keeping import Keeping
from services.scheduler.core.order import Turn, Turns
from services.scheduler.core.packing import PLACERS, Found, Memo, Mix, Room
from services.scheduler.core.policy import DEFAULT, Policy
from services.scheduler.core.scene import Scene, asked_of, end_us, held_by, nodes_of
from services.scheduler.core.words import unknown_tenant


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
        self._kept: set[tuple[int, int, int]] = set()
        self._placements: list[Placement] = []
        self._stays: list[Stay] = []

    def plan(self) -> Plan:
        """Each job in its turn."""
        turns = self._turns
        while (turn := turns.next()) is not None:
            self._settle(turn)
            turns.settled(turn.tenant)
        blocked = self._blocked
        return Plan(
            tuple(self._placements), tuple(blocked.preemptions), tuple(blocked.reservations), tuple(self._stays)
        )

    def _settle(self, turn: Turn) -> None:
        wait = self._barred(turn)
        if wait is None:
            found = self._place(turn)
            if found is not None:
                self._give(turn, found)
                return
            wait = self._blocked.wait(turn, self._end(turn.job))
        job = turn.job
        self._stays.append(
            Stay(self._scene.queue.job_ids[job], self._version[job], wait.reason, wait.starts_us, wait.basis)
        )

    def _barred(self, turn: Turn) -> Wait | None:
        """What no free card would change."""
        scene, job, tenant = self._scene, turn.job, turn.tenant
        gate = self._gate[job]
        if gate >= 0:
            return Wait(scene.queue.gates[gate])
        if not scene.tenants.known[tenant]:
            return Wait(unknown_tenant(scene.tenants.names[tenant]))
        short = scene.accounts.short(tenant, self._asked[job])
        if short is not None:
            return Wait(stays.beyond(scene.tenants.names[tenant], short))
        return self._blocked.barred(turn, self._end(job))

    def _place(self, turn: Turn) -> Found | None:
        """Places that the job may take now. Room only shrinks, so what failed once is not tried again."""
        scene, job = self._scene, turn.job
        keeping, demand = scene.keeping, scene.queue.shapes[self._shape[job]]
        group = keeping.group(turn.tenant)
        if (self._shape[job], group) in self._full:
            return None
        avoid = scene.queue.avoid.get(job, ())
        found = scene.room.find(demand, keeping.usable(group), avoid)
        if found is None:
            self._full.add((self._shape[job], group))
            return None
        if not keeping.count or not keeping.kept(nodes_of(found), self._end(job)):
            return found
        return self._place_beside(turn, avoid)

    def _place_beside(self, turn: Turn, avoid: tuple[int, ...]) -> Found | None:
        """Places that are kept for nobody for as long as the job may run."""
        scene, job = self._scene, turn.job
        end, group = self._end(job), scene.keeping.group(turn.tenant)
        key = self._shape[job], group, scene.keeping.depth(end)
        if key in self._kept:
            return None
        found = scene.room.find(scene.queue.shapes[self._shape[job]], scene.keeping.open(group, end), avoid)
        if found is None:
            self._kept.add(key)
        return found

    def _end(self, job: int) -> int:
        return end_us(self._scene.now_us, self._longest[job])

    def _give(self, turn: Turn, found: Found) -> None:
        scene = self._scene
        scene.room.take(found)
        scene.accounts.take(turn.tenant, held_by(found))
        nodes = sorted({spot.node for spot in found.spots})
        versions = tuple((scene.fleet.nodes[node], self._node_version[node]) for node in nodes)
        job = scene.queue.job_ids[turn.job]
        self._placements.append(Placement(job, self._version[turn.job], scene.room.seats(found), versions))
