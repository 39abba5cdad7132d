"""What becomes of a job that does not fit now: room that victims leave, room kept for later, or only a reason."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from contracts.base import Reason, ReasonCode
from services.scheduler.core import stays
from services.scheduler.core.arrays import NEVER, Bools, Demand, Ints, Preemption, PreemptWhy, Reservation
from services.scheduler.core.bounds import cover, uncovered
from services.scheduler.core.consolidate import elsewhere, find_moves
from services.scheduler.core.figures import Figures
from services.scheduler.core.hopeless import Hopeless
from services.scheduler.core.order import Turn
from services.scheduler.core.packing import Found
from services.scheduler.core.patience import cleared, first_words, patient
from services.scheduler.core.preempt import find_victims
from services.scheduler.core.reserve import UNBOUNDED, Start, basis, first_start, found_without, repaired
from services.scheduler.core.rights import Rights
from services.scheduler.core.scene import Scene, held_by, nodes_of, pools_of
from services.scheduler.core.work import Work

SCATTERED = frozenset({ReasonCode.FRAGMENTED, ReasonCode.TOPOLOGY})
LOOKS = 256
CROWDED = "not known: room is kept for jobs that come before it"


@dataclass(frozen=True)
class Wait:
    """Why a job waits, when it may start, and what that rests on. No reason: what the fleet lacks in the end.

    `cohort`: whose bound is in the way. `frees`: as in `Stay`.
    """

    reason: Reason | None
    starts_us: int = NEVER
    basis: str = ""
    cohort: str | None = None
    frees: str = ""


class Blocked:
    """Answers for jobs whose turn came and for whom there was no place."""

    def __init__(self, scene: Scene, asked: list[int]) -> None:
        self._scene, self._asked = scene, asked
        self._shape: list[int] = scene.queue.shape.tolist()
        self._rank: list[int] = scene.queue.rank.tolist()
        self._damaged: list[bool] = scene.queue.damaged.tolist()
        self._told: dict[tuple[int, int, int, bool], Wait] = {}
        self._given: dict[int, list[tuple[int, int]]] = {}
        self._work = Work(scene.fleet, scene.running, scene.now_us)
        self._claims, self._spare = self._claimed()
        self._hopeless = Hopeless()
        self._powerless: set[tuple[int, int, bool]] = set()
        self._looks = LOOKS
        self._pool = pools_of(scene.queue.shapes)
        self._pools: Counter[int] = Counter()
        self._preemptors = self._kept = 0
        self._moving: list[tuple[Turn, tuple[int, ...], tuple[int, ...], Found]] = []
        self._patient: Bools = patient(scene)
        self._first = dict(first_words(scene, self._work, asked, self._pool))
        self._cleared = {self._pool[self._shape[job]]: job for job in self._first}
        self.preemptions: list[Preemption] = []
        self.reservations: list[Reservation] = []
        for left in uncovered(scene, self._work):
            self._stop([left.attempt], {left.attempt: left.why}, None)

    # ---- who leaves for whom -----------------------------------------------------------------------------------------

    def _claimed(self) -> tuple[dict[str, list[int]], list[int]]:
        """Attempts that are leaving: for a job that waits, and for nobody or for one that does not wait."""
        scene, running = self._scene, self._work.running
        waiting = set(scene.queue.job_ids)
        claims: dict[str, list[int]] = {}
        spare: list[int] = []
        leaving: list[int] = np.flatnonzero(self._work.leaving).tolist()
        for attempt in leaving:
            scene.accounts.leave(int(running.tenant[attempt]), int(self._work.cards[attempt]))
            job = running.leaving_for[attempt] if running.leaving_for else None
            if job is None or job not in waiting:
                spare.append(attempt)
            else:
                claims.setdefault(job, []).append(attempt)
        return claims, spare

    @property
    def patient(self) -> tuple[int, ...]:
        """Jobs that have waited too long, one of each kind of cards: they come after the claimants."""
        return tuple(self._first)

    @property
    def spared(self) -> tuple[int, ...]:
        """Nodes that are to be cleared for them: claimants take others if they can."""
        return tuple(np.unique(np.concatenate(list(self._first.values()))).tolist()) if self._first else ()

    @property
    def claimants(self) -> frozenset[str]:
        """Waiting jobs for whom others leave, or left and wait since: they have the first word, and then who moved."""
        queue = self._scene.queue
        moved = (queue.job_ids[at] for at in queue.left_for if self._damaged[at])
        return frozenset(self._claims) | frozenset(queue.left_for.values()) | frozenset(moved)

    def _stop(self, attempts: Sequence[int], why: dict[int, PreemptWhy], job: int | None) -> None:
        scene, work = self._scene, self._work
        name = None if job is None else scene.queue.job_ids[job]
        for attempt in attempts:
            work.leaving[attempt] = True
            tenant = int(work.running.tenant[attempt])
            scene.accounts.leave(tenant, int(work.cards[attempt]))
            told = stays.told_to_leave(why[attempt], scene.tenants.names[tenant], name, int(work.cards[attempt]))
            self.preemptions.append(Preemption(work.running.job_ids[attempt], why[attempt], name, told))

    # ---- the answer --------------------------------------------------------------------------------------------------

    def wait(self, turn: Turn, kept: Reason | None) -> Wait:
        """What the job waits for. `kept`: it would fit but for nodes that are kept for others.

        Where nothing could be done for a job, nothing can for those of its tenant that ask the same afterwards.
        """
        scene, job = self._scene, turn.job
        inside = self._inside(turn)
        key = self._shape[job], turn.tenant, self._rank[job], inside
        own = self._damaged[job] or scene.queue.job_ids[job] in self._claims or job in self._first
        told = None if own else self._told.get(key)
        if told is None:
            demand = scene.queue.shapes[self._shape[job]]
            allowed = scene.keeping.open(scene.keeping.group(turn.tenant), NEVER)
            wait = self._leaving(turn, demand, allowed) or self._preempt(turn, demand, allowed)
            wait = wait or self._repair(turn, demand, allowed) or self._later(turn, demand, allowed)
            own = own or job in self._cleared.values()
            if own or wait.reason is not None or wait.starts_us < NEVER:
                return Wait(wait.reason or kept, wait.starts_us, wait.basis)
            told = self._told[key] = wait
        return told if kept is None else Wait(kept, told.starts_us, told.basis)

    def _inside(self, turn: Turn) -> bool:
        """Whether the job may take cards back that others borrowed."""
        return self._scene.accounts.claims(turn.tenant, self._asked[turn.job])

    def _hopeful(self, purpose: Hashable, demand: Demand) -> bool:
        """Whether it is worth a look; looks are bounded."""
        if self._looks <= 0 or self._hopeless.covers(purpose, demand):
            return False
        self._looks -= 1
        return True

    def _leaving(self, turn: Turn, demand: Demand, allowed: Bools | None) -> Wait | None:
        """Room that is being left, for this job or for nobody."""
        if not self._claims and not self._spare:
            return None
        own = self._claims.pop(self._scene.queue.job_ids[turn.job], [])
        group = self._scene.keeping.group(turn.tenant)
        if not own and not (self._spare and self._hopeful(("leaving", group), demand)):
            return None
        found = self._found_when_left(demand, allowed, [*own, *self._spare])
        if found is None:
            if not own:
                self._hopeless.add(("leaving", group), demand)
            return None
        there, moves = self._work.on(nodes_of(found), self._work.leaving), self._work.running.moving
        self._spare = [attempt for attempt in self._spare if attempt not in there]
        moving = tuple(attempt for attempt in own if len(moves) and moves[attempt])
        if moving:
            self._moving.append((turn, moving, tuple(sorted({*there, *moving})), found))
        return self._keep_leaving(turn, found, len(there))

    def keep_moves(self) -> None:
        """Keep where those will go that still leave and only move, once those are there that have left before them."""
        for turn, moving, gone, found in self._moving:
            self._keep_into(turn, elsewhere(self._scene, self._work, moving, gone, found))

    def _keep_into(self, turn: Turn, into: Sequence[Found]) -> None:
        for found in into:
            self._scene.keeping.keep(nodes_of(found), self._scene.now_us, turn.job)

    def _found_when_left(self, demand: Demand, allowed: Bools | None, gone: list[int]) -> Found | None:
        """Places when some have left, not on nodes that are to be cleared if there are others."""
        room, spared = self._scene.room, self.spared
        if spared:
            others = np.ones(len(self._scene.fleet.nodes), dtype=np.bool_) if allowed is None else allowed.copy()
            others[list(spared)] = False
            found = found_without(room, self._work, demand, others, gone)
            if found is not None:
                return found
        return found_without(room, self._work, demand, allowed, gone)

    def _keep_leaving(self, turn: Turn, found: Found, victims: int) -> Wait:
        """Keep the places from now on: nobody else gets them while victims save their work."""
        scene = self._scene
        starts = scene.now_us + scene.policy.grace_s * 1_000_000
        leave = "1 job there leaves" if victims == 1 else f"{victims} jobs there leave"
        rests = f"{leave} within a grace of {scene.policy.grace_s} s"
        self._keep(turn, found, scene.now_us, starts, rests)
        demand = scene.queue.shapes[self._shape[turn.job]]
        return Wait(stays.leaving(victims, demand, self._asked[turn.job]), starts, rests)

    def _keep(self, turn: Turn, found: Found, from_us: int, starts_us: int, rests: str) -> None:
        self._keep_nodes(turn, nodes_of(found), from_us, starts_us, rests)

    def _keep_nodes(self, turn: Turn, nodes: Ints, from_us: int, starts_us: int, rests: str) -> None:
        scene = self._scene
        scene.keeping.keep(nodes, from_us, turn.job)
        places: list[int] = nodes.tolist()
        names = tuple(scene.fleet.nodes[node] for node in places)
        self.reservations.append(Reservation(scene.queue.job_ids[turn.job], names, starts_us, rests))

    def _preempt(self, turn: Turn, demand: Demand, allowed: Bools | None) -> Wait | None:
        """Victims, whose room is kept for the job from now on."""
        scene, policy = self._scene, self._scene.policy
        if not policy.preempt or self._preemptors >= policy.max_preemptors:
            return None
        rank = self._rank[turn.job]
        key = turn.tenant, rank, self._inside(turn)
        if key in self._powerless:
            return None
        rights = Rights(scene, self._work, turn.tenant, rank, inside=key[-1])
        if not rights.eligible.any():
            self._powerless.add(key)
            return None
        victims = find_victims(scene, self._work, demand, allowed, rights) if self._hopeful(key, demand) else None
        why = None if victims is None else rights.reasons(victims.attempts)
        if victims is None or why is None:
            self._hopeless.add(key, demand)
            return None
        self._preemptors += 1
        self._stop(victims.attempts, why, turn.job)
        return self._keep_leaving(turn, victims.found, len(victims.attempts))

    def _repair(self, turn: Turn, demand: Demand, allowed: Bools | None) -> Wait | None:
        """What is left of a damaged gang's place, and what comes back, for a while."""
        scene, queue = self._scene, self._scene.queue
        if not self._damaged[turn.job] or not len(queue.damaged_us):
            return None
        until = int(queue.damaged_us[turn.job]) + scene.policy.repair_s * 1_000_000
        purpose = "repair", scene.keeping.group(turn.tenant)
        if until <= scene.now_us or not self._hopeful(purpose, demand):
            return None
        nodes = repaired(scene, demand, allowed)
        if nodes is None or scene.fleet.ready[nodes].all():
            self._hopeless.add(purpose, demand)
            return None
        rests = f"not known: nodes that are not ready; what is left of its place is kept for {scene.policy.repair_s} s"
        self._keep_nodes(turn, nodes, until, NEVER, rests)
        return Wait(None, NEVER, rests)

    def placed(self, tenant: int, found: Found, ends_us: int) -> None:
        """Something of the tenant was placed that ends by then."""
        self._work.place(found, ends_us)
        self._given.setdefault(tenant, []).append((ends_us, held_by(found)))

    def impatient(self, job: int) -> bool:
        """Whether the job has waited for `patience_s`."""
        return bool(self._patient[job])

    # ---- later -------------------------------------------------------------------------------------------------------

    def _later(self, turn: Turn, demand: Demand, allowed: Bools | None) -> Wait:
        """A reservation, if the job is among the first of its kind of cards; or moves that are cheaper."""
        scene, policy = self._scene, self._scene.policy
        pool = self._pool[self._shape[turn.job]]
        if self._kept >= policy.max_reservations or self._pools[pool] >= policy.reservations:
            return Wait(None, NEVER, CROWDED)
        purpose = "later", scene.keeping.group(turn.tenant)
        if not self._hopeful(purpose, demand):
            hopeless = self._hopeless.covers(purpose, demand)
            return self._clear(turn, demand, allowed) or Wait(None, NEVER, UNBOUNDED if hopeless else CROWDED)
        ends = self._work.gone_us(scene.now_us, policy.grace_s)
        start = first_start(scene.room, self._work, demand, allowed, ends)
        moved = self._move(turn, demand, allowed, start)
        if moved is not None:
            return moved
        if start is None:
            self._hopeless.add(purpose, demand)
            return self._clear(turn, demand, allowed) or Wait(None, NEVER, UNBOUNDED)
        self._pools[pool] += 1
        self._kept += 1
        rests = basis(self._work, start)
        self._keep(turn, start.found, start.at_us, start.at_us, rests)
        return Wait(None, start.at_us, rests)

    def _clear(self, turn: Turn, demand: Demand, allowed: Bools | None) -> Wait | None:
        """Nodes that are cleared for a job that has waited too long, one of each kind of cards."""
        scene, pool = self._scene, self._pool[self._shape[turn.job]]
        purpose = "clear", scene.keeping.group(turn.tenant)
        if self._cleared.get(pool, turn.job) != turn.job or not self._patient[turn.job]:
            return None
        if not self._hopeful(purpose, demand):
            return None
        nodes = cleared(scene, self._work, demand, allowed)
        if nodes is None:
            self._hopeless.add(purpose, demand)
            return None
        self._cleared[pool] = turn.job
        self._pools[pool] += 1
        self._kept += 1
        rests = f"not known: it has waited for {scene.policy.patience_s} s, so what ends on {len(nodes)} nodes is kept"
        self._keep_nodes(turn, nodes, scene.now_us, NEVER, rests)
        return Wait(None, NEVER, rests)

    def _move(self, turn: Turn, demand: Demand, allowed: Bools | None, start: Start | None) -> Wait | None:
        """Moves, if the job is only fragmented and they cost less than waiting."""
        scene, policy = self._scene, self._scene.policy
        if not policy.consolidate or self._preemptors >= policy.max_preemptors:
            return None
        if stays.explain(demand, Figures(scene.room).supply(demand, 0, allowed)).code not in SCATTERED:
            return None
        wait_us = NEVER if start is None else start.at_us - scene.now_us
        moves = find_moves(scene, self._work, demand, allowed, self._rank[turn.job], wait_us)
        if moves is None:
            return None
        self._preemptors += 1
        attempts = moves.victims.attempts
        self._stop(attempts, dict.fromkeys(attempts, PreemptWhy.CONSOLIDATION), turn.job)
        self._keep_into(turn, moves.into)
        return self._keep_leaving(turn, moves.victims.found, len(attempts))

    # ---- a tenant's own limit ----------------------------------------------------------------------------------------

    def own(self, turn: Turn, over: int) -> Wait | None:
        """Work of the tenant's own lower classes that leaves, where its limit is all that is in the way.

        `over` is how much too much would stay; none: enough of its own leaves already, and the room is kept.
        """
        scene, work = self._scene, self._work
        demand = scene.queue.shapes[self._shape[turn.job]]
        allowed = scene.keeping.open(scene.keeping.group(turn.tenant), NEVER)
        if over <= 0:
            return self._leaving(turn, demand, allowed)
        if not scene.policy.preempt or self._preemptors >= scene.policy.max_preemptors:
            return None
        rights = Rights(scene, work, turn.tenant, self._rank[turn.job], inside=False)
        mine: list[int] = np.flatnonzero(rights.eligible & (work.running.tenant == turn.tenant)).tolist()
        victims = cover(work, mine, over)
        found = found_without(scene.room, work, demand, allowed, victims) if victims else None
        if found is None:
            return None
        self._preemptors += 1
        self._stop(victims, dict.fromkeys(victims, PreemptWhy.PRIORITY), turn.job)
        return self._keep_leaving(turn, found, len(victims))

    def limit_ends(self, tenants: Sequence[int], over: int, resource: str) -> int:
        """When `tenants` will hold so much less, of cards or of jobs, by the longest runs; `NEVER` if not known."""
        work = self._work
        own = np.isin(work.running.tenant, np.array(tenants, dtype=np.int64))
        given = [one for tenant in tenants for one in self._given.get(tenant, ())]
        ends = np.concatenate((work.ends_us[own], np.array([end_us for end_us, _ in given], dtype=np.int64)))
        cards = np.concatenate((work.cards[own], np.array([held for _, held in given], dtype=np.int64)))
        order = np.argsort(ends, kind="stable")
        held = cards[order] if resource == "cards" else np.ones(len(order), dtype=np.int64)
        enough = np.flatnonzero(np.cumsum(held) >= over)
        return int(ends[order[enough[0]]]) if len(enough) else NEVER
