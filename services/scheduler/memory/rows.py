"""Rows of the database as the cycle remembers them."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from contracts.base import Priority, Reason, Tier
from contracts.jobs import JobKind, JobPhase, JobSpec
from contracts.nodes import NodePhase
from libs.db import Row
from services.scheduler.core.arrays import CARD, NEVER, Demand
from services.scheduler.core.demands import demand_of, longest_us
from services.scheduler.core.model import Attempt, Seat

PLACEABLE = frozenset({JobPhase.ACCEPTED, JobPhase.WAITING})
_ATTEMPT = TypeAdapter(Attempt)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Microseconds since 1970."""
    return (at - _EPOCH) // _US


def _since(at: datetime | None) -> int:
    return -1 if at is None else micros(at)


def moment(us: int) -> datetime | None:
    """The time of so many microseconds; None for `NEVER` and what no calendar holds."""
    try:
        return None if us == NEVER else _EPOCH + us * _US
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class Live:
    """The attempt of a job: members that have not ended, and what the plan looks at."""

    number: int
    placed_us: int
    ends_us: int
    saved_us: int
    stopping: bool
    seats: tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class JobRow:
    """What a plan takes to know of an unfinished job."""

    job_id: str
    tenant: str
    name: str
    kind: JobKind
    priority: Priority
    demand: Demand
    longest_us: int
    preemptible: bool
    version: int
    phase: JobPhase
    reason: Reason | None
    not_before: datetime | None
    submitted_at: datetime
    avoid: tuple[str, ...]
    dataset: tuple[str, str] | None
    window: str | None
    damaged_us: int
    earlier_ms: int
    preempted_us: int
    leaving_for: str | None
    live: Live | None

    @property
    def since_us(self) -> int:
        """Since when it waits, or waited for what it has: it came, or lost its place."""
        return max(micros(self.submitted_at), self.damaged_us, self.preempted_us)

    @property
    def placeable(self) -> bool:
        """Whether the plan may give it a place, once it has rested."""
        return self.phase in PLACEABLE

    @property
    def substance(self) -> "JobRow":
        """The same without what is merely said of it."""
        live = None if self.live is None else replace(self.live, saved_us=0)
        phase = JobPhase.WAITING if self.placeable else self.phase
        return replace(self, version=0, phase=phase, reason=None, live=live)


def job_row(row: Row, shapes: dict[Demand, Demand]) -> JobRow:
    """A row of `jobs`; equal shapes are one object in `shapes`."""
    spec = JobSpec.model_validate_json(row["spec"])
    return row_of(spec, row, shapes)


def row_of(spec: JobSpec, row: Any, shapes: dict[Demand, Demand]) -> JobRow:
    """A job with the columns of its row."""
    demand = demand_of(spec)
    dataset = spec.dataset
    return JobRow(
        job_id=spec.job_id,
        tenant=spec.tenant,
        name=spec.name,
        kind=spec.kind,
        priority=spec.effective_priority,
        demand=shapes.setdefault(demand, demand),
        longest_us=longest_us(spec),
        preemptible=spec.effective_preemptible and row["phase"] != JobPhase.UNREACHABLE,
        version=row["version"],
        phase=JobPhase(row["phase"]),
        reason=None if row["reason"] is None else Reason.model_validate_json(row["reason"]),
        not_before=row["not_before"],
        submitted_at=row["submitted_at"],
        avoid=tuple(row["avoid"]),
        dataset=None if dataset is None else (dataset.name, dataset.version),
        window=spec.window,
        damaged_us=_since(row["damaged_at"]),
        earlier_ms=row["earlier_ms"],
        preempted_us=_since(row["preempted_at"]),
        leaving_for=row["leaving_for"],
        live=_live(spec, row),
    )


def _live(spec: JobSpec, row: Any) -> Live | None:
    if row["attempt"] is None or row["phase"] == JobPhase.FINISHED:
        return None
    attempt = _ATTEMPT.validate_json(row["attempt"])
    placed_us, longest = micros(attempt.placed_at), longest_us(spec)
    saved_at: datetime | None = row["saved_at"]
    return Live(
        number=attempt.number,
        placed_us=placed_us,
        ends_us=NEVER if longest == NEVER else placed_us + longest,
        saved_us=placed_us if saved_at is None else max(placed_us, micros(saved_at)),
        stopping=attempt.stop is not None,
        seats=tuple(member.seat for member in attempt.members if not member.ended),
    )


@dataclass(frozen=True, slots=True)
class CardRow:
    """A card; `bad` ones take nothing new."""

    index: int
    model: str
    memory_bytes: int
    bad: bool = False


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node. `limit` is the most its cards may carry at once (millionths), `link_mbps` its link; `NEVER` unlimited."""

    node: str
    version: int
    ready: bool
    tier: Tier
    zone: str
    rack: str
    scarce: bool
    linked: bool
    cpu_milli: int
    memory_bytes: int
    limit: int
    link_mbps: int
    cards: tuple[CardRow, ...]
    phase: str = NodePhase.READY
    cordoned: bool = False

    @property
    def shape(self) -> tuple[object, ...]:
        """What does not change while its agent runs."""
        return (self.tier, self.zone, self.rack, self.scarce, self.linked, self.cards)

    @property
    def holds(self) -> tuple[object, ...]:
        """What it could hold when nothing runs on it."""
        return (self.tier, self.cpu_milli, self.memory_bytes, self.limit, self.link_mbps, self.cards)


def node_row(row: Row) -> NodeRow:
    """A row of `nodes`."""
    bad = frozenset(row["bad_cards"])
    cards = sorted(json.loads(row["cards"]))
    limit, link = row["limit_cards"], row["link_mbps"]
    return NodeRow(
        node=row["node"],
        version=row["version"],
        ready=row["state"] == NodePhase.READY and not row["cordoned"],
        tier=Tier(row["tier"]),
        zone=row["zone"],
        rack=row["rack"],
        scarce=row["scarce"],
        linked=row["linked"],
        cpu_milli=row["cpu_milli"],
        memory_bytes=row["memory_bytes"],
        limit=NEVER if limit is None else limit * CARD,
        link_mbps=NEVER if link is None else link,
        cards=tuple(CardRow(index, model.casefold(), memory, index in bad) for index, model, memory in cards),
        phase=row["state"],
        cordoned=row["cordoned"],
    )
