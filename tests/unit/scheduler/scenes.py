"""Fleets, waiting jobs, attempts and tenants in few words, and what `decide` makes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from contracts.base import Reason, Tier
from services.scheduler.core.arrays import (
    ANYONE,
    CARD,
    NEVER,
    TIERS,
    Demand,
    Fleet,
    Ints,
    Plan,
    Queue,
    Running,
    Tenants,
)
from services.scheduler.core.decide import decide
from services.scheduler.core.packing import Mix
from services.scheduler.core.packing.needs import share_of
from services.scheduler.core.policy import DEFAULT, Policy

GB = 1024**3
NOW = 1_800_000_000_000_000
S = 1_000_000
C, R, SH = Tier.CENTRAL, Tier.REMOTE, Tier.SHARED


def ints(values: Sequence[Any]) -> Ints:
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True)
class Node:
    """`cards` are models."""

    name: str
    cards: Sequence[str] = ()
    tier: Tier = C
    ready: bool = True
    cpu_milli: int = 64_000
    memory_bytes: int = 512 * GB
    card_bytes: int = 40 * GB
    pool: str | None = None
    rack: str = "r"
    zone: str = "z"
    scarce: bool = False
    budget: int = NEVER
    link_mbps: int = NEVER


@dataclass(frozen=True)
class Job:
    """One that waits; fields that are not its own are those of its `Demand`."""

    name: str
    demand: Demand
    tenant: str = "acme"
    rank: int = 1
    at: int = 0
    longest_s: int | None = 3600
    gate: Reason | None = None
    damaged: bool = False
    damaged_s: int | None = None
    left_for: str | None = None
    since_s: int | None = None
    avoid: tuple[str, ...] = ()


def job(name: str, cards: int = 1, *, members: int = 1, tiers: tuple[Tier, ...] = (C,), **others: Any) -> Job:
    """A job that asks `members` times `cards`; the rest as of `Job` and `Demand`."""
    own = {key: others.pop(key) for key in list(others) if key in Job.__dataclass_fields__}
    return Job(name, Demand(tiers=tiers, members=members, cards=cards, **others), **own)


@dataclass(frozen=True)
class Run:
    """An attempt: each element of `on` is a member, a node and the indexes of the cards that it holds there."""

    name: str
    on: Sequence[tuple[str, tuple[int, ...]]]
    tenant: str = "acme"
    rank: int = 2
    placed_s: int = -600
    ends_s: int | None = 3600
    saved_s: int = -60
    preemptible: bool = True
    stopping: bool = False
    leaving_for: str | None = None
    preempted_s: int | None = None
    waited_s: int = 0
    moving: bool = False
    demand: Demand | None = None

    @property
    def shape(self) -> Demand:
        return self.demand or Demand((C,), members=len(self.on), cards=len(self.on[0][1]))


@dataclass(frozen=True)
class Tenant:
    """Cards in whole ones; `uses` is in card-hours. The limit is the guarantee unless it is told."""

    name: str = "acme"
    guarantee: int = 10**6
    limit: int | None = None
    jobs: int = 10**6
    weight: float = 1.0
    uses: float = 0.0
    cohort: str | None = None
    pools: Sequence[str] = ()
    known: bool = True


@dataclass(frozen=True)
class World:
    """All of the input of a plan, in words."""

    nodes: Sequence[Node] = ()
    jobs: Sequence[Job] = ()
    runs: Sequence[Run] = ()
    tenants: Sequence[Tenant] = (Tenant(),)
    policy: Policy = DEFAULT
    parents: Mapping[str, str] = field(default_factory=dict[str, str])
    ceilings: Mapping[str, int] = field(default_factory=dict[str, int])
    node_slots: int = 64
    now_us: int = NOW
    changed_s: int | None = None

    def decided(self, mix: Mix | None = None) -> Plan:
        """What `decide` says."""
        fleet = self.fleet()
        return decide(
            fleet, self.queue(fleet), self.running(fleet), self.tenancy(fleet), mix or Mix(), self.policy, self.now_us
        )

    def but(self, **changes: Any) -> "World":
        return replace(self, **changes)

    def fleet(self) -> Fleet:
        nodes = sorted(self.nodes, key=lambda node: node.name)
        models = sorted({model.casefold() for node in nodes for model in node.cards})
        pools, racks, zones = (sorted({getattr(n, key) for n in nodes} - {None}) for key in ("pool", "rack", "zone"))
        each = ((at, *card) for at, node in enumerate(nodes) for card in enumerate(node.cards))
        cards = [(at, index, models.index(model.casefold()), nodes[at].card_bytes) for at, index, model in each]
        table = ints(cards).reshape(-1, 4)
        fleet = Fleet(
            nodes=tuple(node.name for node in nodes),
            versions=ints([1] * len(nodes)),
            tier=ints([TIERS.index(node.tier) for node in nodes]),
            pool=ints([ANYONE if node.pool is None else pools.index(node.pool) for node in nodes]),
            zone=ints([zones.index(node.zone) for node in nodes]),
            rack=ints([racks.index(node.rack) for node in nodes]),
            ready=np.array([node.ready for node in nodes], dtype=np.bool_),
            scarce=np.array([node.scarce for node in nodes], dtype=np.bool_),
            cpu_milli=ints([node.cpu_milli for node in nodes]),
            memory_bytes=ints([node.memory_bytes for node in nodes]),
            free_cpu_milli=ints([node.cpu_milli for node in nodes]),
            free_memory_bytes=ints([node.memory_bytes for node in nodes]),
            free_budget=ints([node.budget for node in nodes]),
            free_link_mbps=ints([node.link_mbps for node in nodes]),
            node_slots=self.node_slots,
            free_slots=ints([self.node_slots] * len(nodes)),
            pools=tuple(pools),
            zones=tuple(zones),
            racks=tuple(racks),
            models=tuple(models),
            card_node=table[:, 0].copy(),
            card_index=table[:, 1].copy(),
            card_model=table[:, 2].copy(),
            card_memory_bytes=table[:, 3].copy(),
            card_link=np.zeros(len(table), dtype=np.int64),
            card_free=np.full(len(table), CARD, dtype=np.int64),
            budget=ints([node.budget for node in nodes]),
            link_mbps=ints([node.link_mbps for node in nodes]),
        )
        self._occupy(fleet)
        return fleet

    def _occupy(self, fleet: Fleet) -> None:
        for run in self.runs:
            shape = run.shape
            for name, indexes in run.on:
                node = fleet.nodes.index(name)
                fleet.free_slots[node] -= 1
                fleet.free_cpu_milli[node] -= shape.cpu_milli
                fleet.free_memory_bytes[node] -= shape.memory_bytes
                if fleet.free_link_mbps[node] != NEVER:
                    fleet.free_link_mbps[node] -= shape.link_mbps
                for card in self.cards(fleet, name, indexes):
                    share = share_of(shape, int(fleet.card_memory_bytes[card]))
                    fleet.card_free[card] -= share
                    if fleet.free_budget[node] != NEVER:
                        fleet.free_budget[node] -= share
        assert (fleet.card_free >= 0).all(), f"a card is held twice: {self.runs}"

    @staticmethod
    def cards(fleet: Fleet, node: str, indexes: Sequence[int]) -> list[int]:
        at = fleet.nodes.index(node)
        return [int(np.flatnonzero((fleet.card_node == at) & (fleet.card_index == index))[0]) for index in indexes]

    def queue(self, fleet: Fleet) -> Queue:
        shapes = list(dict.fromkeys(waiting.demand for waiting in self.jobs))
        gates = [waiting.gate for waiting in self.jobs if waiting.gate is not None]
        return Queue(
            job_ids=tuple(waiting.name for waiting in self.jobs),
            versions=ints([7] * len(self.jobs)),
            tenant=ints([self._tenant(waiting.tenant) for waiting in self.jobs]),
            rank=ints([waiting.rank for waiting in self.jobs]),
            submitted_us=ints([NOW + waiting.at * S for waiting in self.jobs]),
            longest_us=ints([NEVER if waiting.longest_s is None else waiting.longest_s * S for waiting in self.jobs]),
            shape=ints([shapes.index(waiting.demand) for waiting in self.jobs]),
            gate=ints([-1 if waiting.gate is None else gates.index(waiting.gate) for waiting in self.jobs]),
            damaged=np.array([waiting.damaged for waiting in self.jobs], dtype=np.bool_),
            left_for={at: waiting.left_for for at, waiting in enumerate(self.jobs) if waiting.left_for},
            damaged_us=ints(
                [-1 if waiting.damaged_s is None else self.now_us + waiting.damaged_s * S for waiting in self.jobs]
            ),
            shapes=tuple(shapes),
            gates=tuple(gates),
            since_us=ints([NOW + (one.at if one.since_s is None else one.since_s) * S for one in self.jobs]),
            avoid={
                at: tuple(fleet.nodes.index(name) for name in waiting.avoid if name in fleet.nodes)
                for at, waiting in enumerate(self.jobs)
                if waiting.avoid
            },
        )

    def running(self, fleet: Fleet) -> Running:
        runs = self.runs
        members = [(at, *member) for at, run in enumerate(runs) for member in run.on]
        held = [
            (at, card) for at, (_, node, indexes) in enumerate(members) for card in self.cards(fleet, node, indexes)
        ]
        table = ints(held).reshape(-1, 2)
        return Running(
            job_ids=tuple(run.name for run in runs),
            tenant=ints([self._tenant(run.tenant) for run in runs]),
            rank=ints([run.rank for run in runs]),
            placed_us=ints([self.now_us + run.placed_s * S for run in runs]),
            ends_us=ints([NEVER if run.ends_s is None else self.now_us + run.ends_s * S for run in runs]),
            saved_us=ints([self.now_us + run.saved_s * S for run in runs]),
            preemptible=np.array([run.preemptible for run in runs], dtype=np.bool_),
            stopping=np.array([run.stopping for run in runs], dtype=np.bool_),
            shape=ints(range(len(runs))),
            shapes=tuple(run.shape for run in runs),
            member_attempt=ints([at for at, _, _ in members]),
            member_node=ints([fleet.nodes.index(node) for _, node, _ in members]),
            held_member=table[:, 0].copy(),
            held_card=table[:, 1].copy(),
            leaving_for=tuple(run.leaving_for for run in runs),
            preempted_us=ints([-1 if run.preempted_s is None else self.now_us + run.preempted_s * S for run in runs]),
            waited_us=ints([run.waited_s * S for run in runs]),
            moving=np.array([run.moving for run in runs], dtype=np.bool_),
            changed_us=NEVER if self.changed_s is None else self.now_us + self.changed_s * S,
        )

    def tenancy(self, fleet: Fleet) -> Tenants:
        told = self.tenants
        cohorts = sorted({t.cohort for t in told if t.cohort} | set(self.parents) | set(self.parents.values()))
        used, jobs = [0] * len(told), [0] * len(told)
        for run in self.runs:
            at = self._tenant(run.tenant)
            jobs[at] += 1
            for node, indexes in run.on:
                cards = self.cards(fleet, node, indexes)
                used[at] += sum(share_of(run.shape, int(fleet.card_memory_bytes[card])) for card in cards)
        return Tenants(
            names=tuple(t.name for t in told),
            known=np.array([t.known for t in told], dtype=np.bool_),
            guarantee=ints([t.guarantee * CARD for t in told]),
            limit=ints([(t.guarantee if t.limit is None else t.limit) * CARD for t in told]),
            quota_jobs=ints([t.jobs for t in told]),
            used=ints(used),
            used_jobs=ints(jobs),
            weight=np.array([t.weight for t in told], dtype=np.float64),
            usage=np.array([t.uses * 3_600_000 for t in told], dtype=np.float64),
            cohort=ints([-1 if t.cohort is None else cohorts.index(t.cohort) for t in told]),
            pools=np.array([[pool in t.pools for pool in fleet.pools] for t in told], dtype=np.bool_).reshape(
                len(told), len(fleet.pools)
            ),
            cohorts=tuple(cohorts),
            parent=ints([cohorts.index(self.parents[c]) if c in self.parents else -1 for c in cohorts]),
            ceiling=ints([self.ceilings[c] * CARD if c in self.ceilings else NEVER for c in cohorts]),
        )

    def _tenant(self, name: str) -> int:
        return [tenant.name for tenant in self.tenants].index(name)


def where(plan: Plan) -> dict[str, list[str]]:
    return {p.job_id: [seat.node for seat in p.seats] for p in plan.placements}


def why(plan: Plan) -> dict[str, str]:
    return {stay.job_id: stay.reason.code for stay in plan.stays}


def victims(plan: Plan) -> dict[str, str]:
    return {preemption.job_id: preemption.why for preemption in plan.preemptions}


def kept(plan: Plan) -> dict[str, list[str]]:
    return {reservation.job_id: list(reservation.nodes) for reservation in plan.reservations}
