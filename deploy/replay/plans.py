"""Planners of the replay over the scheduler's own `decide`: the cluster's state in arrays in, starts and stops out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from contracts.base import Tier
from deploy.replay.cluster import NODE_CARDS, Attempt, Cluster, Moves, Start, Stop, card_nodes, members
from deploy.replay.philly import SECOND_US, Job
from services.scheduler.core.arrays import (
    ANYONE,
    CARD,
    NEVER,
    TIERS,
    Demand,
    Fleet,
    Ints,
    Plan,
    PreemptWhy,
    Queue,
    Running,
    Tenants,
)
from services.scheduler.core.decide import decide
from services.scheduler.core.model import Seat
from services.scheduler.core.packing import Memo, Mix
from services.scheduler.core.policy import VARIANTS, Order, Policy, decayed
from services.scheduler.core.stages import MS_PER_CARD_H

MODEL = "v100"
CARD_BYTES = 16 * 1024**3
NORMAL = 1
LOOK_US = 900 * SECOND_US


@dataclass(frozen=True)
class Terms:
    """What a policy is told of the jobs: their classes, and their longest run where it knows that."""

    rank: Ints
    longest_us: Ints


def unaware(jobs: Sequence[Job]) -> Terms:
    """All jobs are of one class and may run for ever."""
    return Terms(np.full(len(jobs), NORMAL, np.int64), np.full(len(jobs), NEVER, np.int64))


def by_tenant(jobs: Sequence[Job]) -> Terms:
    """Tenants are classes: the first by name is the highest."""
    return replace(unaware(jobs), rank=_ints([job.tenant for job in jobs]))


def aware(jobs: Sequence[Job]) -> Terms:
    """The longest run of a job is how long it does run."""
    return replace(unaware(jobs), longest_us=_ints([job.duration_us for job in jobs]))


TERMS = {"farside": unaware, "fifo": unaware, "priority": by_tenant, "shortest": aware}


class Decided:
    """Asks `decide` at every event. Past use is counted here as the service does it."""

    def __init__(self, jobs: Sequence[Job], cards: int, tenants: Sequence[str], policy: Policy, terms: Terms) -> None:
        self._jobs, self._terms, self._policy = jobs, terms, policy
        shapes = sorted({members(job.cards) for job in jobs})
        self._shapes = tuple(
            Demand(tiers=(Tier.CENTRAL,), members=n, cards=each, models=(MODEL,)) for n, each in shapes
        )
        self._shape = _ints([shapes.index(members(job.cards)) for job in jobs])
        self._tenant = _ints([job.tenant for job in jobs])
        self._size = _ints([job.cards for job in jobs])
        self._arrival = _ints([job.arrival_us for job in jobs])
        self._earlier_ms = np.zeros(len(jobs), np.int64)
        self._ids = [job.job_id for job in jobs]
        self._index = {job_id: index for index, job_id in enumerate(self._ids)}
        self._fleet = _fleet(cards)
        self._first = np.flatnonzero(self._fleet.card_index == 0)
        self._tenants = _tenants(tenants, cards)
        self._mix, self._memo = Mix(), Memo()
        self._used_ms = np.zeros(len(tenants))
        self._asked_us = 0
        self._place = _places(jobs, policy.order, terms)

    def plan(self, cluster: Cluster, now_us: int) -> Moves:
        """One plan of `decide`."""
        running = list(cluster.running.values())
        waiting = self._ahead(cluster, running) if self._policy.strict else list(cluster.waiting)
        for job in waiting:
            self._earlier_ms[job] = cluster.lives[job].held_us // 1000 * cluster.jobs[job].cards
        tenants = self._tenancy(running, now_us)
        fleet = replace(self._fleet, card_free=cluster.card_free * CARD)
        plan = decide(
            fleet,
            self._queue(cluster, waiting),
            self._running(cluster, running, now_us),
            tenants,
            self._mix,
            self._policy,
            now_us,
            memo=self._memo,
        )
        return replace(self._moves(plan), wake_us=self._wake_us(running, now_us))

    def _wake_us(self, running: Sequence[Attempt], now_us: int) -> int | None:
        """When an attempt's turn is over or its job enters a later stage, so that others may have its cards."""
        policy = self._policy
        if policy.order is not Order.FAIR or not policy.stages_card_h:
            return None
        jobs = [attempt.job for attempt in running if not attempt.stopping]
        placed = _ints([attempt.started_us for attempt in running if not attempt.stopping])
        bounds = np.array([0.0, *policy.stages_card_h]) * MS_PER_CARD_H
        left_ms = np.maximum(bounds - self._earlier_ms[jobs][:, None], 0) / self._size[jobs][:, None]
        times = placed[:, None] + np.maximum(left_ms * 1000, policy.turn_s * SECOND_US).astype(np.int64)
        later = times[times > now_us]
        return max(int(later.min()), now_us + LOOK_US) if len(later) else None

    def _moves(self, plan: Plan) -> Moves:
        index = self._index
        starts = [Start(index[placement.job_id], self._cards(placement.seats)) for placement in plan.placements]
        stops = [
            Stop(
                index[stop.job_id],
                None if stop.for_job is None else index[stop.for_job],
                stop.why is PreemptWhy.CONSOLIDATION,
            )
            for stop in plan.preemptions
        ]
        return Moves(starts, stops)

    def _cards(self, seats: Sequence[Seat]) -> Ints:
        nodes = {name: index for index, name in enumerate(self._fleet.nodes)}
        return _ints([self._first[nodes[seat.node]] + card for seat in seats for card in seat.cards])

    def _ahead(self, cluster: Cluster, running: Sequence[Attempt]) -> list[int]:
        """Under a strict order, the jobs that can matter now: up to the first for whom too few cards are free.

        That one blocks all behind it, but for those for whom others leave. A job beyond its tenant's limit blocks none.
        """
        free, limit = int(cluster.card_free.sum()), cluster.cards
        used = Counter[int]()
        for attempt in running:
            used[self._jobs[attempt.job].tenant] += self._jobs[attempt.job].cards
        claims = {attempt.leaving_for for attempt in running if attempt.leaving_for in cluster.waiting}
        ahead: list[int] = []
        for job in sorted(cluster.waiting, key=lambda job: (job not in claims, self._place[job])):
            if free < 0 and job not in claims:
                break
            ahead.append(job)
            its = self._jobs[job]
            if used[its.tenant] + its.cards <= limit:
                free, used[its.tenant] = free - its.cards, used[its.tenant] + its.cards
        return ahead

    def _queue(self, cluster: Cluster, waiting: Sequence[int]) -> Queue:
        """`left_for` is left out under a strict order: nothing passes the job that others left for."""
        jobs, left = _ints(waiting), {} if self._policy.strict else cluster.left_for
        return Queue(
            job_ids=tuple(self._ids[job] for job in waiting),
            versions=np.zeros(len(jobs), np.int64),
            tenant=self._tenant[jobs],
            rank=self._terms.rank[jobs],
            submitted_us=self._arrival[jobs],
            longest_us=self._terms.longest_us[jobs],
            shape=self._shape[jobs],
            gate=np.full(len(jobs), -1, np.int64),
            damaged=np.array([job in cluster.moved for job in waiting], np.bool_),
            shapes=self._shapes,
            earlier_ms=self._earlier_ms[jobs],
            since_us=_ints([cluster.waiting[job] for job in waiting]),
            left_for={at: self._ids[left[job]] for at, job in enumerate(waiting) if job in left},
        )

    def _running(self, cluster: Cluster, running: Sequence[Attempt], now_us: int) -> Running:
        jobs = _ints([attempt.job for attempt in running])
        shape = self._shape[jobs]
        counts = _ints([demand.members for demand in self._shapes])[shape]
        each = _ints([demand.cards for demand in self._shapes])[shape]
        attempts = np.repeat(np.arange(len(running)), counts)
        sizes = each[attempts]
        held = np.concatenate([np.zeros(0, np.int64), *(attempt.cards for attempt in running)])
        placed = _ints([attempt.started_us for attempt in running])
        longest = self._terms.longest_us[jobs]
        return Running(
            job_ids=tuple(self._ids[attempt.job] for attempt in running),
            tenant=self._tenant[jobs],
            rank=self._terms.rank[jobs],
            placed_us=placed,
            ends_us=np.where(longest == NEVER, NEVER, np.minimum(longest, NEVER // 2) + placed),
            saved_us=_ints([now_us - cluster.unsaved_us(attempt.job, now_us) for attempt in running]),
            preemptible=np.ones(len(running), np.bool_),
            stopping=np.array([attempt.stopping for attempt in running], np.bool_),
            shape=shape,
            shapes=self._shapes,
            member_attempt=attempts,
            member_node=self._fleet.card_node[held[np.cumsum(sizes) - sizes]] if len(held) else _ints([]),
            held_member=np.repeat(np.arange(len(attempts)), sizes),
            held_card=held,
            leaving_for=tuple(
                None if attempt.leaving_for is None else self._ids[attempt.leaving_for] for attempt in running
            ),
            preempted_us=_ints([cluster.lives[attempt.job].preempted_us for attempt in running]),
            changed_us=cluster.changed_us,
            earlier_ms=self._earlier_ms[jobs],
            waited_us=_ints([attempt.waited_us for attempt in running]),
            moving=np.array([attempt.moving for attempt in running], np.bool_),
        )

    def _tenancy(self, running: Sequence[Attempt], now_us: int) -> Tenants:
        """Past use fades and grows by what has been held since the last plan."""
        held = np.zeros(len(self._used_ms), np.int64)
        count = np.zeros(len(self._used_ms), np.int64)
        for attempt in running:
            job = self._jobs[attempt.job]
            held[job.tenant] += job.cards
            count[job.tenant] += 1
        elapsed_us, self._asked_us = now_us - self._asked_us, now_us
        fade = decayed(1.0, elapsed_us / 1_000_000, self._policy.half_life_s)
        self._used_ms = self._used_ms * fade + held * (elapsed_us / 1000)
        return replace(self._tenants, used=held * CARD, used_jobs=count, usage=self._used_ms)


def planner(name: str, jobs: Sequence[Job], cards: int, tenants: Sequence[str]) -> Decided:
    """The planner of a policy: one of `VARIANTS`."""
    return Decided(jobs, cards, tenants, VARIANTS[name], TERMS[name](jobs))


def _places(jobs: Sequence[Job], order: Order, terms: Terms) -> list[int]:
    """Where each job stands in the line of all, by what does not change; under `FAIR` there is no such line."""
    rank = terms.rank if order is Order.PRIORITY else np.zeros_like(terms.rank)
    longest = terms.longest_us if order is Order.SHORTEST else np.zeros_like(terms.rank)
    keys = zip(rank.tolist(), longest.tolist(), jobs, strict=True)
    line = sorted((own, runs, job.arrival_us, job.job_id, at) for at, (own, runs, job) in enumerate(keys))
    places = [0] * len(jobs)
    for place, (*_, at) in enumerate(line):
        places[at] = place
    return places


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int64)


def _fleet(cards: int) -> Fleet:
    """Nodes of eight cards, the last one smaller, that lack nothing else."""
    node = card_nodes(cards)
    nodes = int(node[-1]) + 1
    same, plenty = np.zeros(nodes, np.int64), np.full(nodes, NEVER // 4, np.int64)
    slots = 64
    return Fleet(
        nodes=tuple(f"node-{index:05}" for index in range(nodes)),
        versions=same,
        tier=np.full(nodes, TIERS.index(Tier.CENTRAL), np.int64),
        pool=np.full(nodes, ANYONE, np.int64),
        zone=same,
        rack=same,
        ready=np.ones(nodes, np.bool_),
        scarce=np.zeros(nodes, np.bool_),
        cpu_milli=plenty,
        memory_bytes=plenty,
        free_cpu_milli=plenty,
        free_memory_bytes=plenty,
        free_budget=np.full(nodes, NEVER, np.int64),
        free_link_mbps=np.full(nodes, NEVER, np.int64),
        node_slots=slots,
        free_slots=np.full(nodes, slots, np.int64),
        pools=(),
        zones=("zone",),
        racks=("rack",),
        models=(MODEL,),
        card_node=node,
        card_index=np.arange(cards) % NODE_CARDS,
        card_model=np.zeros(cards, np.int64),
        card_memory_bytes=np.full(cards, CARD_BYTES, np.int64),
        card_link=np.zeros(cards, np.int64),
        card_free=np.full(cards, CARD, np.int64),
    )


def _tenants(names: Sequence[str], cards: int) -> Tenants:
    """Equal guarantees, and all may borrow whatever is free."""
    count = len(names)
    nothing = np.zeros(count, np.int64)
    return Tenants(
        names=tuple(names),
        known=np.ones(count, np.bool_),
        guarantee=np.full(count, cards * CARD // count, np.int64),
        limit=np.full(count, cards * CARD, np.int64),
        quota_jobs=np.full(count, NEVER, np.int64),
        used=nothing,
        used_jobs=nothing,
        weight=np.ones(count, np.float64),
        usage=np.zeros(count, np.float64),
        cohort=np.full(count, -1, np.int64),
        pools=np.zeros((count, 0), np.bool_),
    )
