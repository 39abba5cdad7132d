"""The placer: a pure plan over numpy arrays.

In: the fleet, the jobs without an attempt, what tenants have in use, their quotas. Out: placements, and one reason for
each job that stays. The outcome does not depend on the order of the input. A plan promises nothing: each placement is
checked again against node and job versions when it is committed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.base import Reason, Tier
from services.scheduler.core import words
from services.scheduler.core.model import Seat
from services.scheduler.core.shortage import Demand, Supply, explain

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ANY_MODEL = -1
UNKNOWN_MODEL = -2
TIERS = tuple(Tier)


@dataclass(frozen=True)
class Fleet:
    """All known nodes in order of name, and their cards.

    A node holds at most `node_slots` members at a time, `free_slots` more than now. `card_node` points into the
    nodes, `card_model` into `models`.
    """

    nodes: tuple[str, ...]
    versions: Ints
    tier: Ints
    ready: Bools
    cpu_milli: Ints
    memory_bytes: Ints
    free_cpu_milli: Ints
    free_memory_bytes: Ints
    node_slots: int
    free_slots: Ints
    models: tuple[str, ...]
    card_node: Ints
    card_index: Ints
    card_model: Ints
    card_memory_bytes: Ints
    card_free: Bools


@dataclass(frozen=True)
class Queue:
    """Jobs without an attempt, one element a job. `tiers[i]` are the tiers it may use, best first.

    `avoid[i]` are nodes to be taken only when no others fit. `dataset[i]` names a dataset version that is not staged
    yet, None when nothing is missing.
    """

    job_ids: tuple[str, ...]
    versions: Ints
    tenant: Ints
    tiers: tuple[tuple[Tier, ...], ...]
    rank: Ints
    submitted_us: Ints
    members: Ints
    cards: Ints
    model: Ints
    card_memory_bytes: Ints
    cpu_milli: Ints
    memory_bytes: Ints
    accelerator: tuple[str | None, ...]
    dataset: tuple[str | None, ...]
    avoid: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Tenants:
    """Quotas of things held at a time, and what is held now. `known` is False where the tenant's file is gone."""

    names: tuple[str, ...]
    known: Bools
    quota_cards: Ints
    quota_jobs: Ints
    used_cards: Ints
    used_jobs: Ints


@dataclass(frozen=True)
class Placement:
    """Seats for one job, and the versions of job and nodes that they were chosen against."""

    job_id: str
    version: int
    seats: tuple[Seat, ...]
    node_versions: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Stay:
    """Why one job gets no place now."""

    job_id: str
    version: int
    reason: Reason


@dataclass(frozen=True)
class Plan:
    """Placements in the order in which they were decided; together with `stays` they name each job once."""

    placements: tuple[Placement, ...]
    stays: tuple[Stay, ...]


def plan(fleet: Fleet, queue: Queue, tenants: Tenants) -> Plan:
    """Place what fits: higher class first, then first come, first served; jobs that fit pass those that do not."""
    room = _Room(fleet, tenants)
    placements: list[Placement] = []
    stays: list[Stay] = []
    order = np.lexsort((np.array(queue.job_ids, dtype=np.str_), queue.submitted_us, queue.rank))
    for job in (int(position) for position in order):
        outcome = room.place(queue, job)
        version = int(queue.versions[job])
        if isinstance(outcome, Reason):
            stays.append(Stay(queue.job_ids[job], version, outcome))
        else:
            nodes = tuple(sorted({seat.node for seat in outcome}))
            versions = tuple((node, room.version(node)) for node in nodes)
            placements.append(Placement(queue.job_ids[job], version, outcome, versions))
    return Plan(tuple(placements), tuple(stays))


