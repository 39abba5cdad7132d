"""Why a job waits, in the words of the contract: what binds, what is short, who leaves, and when it may start."""

from dataclasses import dataclass
from datetime import datetime

from contracts.base import Open, Reason, ReasonCode
from contracts.queue import Constraint, Forecast, Leaving
from services.scheduler.core.arrays import Stay
from services.scheduler.desk import Board, Desk
from services.scheduler.memory.leaving import leaving
from services.scheduler.memory.rows import JobRow, micros, moment

_CONSTRAINTS: dict[str, Constraint] = {
    ReasonCode.INVALID: Constraint.SPEC,
    ReasonCode.JOB_ID_REUSED: Constraint.SPEC,
    ReasonCode.CHECKPOINT_REQUIRED: Constraint.SPEC,
    ReasonCode.UNKNOWN_TENANT: Constraint.TENANT,
    ReasonCode.TENANT_MISMATCH: Constraint.TENANT,
    ReasonCode.TENANT_SUSPENDED: Constraint.TENANT,
    ReasonCode.PRIORITY_NOT_ALLOWED: Constraint.PRIORITY,
    ReasonCode.QUOTA_EXCEEDED: Constraint.QUOTA,
    ReasonCode.EXCEEDS_LARGEST_QUOTA: Constraint.QUOTA,
    ReasonCode.WAITING_FOR_QUOTA: Constraint.QUOTA,
    ReasonCode.IMAGE_NOT_ALLOWED: Constraint.IMAGE,
    ReasonCode.NO_SUCH_NODE_TYPE: Constraint.NODES,
    ReasonCode.WAITING_FOR_NODES: Constraint.NODES,
    ReasonCode.BEYOND_LIMIT: Constraint.LIMIT,
    ReasonCode.ON_HOLD: Constraint.HOLD,
    ReasonCode.WAITING_FOR_DATASET: Constraint.DATASET,
    ReasonCode.WAITING_FOR_CARDS: Constraint.CARDS,
    ReasonCode.FRAGMENTED: Constraint.FRAGMENTATION,
    ReasonCode.TOPOLOGY: Constraint.TOPOLOGY,
    ReasonCode.RESERVED: Constraint.RESERVATION,
    ReasonCode.WAITING_FOR_WINDOW: Constraint.WINDOW,
    ReasonCode.UNKNOWN_WINDOW: Constraint.WINDOW,
    ReasonCode.WAITING_FOR_PREEMPTION: Constraint.PREEMPTION,
}
_HOST = frozenset({"cpu_milli", "memory_bytes", "slots"})
# What running jobs hold is what these wait for.
HELD_BY_OTHERS = frozenset(
    {
        ReasonCode.WAITING_FOR_CARDS,
        ReasonCode.WAITING_FOR_NODES,
        ReasonCode.WAITING_FOR_PREEMPTION,
        ReasonCode.FRAGMENTED,
        ReasonCode.TOPOLOGY,
        ReasonCode.RESERVED,
    }
)


@dataclass(frozen=True)
class Story:
    """The fields that an explanation and a dry run have in common."""

    reason: Reason | None
    constraint: Open[Constraint] | None
    short: int | None
    forecast: Forecast | None
    leaving: list[Leaving]


async def story(desk: Desk, board: Board | None, job: JobRow, key: str, now: datetime) -> Story:
    """What is known of a job that waits; `key` is who asks."""
    stay = None if board is None else board.stays.get(job.job_id)
    reason = job.reason if stay is None else stay.reason
    if reason is None:
        return Story(None, None, None, Forecast(basis="the next plan decides about it"), [])
    if job.not_before is not None and job.not_before > now:
        forecast = Forecast(starts_at=job.not_before, basis="it rests after the end of its last attempt")
        return Story(reason, Constraint.REST, None, forecast, [])
    forecast = foretold(desk, board, job, stay, now)
    if forecast.starts_at is None and reason.code in HELD_BY_OTHERS:
        found = await desk.earliest(job)
        forecast = forecast if found is None else Forecast(starts_at=found[0], basis=found[1])
    return Story(reason, constraint_of(reason), short_of(reason), forecast, _leaving(desk, job, reason, key, now))


def constraint_of(reason: Reason) -> Constraint | None:
    """What binds, by code and resource."""
    if reason.resource == "link_mbps":
        return Constraint.LINK
    if reason.code == ReasonCode.WAITING_FOR_NODES and reason.resource in _HOST:
        return Constraint.HOST
    return _CONSTRAINTS.get(reason.code)


def short_of(reason: Reason) -> int | None:
    """How much of the resource is missing, where that can be told."""
    if reason.asked is None or reason.allowed is None:
        return None
    return max(0, (reason.used or 0) + reason.asked - reason.allowed) or None


def foretold(desk: Desk, board: Board | None, job: JobRow, stay: Stay | None, now: datetime) -> Forecast:
    """The start that the last plan expects, or that of the job's window."""
    kept = None if board is None else board.reservations.get(job.job_id)
    if kept is not None:
        return Forecast(starts_at=moment(kept.starts_us), basis=kept.basis, nodes=list(kept.nodes))
    if stay is not None and stay.reason.code == ReasonCode.WAITING_FOR_WINDOW and job.window is not None:
        window = desk.policies.rules.windows.get(job.window)
        opens = None if window is None else window.turns(now)
        return Forecast(starts_at=opens, basis=f"window {job.window} opens; what is free then is not known")
    if stay is None:
        return Forecast()
    return Forecast(starts_at=moment(stay.starts_us), basis=stay.basis)


def _leaving(desk: Desk, job: JobRow, reason: Reason, key: str, now: datetime) -> list[Leaving]:
    own = reason.code == ReasonCode.WAITING_FOR_QUOTA
    if not own and reason.code not in HELD_BY_OTHERS:
        return []
    rules, snapshot = desk.policies.rules, desk.snapshot
    fleet = snapshot.nodes.fleet(desk.limits.node_slots, snapshot.pools(rules))
    tenant = job.tenant if own else None
    return leaving(snapshot.attempts, fleet, job.demand, key, micros(now), rules.policy.grace_s, tenant)
