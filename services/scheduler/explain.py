"""Why a job waits, in the words of the contract: what binds, what is short, who leaves, and when it may start."""

from dataclasses import dataclass
from datetime import datetime

from contracts.base import Open, Priority, Reason, ReasonCode
from contracts.queue import Constraint, Forecast, Leaving
from services.scheduler import remedies
from services.scheduler.core.arrays import Stay
from services.scheduler.desk import Board, Desk
from services.scheduler.memory.leaving import Bound, leaving
from services.scheduler.memory.rows import JobRow, micros, moment
from services.scheduler.memory.tenancy import below

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
# Of `waiting_for_nodes`; a limit of a node is one of `link_mbps` or, with cards, of `card_millionths`.
_BY_RESOURCE = {
    "cpu_milli": Constraint.HOST,
    "memory_bytes": Constraint.HOST,
    "slots": Constraint.HOST,
    "cards": Constraint.CARDS,
    "card_memory_bytes": Constraint.CARDS,
    "card_millionths": Constraint.LIMIT,
}
KEPT = "not known: what it could have is kept for a job that comes before it"
NO_END = "not known: no end of a job would make room enough"
# What somebody must do first, and nobody knows when.
_GATES: dict[str, str] = {
    ReasonCode.ON_HOLD: "not known: when it is released",
    ReasonCode.WAITING_FOR_DATASET: "not known: when its dataset is staged",
    ReasonCode.TENANT_SUSPENDED: "not known: when its tenant may run again",
    ReasonCode.UNKNOWN_WINDOW: "not known: its window is defined nowhere",
    ReasonCode.UNKNOWN_TENANT: "not known: its tenant has no file",
}
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
    frees: str
    priority: Priority
    tenant_share_milli: int | None


async def story(desk: Desk, board: Board | None, job: JobRow, key: str, now: datetime) -> Story:
    """What is known of a job that waits; `key` is who asks."""
    stay = None if board is None else board.stays.get(job.job_id)
    reason = job.reason if stay is None else stay.reason
    share = None if board is None else board.shares_milli.get(job.tenant)
    if reason is None:
        forecast = Forecast(basis="the next plan decides about it")
        return Story(None, None, None, forecast, [], "", job.priority, share)
    return Story(
        reason=reason,
        constraint=Constraint.REST if _rests(job, now) else constraint_of(reason),
        short=None if _rests(job, now) else short_of(reason),
        forecast=await _forecast(desk, board, job, stay, reason, now),
        leaving=[] if _rests(job, now) else _leaving(desk, job, reason, stay, key, now),
        frees="" if _rests(job, now) else _frees(desk, job, reason, stay),
        priority=job.priority,
        tenant_share_milli=share,
    )


def _rests(job: JobRow, now: datetime) -> bool:
    return job.not_before is not None and job.not_before > now


async def _forecast(
    desk: Desk, board: Board | None, job: JobRow, stay: Stay | None, reason: Reason, now: datetime
) -> Forecast:
    """The last plan's word, else the first time at which the room would be there."""
    if _rests(job, now):
        return Forecast(starts_at=job.not_before, basis="it rests after the end of its last attempt")
    forecast = foretold(desk, board, job, stay, now)
    if reason.code == ReasonCode.WAITING_FOR_NODES and remedies.hopeless(reason):
        back = stay is not None and stay.returns
        basis = "not known: when nodes that are not ready return" if back else NO_END
        return forecast if forecast.nodes else Forecast(basis=basis)
    if forecast.starts_at is None and reason.code == ReasonCode.RESERVED:
        return Forecast(basis=KEPT)
    if forecast.starts_at is not None or reason.code not in HELD_BY_OTHERS:
        return forecast
    found = await desk.earliest(job)
    return forecast if found is None else Forecast(starts_at=found[0], basis=found[1])


def constraint_of(reason: Reason) -> Constraint | None:
    """What binds, by code and resource."""
    resource = reason.resource or ""
    if resource == "link_mbps":
        return Constraint.LINK
    if resource.startswith("members_per_") or resource == "cards_per_link":
        return Constraint.TOPOLOGY
    if reason.code == ReasonCode.WAITING_FOR_NODES and resource in _BY_RESOURCE:
        return _BY_RESOURCE[resource]
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
        missing = remedies.kept_states(kept.nodes, desk.snapshot.nodes.rows)
        basis = f"{kept.basis} ({missing})" if missing else kept.basis
        return Forecast(starts_at=moment(kept.starts_us), basis=basis, nodes=list(kept.nodes))
    if stay is not None and stay.reason.code == ReasonCode.WAITING_FOR_WINDOW and job.window is not None:
        window = desk.policies.rules.windows.get(job.window)
        opens = None if window is None else window.turns(now)
        return Forecast(starts_at=opens, basis=f"window {job.window} opens; what is free then is not known")
    reason = job.reason if stay is None else stay.reason
    gate = _GATES.get(reason.code, "") if reason is not None else ""
    if stay is None:
        return Forecast(basis=gate)
    return Forecast(starts_at=moment(stay.starts_us), basis=stay.basis or gate)


def _frees(desk: Desk, job: JobRow, reason: Reason, stay: Stay | None) -> str:
    """By the nodes that the job's tenant may use."""
    rules, tenant = desk.policies.rules, desk.book.get(job.tenant)
    pools = {None, *(() if tenant is None else tenant.pools)}
    mine = (row for name, row in desk.snapshot.nodes.rows.items() if rules.pool_of(name) in pools)
    lenders = () if stay is None or stay.cohort is None else tuple(below(rules, desk.book.tenants, stay.cohort))
    return remedies.frees(reason, stay, job, mine, lenders)


def _leaving(desk: Desk, job: JobRow, reason: Reason, stay: Stay | None, key: str, now: datetime) -> list[Leaving]:
    own = reason.code == ReasonCode.WAITING_FOR_QUOTA
    if remedies.hopeless(reason) or (not own and reason.code not in HELD_BY_OTHERS):
        return []
    rules, snapshot = desk.policies.rules, desk.snapshot
    fleet = snapshot.nodes.fleet(desk.limits.node_slots, snapshot.pools(rules))
    bound = None
    if own:
        cohort = None if stay is None else stay.cohort
        tenants = [job.tenant] if cohort is None else below(rules, desk.book.tenants, cohort)
        bound = Bound(tuple(tenants), cards=reason.resource != "jobs")
    return leaving(
        snapshot.attempts,
        fleet,
        job.demand,
        reason.resource or "",
        bound,
        key=key,
        now_us=micros(now),
        grace_s=rules.policy.grace_s,
    )