class _Room:
    """What is still free while the plan is made. Room only shrinks, so a shape that failed once is not tried again."""

    def __init__(self, fleet: Fleet, tenants: Tenants) -> None:
        self._fleet = fleet
        self._tenants = tenants
        self._positions = {node: index for index, node in enumerate(fleet.nodes)}
        self._card_free = fleet.card_free & fleet.ready[fleet.card_node]
        self._free_cpu = fleet.free_cpu_milli.copy()
        self._free_memory = fleet.free_memory_bytes.copy()
        self._free_slots = fleet.free_slots.copy()
        self._used_cards = tenants.used_cards.copy()
        self._used_jobs = tenants.used_jobs.copy()
        self._failed: dict[Demand, Reason] = {}

    def version(self, node: str) -> int:
        return int(self._fleet.versions[self._positions[node]])

    def place(self, queue: Queue, job: int) -> tuple[Seat, ...] | Reason:
        """Seats for one job, taken at once, or the reason why there are none."""
        gate = self._gate(queue, job)
        if gate is not None:
            return gate
        demand = Demand(
            tiers=queue.tiers[job],
            members=int(queue.members[job]),
            cards=int(queue.cards[job]),
            accelerator=queue.accelerator[job],
            model=int(queue.model[job]),
            card_memory_bytes=int(queue.card_memory_bytes[job]),
            cpu_milli=int(queue.cpu_milli[job]),
            memory_bytes=int(queue.memory_bytes[job]),
        )
        known = self._failed.get(demand)
        if known is not None:
            return known
        avoid = [self._positions[node] for node in queue.avoid[job] if node in self._positions]
        seats = (self._seats(demand, avoid) if avoid else None) or self._seats(demand, [])
        if seats is None:
            self._failed[demand] = reason = explain(demand, self._best_supply(demand))
            return reason
        tenant = int(queue.tenant[job])
        self._used_cards[tenant] += demand.members * demand.cards
        self._used_jobs[tenant] += 1
        return seats

    def _gate(self, queue: Queue, job: int) -> Reason | None:
        tenants, tenant = self._tenants, int(queue.tenant[job])
        name = tenants.names[tenant]
        if not tenants.known[tenant]:
            return words.unknown_tenant(name)
        dataset = queue.dataset[job]
        if dataset is not None:
            return words.waiting_for_dataset(name, dataset)
        used_jobs, quota_jobs = int(self._used_jobs[tenant]), int(tenants.quota_jobs[tenant])
        if used_jobs + 1 > quota_jobs:
            return words.waiting_for_quota(name, "jobs", used_jobs, 1, quota_jobs)
        asked = int(queue.members[job]) * int(queue.cards[job])
        used_cards, quota_cards = int(self._used_cards[tenant]), int(tenants.quota_cards[tenant])
        if asked and used_cards + asked > quota_cards:
            return words.waiting_for_quota(name, "cards", used_cards, asked, quota_cards)
        return None

    def _seats(self, demand: Demand, avoid: list[int]) -> tuple[Seat, ...] | None:
        """All members in one tier and on one card model, or none at all."""
        for tier in demand.tiers:
            for model in self._models(demand, tier):
                suitable = self._suitable(demand, tier, model) & self._card_free
                slots = self._slots(demand, tier, suitable)
                slots[avoid] = 0
                chosen = _choose(slots, self._per_node(suitable), demand)
                if chosen is not None:
                    return tuple(self._take(node, demand, suitable) for node in chosen for _ in range(chosen[node]))
        return None

    def _models(self, demand: Demand, tier: Tier) -> Iterator[int]:
        """Card models to try: the one asked for, or all of the tier, those with the least memory first."""
        if demand.cards == 0 or demand.model != ANY_MODEL:
            yield demand.model
            return
        fleet = self._fleet
        there = self._suitable(demand, tier, ANY_MODEL)
        found = np.unique(fleet.card_model[there])
        least = [int(fleet.card_memory_bytes[there & (fleet.card_model == model)].min()) for model in found]
        for _, model in sorted(zip(least, found.tolist(), strict=True)):
            yield int(model)

    def _suitable(self, demand: Demand, tier: Tier, model: int) -> Bools:
        fleet = self._fleet
        in_tier: Bools = (fleet.tier == TIERS.index(tier)) & fleet.ready
        mask: Bools = in_tier[fleet.card_node] & (fleet.card_memory_bytes >= demand.card_memory_bytes)
        return mask if model == ANY_MODEL else mask & (fleet.card_model == model)

    def _per_node(self, cards: Bools) -> Ints:
        return np.bincount(self._fleet.card_node[cards], minlength=len(self._fleet.nodes)).astype(np.int64)

    def _slots(self, demand: Demand, tier: Tier, suitable: Bools) -> Ints:
        """How many members each node can hold now."""
        fleet = self._fleet
        eligible = (fleet.tier == TIERS.index(tier)) & fleet.ready
        slots = np.where(eligible, np.minimum(self._free_slots, demand.members), 0).astype(np.int64)
        if demand.cards:
            slots = np.minimum(slots, self._per_node(suitable) // demand.cards)
        if demand.cpu_milli:
            slots = np.minimum(slots, self._free_cpu // demand.cpu_milli)
        if demand.memory_bytes:
            slots = np.minimum(slots, self._free_memory // demand.memory_bytes)
        return np.maximum(slots, 0)

    def _take(self, node: int, demand: Demand, suitable: Bools) -> Seat:
        fleet = self._fleet
        here = np.flatnonzero(suitable & self._card_free & (fleet.card_node == node))
        ranked = here[np.lexsort((fleet.card_index[here], fleet.card_memory_bytes[here]))][: demand.cards]
        assert len(ranked) == demand.cards, f"node {fleet.nodes[node]}: {len(ranked)} free cards of {demand.cards}"
        self._card_free[ranked] = False
        self._free_cpu[node] -= demand.cpu_milli
        self._free_memory[node] -= demand.memory_bytes
        self._free_slots[node] -= 1
        cards = tuple(sorted(fleet.card_index[ranked].tolist()))
        where = fleet.nodes[node], TIERS[int(fleet.tier[node])], cards
        if not cards:
            return Seat(*where)
        model, memory_bytes = fleet.models[fleet.card_model[ranked[0]]], int(fleet.card_memory_bytes[ranked].max())
        return Seat(*where, model, memory_bytes)

    def _best_supply(self, demand: Demand) -> Supply:
        """The tier and card model that come closest to holding the gang; the reason speaks of them."""
        supplies: list[Supply] = []
        for tier in demand.tiers:
            models = tuple(self._models(demand, tier)) or (demand.model,)
            supplies.extend(self._supply(demand, tier, model) for model in models)
        return max(supplies, key=lambda s: (s.nodes_ready > 0, min(s.slots_bounded, demand.members), s.closeness))

    def _supply(self, demand: Demand, tier: Tier, model: int) -> Supply:
        fleet = self._fleet
        in_tier: Bools = fleet.tier == TIERS.index(tier)
        eligible: Bools = in_tier & fleet.ready
        suitable = self._suitable(demand, tier, model)
        whole, free = self._per_node(suitable), self._per_node(suitable & self._card_free)
        big: Bools = (fleet.cpu_milli >= demand.cpu_milli) & (fleet.memory_bytes >= demand.memory_bytes)
        could: Bools = eligible & big & (whole >= demand.cards)
        by_cards, by_free_cards = _slots_by_cards(demand, could, whole), _slots_by_cards(demand, could, free)
        return Supply(
            tier=tier,
            nodes_known=int(in_tier.sum()),
            nodes_ready=int(eligible.sum()),
            cards_total=int(whole.sum()),
            cards_free=int(free.sum()),
            slots_total=int(by_cards.sum()),
            slots_free_by_cards=int(by_free_cards.sum()),
            node_slots=fleet.node_slots,
            slots_bounded=int(np.minimum(by_cards, fleet.node_slots).sum()),
            slots_free_bounded=int(np.minimum(by_free_cards, self._free_slots).sum()),
            node_slots_total=int(could.sum()) * fleet.node_slots,
            node_slots_free=int(self._free_slots[could].sum()),
            cpu_milli_total=int(fleet.cpu_milli[eligible].sum()),
            cpu_milli_free=int(self._free_cpu[eligible].sum()),
            memory_bytes_total=int(fleet.memory_bytes[eligible].sum()),
            memory_bytes_free=int(self._free_memory[eligible].sum()),
        )


def _slots_by_cards(demand: Demand, could: Bools, cards: Ints) -> Ints:
    """Members that fit on each node by their cards alone, on the nodes that could hold one when empty."""
    if demand.cards == 0:
        return could * np.int64(demand.members)
    return could * (cards // demand.cards)


def _choose(slots: Ints, free_cards: Ints, demand: Demand) -> dict[int, int] | None:
    """Members on each chosen node: the fewest nodes, and among equals the one left with the fewest free cards."""
    if int(slots.sum()) < demand.members:
        return None
    chosen: dict[int, int] = {}
    left = demand.members
    open_slots = slots.copy()
    while left:
        enough = np.flatnonzero(open_slots >= left)
        if len(enough):
            best = int(enough[np.argmin(free_cards[enough])])
            take = left
        else:
            best = int(np.argmax(open_slots))
            take = int(open_slots[best])
        chosen[best] = take
        open_slots[best] = 0
        left -= take
    return chosen
