"""Jobs, fleets and queues for tests, with everything but the point of the test filled in."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from contracts.attempts import ExitCause
from contracts.base import Tier
from contracts.jobs import JobKind, JobSpec
from services.scheduler.core.admission import TIERS, admit
from services.scheduler.core.attempts import claim
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import (
    Claim,
    Decision,
    Event,
    Exited,
    Free,
    Intent,
    Job,
    Limits,
    Place,
    Seat,
    Started,
    StopMember,
)
from services.scheduler.core.placement import ANY_MODEL, UNKNOWN_MODEL, Fleet, Queue, Tenants
from services.scheduler.core.placement import TIERS as TIER_CODES

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
LIMITS = Limits(max_losses=3, reconcile_grace_s=30)
JOB_ID = "01890000-0000-7000-8000-000000000001"
INCARNATION = "01890000-0000-7000-8000-00000000aaaa"
OTHER_INCARNATION = "01890000-0000-7000-8000-00000000bbbb"
GB = 1024**3


def spec(**changes: Any) -> JobSpec:
    """A training job of two cards for acme, with `changes`."""
    fields: dict[str, Any] = {
        "job_id": JOB_ID,
        "tenant": "acme",
        "name": "digits",
        "kind": "training",
        "command": ["python", "train.py"],
        "resources": {"cards": 2},
        "max_runtime_s": 3600,
    }
    return JobSpec.model_validate(fields | changes)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def accepted(**changes: Any) -> Job:
    return admit(spec(**changes), Intent(), NOW, LIMITS).job


def seats(members: int = 1, cards: int = 2) -> tuple[Seat, ...]:
    """One node a member: central-1, central-2, ..."""
    return tuple(Seat(f"central-{index + 1}", Tier.CENTRAL, tuple(range(cards))) for index in range(members))


def placed(members: int = 1, **changes: Any) -> Job:
    job = accepted(members=members, **changes)
    return decide(job, Place(seats(members, job.spec.resources.cards)), NOW, LIMITS).job


def claim_of(
    job: Job, member: int = 0, *, incarnation: str = INCARNATION, node: str | None = None, attempt: int | None = None
) -> Claim:
    number = attempt or job.attempts
    return Claim(
        attempt=number,
        generation=number,
        member=member,
        node=node or f"central-{member + 1}",
        incarnation=incarnation,
        endpoint=f"10.0.0.{member + 1}:4000",
    )


def claimed(members: int = 1, **changes: Any) -> Job:
    job = placed(members, **changes)
    for member in range(members):
        job = claim(job, claim_of(job, member), later(1), LIMITS)[0].job
    return job


def running(members: int = 1, **changes: Any) -> Job:
    job = claimed(members, **changes)
    for member in range(members):
        job = step(job, Started(job.attempts, member, f"central-{member + 1}"), at=2).job
    return job


def step(job: Job, event: Event, at: float = 10) -> Decision:
    return decide(job, event, later(at), LIMITS)


def kinds(decision: Decision) -> list[str]:
    return [type(effect).__name__ for effect in decision.effects]


def stops(decision: Decision) -> list[tuple[str, int, int]]:
    return [(e.node, e.attempt, e.member) for e in decision.effects if isinstance(e, StopMember)]


def freed(decision: Decision) -> list[int]:
    return [effect.member.index for effect in decision.effects if isinstance(effect, Free)]


def exited(member: int = 0, cause: ExitCause = ExitCause.COMPLETED, code: int | None = 0, attempt: int = 1) -> Exited:
    return Exited(attempt, member, f"central-{member + 1}", cause, code)


def rerun(job: Job) -> Job:
    job = step(job, Place(seats())).job
    job = claim(job, claim_of(job), later(11), LIMITS)[0].job
    return step(job, Started(job.attempts, 0, "central-1"), at=12).job


# ---- arrays ----------------------------------------------------------------------------------------------------------


def ints(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


class Node:
    """A node for `fleet`: `cards` are models; `used` card indexes are taken."""

    def __init__(
        self,
        name: str,
        tier: Tier,
        cards: Sequence[str] = (),
        *,
        used: Sequence[int] = (),
        ready: bool = True,
        cpu_milli: int = 8000,
        memory_bytes: int = 64 * GB,
        card_bytes: int = 40 * GB,
        used_slots: int = 0,
    ) -> None:
        self.name = name
        self.tier = tier
        self.used_slots = used_slots
        self.cards = cards
        self.used = used
        self.ready = ready
        self.cpu_milli = cpu_milli
        self.memory_bytes = memory_bytes
        self.card_bytes = card_bytes


def fleet(*nodes: Node, node_slots: int = 64) -> Fleet:
    ordered = sorted(nodes, key=lambda node: node.name)
    models = tuple(sorted({model.casefold() for node in ordered for model in node.cards}))
    cards = [
        (position, index, models.index(model.casefold()), node.card_bytes, index not in node.used)
        for position, node in enumerate(ordered)
        for index, model in enumerate(node.cards)
    ]
    table = np.array(cards, dtype=np.int64).reshape(len(cards), 5)
    return Fleet(
        nodes=tuple(node.name for node in ordered),
        versions=ints([1] * len(ordered)),
        tier=ints([TIER_CODES.index(node.tier) for node in ordered]),
        ready=np.array([node.ready for node in ordered], dtype=np.bool_),
        cpu_milli=ints([node.cpu_milli for node in ordered]),
        memory_bytes=ints([node.memory_bytes for node in ordered]),
        free_cpu_milli=ints([node.cpu_milli for node in ordered]),
        free_memory_bytes=ints([node.memory_bytes for node in ordered]),
        node_slots=node_slots,
        free_slots=ints([node_slots - node.used_slots for node in ordered]),
        models=models,
        card_node=table[:, 0],
        card_index=table[:, 1],
        card_model=table[:, 2],
        card_memory_bytes=table[:, 3],
        card_free=table[:, 4].astype(np.bool_),
    )


class Ask:
    """A waiting job for `queue`."""

    def __init__(  # noqa: PLR0913 - all but the first have defaults
        self,
        name: str,
        kind: JobKind = JobKind.TRAINING,
        *,
        cards: int = 1,
        members: int = 1,
        accelerator: str | None = None,
        rank: int = 1,
        submitted_us: int = 0,
        cpu_milli: int = 0,
        memory_bytes: int = 0,
        card_bytes: int = 0,
        tenant: int = 0,
        dataset: str | None = None,
        avoid: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.cards = cards
        self.members = members
        self.accelerator = accelerator
        self.rank = rank
        self.submitted_us = submitted_us
        self.cpu_milli = cpu_milli
        self.memory_bytes = memory_bytes
        self.card_bytes = card_bytes
        self.tenant = tenant
        self.dataset = dataset
        self.avoid = avoid


def queue(there: Fleet, *asks: Ask) -> Queue:
    def model(accelerator: str | None) -> int:
        if accelerator is None:
            return ANY_MODEL
        folded = accelerator.casefold()
        return there.models.index(folded) if folded in there.models else UNKNOWN_MODEL

    return Queue(
        job_ids=tuple(ask.name for ask in asks),
        versions=ints([1] * len(asks)),
        tenant=ints([ask.tenant for ask in asks]),
        tiers=tuple(TIERS[ask.kind] for ask in asks),
        rank=ints([ask.rank for ask in asks]),
        submitted_us=ints([ask.submitted_us for ask in asks]),
        members=ints([ask.members for ask in asks]),
        cards=ints([ask.cards for ask in asks]),
        model=ints([model(ask.accelerator) for ask in asks]),
        card_memory_bytes=ints([ask.card_bytes for ask in asks]),
        cpu_milli=ints([ask.cpu_milli for ask in asks]),
        memory_bytes=ints([ask.memory_bytes for ask in asks]),
        accelerator=tuple(ask.accelerator for ask in asks),
        dataset=tuple(ask.dataset for ask in asks),
        avoid=tuple(ask.avoid for ask in asks),
    )


def tenants(*, cards: int = 1000, jobs: int = 1000, used_cards: int = 0, used_jobs: int = 0) -> Tenants:
    """acme, alone."""
    return Tenants(
        names=("acme",),
        known=np.array([True]),
        quota_cards=ints([cards]),
        quota_jobs=ints([jobs]),
        used_cards=ints([used_cards]),
        used_jobs=ints([used_jobs]),
    )
