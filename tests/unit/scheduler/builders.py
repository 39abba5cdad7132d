"""Jobs for tests, with everything but the point of the test filled in."""

from datetime import UTC, datetime, timedelta
from typing import Any

from contracts.attempts import ExitCause
from contracts.base import Tier
from contracts.jobs import JobSpec
from services.scheduler.core.admission import admit
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
