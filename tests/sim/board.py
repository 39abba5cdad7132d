"""The scheduler's rows as the arrays that a plan is made from; kept up to date change by change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from contracts.jobs import JobKind, JobSpec, Resources
from contracts.nodes import NodeFacts, NodePhase, NodeState
from services.scheduler.core import quota
from services.scheduler.core.arrays import ANYONE, CARD, NEVER, TIERS, Demand, Fleet, Ints, Queue, Running, Tenants
from services.scheduler.core.demands import demand_of, host_memory_bytes, longest_us
from services.scheduler.core.model import Job, MemberRun

SHAPES_KNOWN = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us_of(moment: datetime) -> int:
    """Microseconds since 1970, as the arrays have them."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


@dataclass(frozen=True)
class Live:
    """A live attempt in the words of the arrays."""

    tenant: int
    rank: int
    placed_us: int
    ends_us: int
    preemptible: bool
    shape: int
    members: tuple[tuple[int, int, tuple[int, ...]], ...]  # index in the gang, node, cards; those that have not ended
    stopping: bool = False
    saved_us: int = 0
    leaving_for: str | None = None
    preempted_us: int = -1


class Board:
    """Fleet, queue, live attempts and tenants as arrays."""

    def __init__(self, tenants: Mapping[str, quota.Tenant], node_slots: int) -> None:
        self.names = tuple(sorted(tenants))
        self.changed_us = 0
        self._tenants = tenants
        self._positions = {name: place for place, name in enumerate(self.names)}
        self._slots = node_slots
        self._states: dict[str, NodeState] = {}
        self._fleet: Fleet | None = None
        self._node_at: dict[str, int] = {}
        self._card_at: dict[tuple[str, int], int] = {}
        self._shapes: dict[Demand, int] = {}
        self._demands: dict[tuple[JobKind, int, int], tuple[Resources, int]] = {}
        self._used = np.zeros(len(self.names), dtype=np.int64)
        self._used_jobs = np.zeros(len(self.names), dtype=np.int64)
        self._usage = np.zeros(len(self.names), dtype=np.float64)
        self._held: dict[tuple[str, int], tuple[JobSpec, MemberRun]] = {}
        self._live: dict[str, Live] = {}

    # ---- changes

    def node(self, state: NodeState) -> None:
        """A node is known, or has changed."""
        known = self._states.get(state.node)
        self._states[state.node] = state
        fleet = self._fleet
        if fleet is None or known is None or known.facts != state.facts:
            self._fleet = None
            return
        place = self._node_at[state.node]
        fleet.versions[place] = state.version
        fleet.ready[place] = state.state is NodePhase.READY

    def allocate(self, spec: JobSpec, member: MemberRun) -> None:
        """A member has its seat."""
        self._held[spec.job_id, member.index] = (spec, member)
        self._count(spec, member, 1)

    def free(self, spec: JobSpec, member: MemberRun, held_ms: int) -> None:
        """A member has left its seat, which it held for so long."""
        del self._held[spec.job_id, member.index]
        live = self._live.get(spec.job_id)
        if live is not None:
            left = tuple(one for one in live.members if one[0] != member.index)
            self._live[spec.job_id] = replace(live, members=left)
        self._count(spec, member, -1)
        self._usage[self._positions[spec.tenant]] += held_ms * len(member.seat.cards) * member.seat.share / CARD

    def place(self, job: Job) -> None:
        """A job has a new attempt."""
        assert job.attempt is not None
        self._fresh()
        longest = longest_us(job.spec)
        placed_us = us_of(job.attempt.placed_at)
        self._used_jobs[self._positions[job.spec.tenant]] += 1
        self._live[job.spec.job_id] = Live(
            tenant=self._positions[job.spec.tenant],
            rank=quota.RANK[job.spec.effective_priority],
            placed_us=placed_us,
            ends_us=NEVER if longest == NEVER else placed_us + longest,
            preemptible=job.spec.effective_preemptible,
            shape=self.shape(job.spec),
            members=tuple(map(self._seat, job.attempt.members)),
            saved_us=placed_us,
        )

    def saved(self, job_id: str, at: datetime) -> None:
        """A checkpoint of a live attempt is committed."""
        live = self._live.get(job_id)
        if live is not None:
            self._live[job_id] = replace(live, saved_us=us_of(at))

    def stop(self, job_id: str, leaving_for: str | None) -> None:
        """A live attempt is being stopped."""
        live = self._live.get(job_id)
        if live is not None:
            self._live[job_id] = replace(live, stopping=True, leaving_for=leaving_for)

    def end(self, job: Job) -> None:
        """A job has no attempt any more."""
        if self._live.pop(job.spec.job_id, None) is not None:
            self._used_jobs[self._positions[job.spec.tenant]] -= 1

    def _count(self, spec: JobSpec, member: MemberRun, sign: int) -> None:
        seat = member.seat
        self._used[self._positions[spec.tenant]] += sign * len(seat.cards) * seat.share
        fleet = self._fleet
        if fleet is None:
            return
        place = self._node_at[seat.node]
        fleet.free_cpu_milli[place] -= sign * spec.resources.cpu_milli
        fleet.free_memory_bytes[place] -= sign * host_memory_bytes(spec.resources)
        fleet.free_slots[place] -= sign
        for card in seat.cards:
            fleet.card_free[self._card_at[seat.node, card]] -= sign * seat.share

    def _seat(self, member: MemberRun) -> tuple[int, int, tuple[int, ...]]:
        """Index in the gang, place of its node, places of its cards."""
        seat = member.seat
        return member.index, self._node_at[seat.node], tuple(self._card_at[seat.node, card] for card in seat.cards)

    def shape(self, spec: JobSpec) -> int:
        """The number of the shape that a job asks."""
        asked = spec.resources
        key = (spec.kind, spec.members, id(asked))
        known = self._demands.get(key)
        if known is not None:
            return known[1]
        number = self._shapes.setdefault(demand_of(spec), len(self._shapes))
        if len(self._demands) < SHAPES_KNOWN:
            self._demands[key] = (asked, number)  # with what is asked, so that its id stays its own
        return number

    # ---- arrays

    def fleet(self) -> Fleet:
        """The nodes and cards; a copy of what changes."""
        fleet = self._fresh()
        return replace(
            fleet,
            versions=fleet.versions.copy(),
            ready=fleet.ready.copy(),
            free_cpu_milli=fleet.free_cpu_milli.copy(),
            free_memory_bytes=fleet.free_memory_bytes.copy(),
            free_slots=fleet.free_slots.copy(),
            card_free=fleet.card_free.copy(),
        )

    def _fresh(self) -> Fleet:
        if self._fleet is None:
            self._fleet = self._build()
            for spec, member in self._held.values():
                self._used[self._positions[spec.tenant]] -= len(member.seat.cards) * member.seat.share
                self._count(spec, member, 1)
            for job_id, live in self._live.items():
                seated = [self._held[job_id, index][1] for index, _, _ in live.members]
                self._live[job_id] = replace(live, members=tuple(map(self._seat, seated)))
        return self._fleet

    def _build(self) -> Fleet:
        names = tuple(sorted(self._states))
        facts = [self._states[name].facts for name in names]
        models = tuple(sorted({card.model.casefold() for fact in facts for card in fact.cards}))
        codes = {model: code for code, model in enumerate(models)}
        zones = tuple(sorted({fact.zone for fact in facts}))
        table = _cards(facts, codes)
        cards = np.array(table, dtype=np.int64).reshape(len(table), 4)
        self._node_at = {name: place for place, name in enumerate(names)}
        self._card_at = {(names[place], index): row for row, (place, index, _, _) in enumerate(table)}
        size, none = len(names), np.zeros(len(names), dtype=np.int64)
        return Fleet(
            nodes=names,
            versions=ints([self._states[name].version for name in names]),
            tier=ints([TIERS.index(fact.tier) for fact in facts]),
            pool=np.full(size, ANYONE, dtype=np.int64),
            zone=ints([zones.index(fact.zone) for fact in facts]),
            rack=none.copy(),
            ready=np.array([self._states[name].state is NodePhase.READY for name in names], dtype=np.bool_),
            scarce=np.zeros(size, dtype=np.bool_),
            cpu_milli=ints([fact.cpu_milli for fact in facts]),
            memory_bytes=ints([fact.memory_bytes for fact in facts]),
            free_cpu_milli=ints([fact.cpu_milli for fact in facts]),
            free_memory_bytes=ints([fact.memory_bytes for fact in facts]),
            free_budget=np.full(size, NEVER, dtype=np.int64),
            free_link_mbps=np.full(size, NEVER, dtype=np.int64),
            node_slots=self._slots,
            free_slots=np.full(size, self._slots, dtype=np.int64),
            pools=(),
            zones=zones,
            racks=("",),
            models=models,
            card_node=cards[:, 0],
            card_index=cards[:, 1],
            card_model=cards[:, 2],
            card_memory_bytes=cards[:, 3],
            card_link=np.zeros(len(table), dtype=np.int64),
            card_free=np.full(len(table), CARD, dtype=np.int64),
        )

    def queue(self, jobs: Sequence[Job]) -> Queue:
        """Waiting jobs, in the order given."""
        specs = [job.spec for job in jobs]
        shapes = [self.shape(spec) for spec in specs]
        avoid = {
            place: tuple(self._node_at[node] for node in job.avoid if node in self._node_at)
            for place, job in enumerate(jobs)
            if job.avoid
        }
        return Queue(
            job_ids=tuple(spec.job_id for spec in specs),
            versions=ints([job.version for job in jobs]),
            tenant=ints([self._positions[spec.tenant] for spec in specs]),
            rank=ints([quota.RANK[spec.effective_priority] for spec in specs]),
            submitted_us=ints([us_of(job.submitted_at) for job in jobs]),
            longest_us=ints([longest_us(spec) for spec in specs]),
            shape=ints(shapes),
            gate=np.full(len(jobs), -1, dtype=np.int64),
            damaged=np.array([bool(job.avoid) for job in jobs], dtype=np.bool_),
            shapes=tuple(self._shapes),
            avoid=avoid,
        )

    def running(self) -> Running:
        """The live attempts, in the order in which they were placed."""
        lives = list(self._live.values())
        members = [len(live.members) for live in lives]
        held = [len(cards) for live in lives for _, _, cards in live.members]
        return Running(
            job_ids=tuple(self._live),
            tenant=ints([live.tenant for live in lives]),
            rank=ints([live.rank for live in lives]),
            placed_us=ints([live.placed_us for live in lives]),
            ends_us=ints([live.ends_us for live in lives]),
            saved_us=ints([live.saved_us for live in lives]),
            preemptible=np.array([live.preemptible for live in lives], dtype=np.bool_),
            stopping=np.array([live.stopping for live in lives], dtype=np.bool_),
            shape=ints([live.shape for live in lives]),
            shapes=tuple(self._shapes),
            member_attempt=np.repeat(np.arange(len(lives)), members),
            member_node=ints([node for live in lives for _, node, _ in live.members]),
            held_member=np.repeat(np.arange(len(held)), held),
            held_card=ints([card for live in lives for _, _, cards in live.members for card in cards]),
            leaving_for=tuple(live.leaving_for for live in lives),
            preempted_us=ints([live.preempted_us for live in lives]),
            changed_us=self.changed_us,
        )

    def tenants(self) -> Tenants:
        """Quotas and what is in use."""
        quotas = [self._tenants[name].quotas for name in self.names]
        size = len(quotas)
        return Tenants(
            names=self.names,
            known=np.ones(size, dtype=np.bool_),
            guarantee=ints([entry.guarantee * CARD for entry in quotas]),
            limit=ints([entry.most_cards * CARD for entry in quotas]),
            quota_jobs=ints([entry.concurrent_jobs for entry in quotas]),
            used=self._used.copy(),
            used_jobs=self._used_jobs.copy(),
            weight=np.ones(size, dtype=np.float64),
            usage=self._usage.copy(),
            cohort=np.full(size, -1, dtype=np.int64),
            pools=np.zeros((size, 0), dtype=np.bool_),
        )


def _cards(facts: Sequence[NodeFacts], codes: Mapping[str, int]) -> list[tuple[int, int, int, int]]:
    """The place of its node, index, code of its model and memory of each card."""
    return [
        (place, card.index, codes[card.model.casefold()], card.memory_bytes)
        for place, fact in enumerate(facts)
        for card in sorted(fact.cards, key=lambda card: card.index)
    ]


def ints(values: Sequence[int]) -> Ints:
    """Whole numbers as an array."""
    return np.array(values, dtype=np.int64)
