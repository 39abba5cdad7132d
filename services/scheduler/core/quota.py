"""Quotas of a tenant: GPU-hours a month in exact milliseconds, cards and jobs at a time, the top priority class.

GPU-hours count what was used this month, what live attempts and waiting jobs may still use, and what is asked (Slurm
tells GrpTRESMins from GrpTRESRunMins in the same way). What a job leaves unused comes back when it ends. Beyond its own
hours a tenant borrows, up to a limit, what its cohort leaves of all its hours.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from contracts.base import Priority, Reason
from contracts.jobs import CARD_MILLI, JobKind, JobSpec
from services.scheduler.core import words

DAY_S = 24 * 3600
MS = timedelta(milliseconds=1)
RANK = {Priority.ONLINE: 0, Priority.NORMAL: 1, Priority.BATCH: 2}


@dataclass(frozen=True)
class Quotas:
    """What a tenant may have. `gpu_ms_month` is in card-milliseconds per UTC month.

    Of `cards` at a time `guarantee` are its own whenever it wants them; it holds at most `limit`, with what it borrows.
    `borrow_gpu_ms` is how much it may borrow of its cohort's GPU-hours.
    """

    gpu_ms_month: int
    cards: int
    concurrent_jobs: int
    top_priority: Priority
    guarantee: int = 0
    limit: int | None = None
    borrow_gpu_ms: int = 0

    @property
    def most_cards(self) -> int:
        """Cards at a time, borrowed ones included."""
        return self.cards if self.limit is None else self.limit


@dataclass(frozen=True)
class Tenant:
    """One tenant as its versioned file states it."""

    tenant: str
    version: int
    quotas: Quotas
    suspended: bool = False
    weight: float = 1.0
    cohort: str | None = None
    pools: tuple[str, ...] = ()
    images: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Holding:
    """Cards held by one member of a live attempt, until `held_to` or until now."""

    cards: int
    held_from: datetime
    held_to: datetime | None = None
    share_milli: int = CARD_MILLI


@dataclass(frozen=True)
class Commitment:
    """What one live attempt may use at most, and what its members hold. `rolling`: never used up."""

    commit_ms: int
    rolling: bool
    holdings: tuple[Holding, ...] = ()


@dataclass(frozen=True)
class Standing:
    """What counts against a tenant: ended holdings of this month, jobs without an attempt, live attempts."""

    ended_ms: int = 0
    queued_ms: int = 0
    live: tuple[Commitment, ...] = ()


@dataclass(frozen=True)
class CohortHours:
    """The GPU-hours of all tenants of a cohort together: theirs this month, and what counts against them."""

    name: str
    gpu_ms_month: int
    counted_ms: int


def commit_ms(spec: JobSpec, share_milli: int | None = None) -> int:
    """The card-milliseconds that one attempt of the job may use; an inference job commits one day ahead.

    `share_milli` is the share of a card that it takes at most, where it is stated in bytes.
    """
    share_milli = share_milli or spec.resources.share_milli
    longest_s = spec.max_runtime_s
    if spec.kind is JobKind.INFERENCE:
        longest_s = min(DAY_S, longest_s or DAY_S)
    assert longest_s is not None
    return spec.total_cards * longest_s * (share_milli or CARD_MILLI)


def is_rolling(spec: JobSpec) -> bool:
    """Whether the commitment is renewed for as long as the job lives."""
    return spec.kind is JobKind.INFERENCE and spec.max_runtime_s is None


def month_start(now: datetime) -> datetime:
    """The first instant of the UTC month of `now`."""
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def month_end(now: datetime) -> datetime:
    """The first instant of the UTC month after that of `now`."""
    return month_start(month_start(now) + timedelta(days=31))


def held_ms(holding: Holding, since: datetime, now: datetime) -> int:
    """Card-milliseconds of a holding between `since` and `now`."""
    begin = max(holding.held_from, since)
    end = min(holding.held_to or now, now)
    return holding.cards * holding.share_milli * max(0, (end - begin) // MS) // CARD_MILLI


def used_ms(standing: Standing, now: datetime) -> int:
    """Used this month, by what has ended and what is held."""
    held = (holding for commitment in standing.live for holding in commitment.holdings if holding.held_to is None)
    return standing.ended_ms + sum(held_ms(holding, month_start(now), now) for holding in held)


def counted_ms(standing: Standing, now: datetime) -> int:
    """Used this month, plus all that is committed."""
    total = used_ms(standing, now) + standing.queued_ms
    for commitment in standing.live:
        of_attempt = sum(held_ms(h, h.held_from, now) for h in commitment.holdings)
        remaining = commitment.commit_ms if commitment.rolling else max(0, commitment.commit_ms - of_attempt)
        total += remaining
    return total


def allowed_ms(quotas: Quotas, counted: int, cohort: CohortHours | None) -> int:
    """What the tenant may have this month: its own, and what its cohort leaves it to borrow; never below its own."""
    if cohort is None:
        return quotas.gpu_ms_month
    lent = cohort.gpu_ms_month - cohort.counted_ms + min(counted, cohort.counted_ms)
    return max(quotas.gpu_ms_month, min(quotas.gpu_ms_month + quotas.borrow_gpu_ms, lent))


def when_hours_fit(standing: Standing, asked: int, own_ms: int, now: datetime) -> str:
    """When a job of `asked` milliseconds would fit the tenant's own hours: what is sure, and what may come before."""
    if asked > own_ms:
        return f"it never fits: more than the whole month's {words.gpu_hours(own_ms)}"
    counted, turn = counted_ms(standing, now), month_end(now)
    committed = counted - used_ms(standing, now)
    then = counted_ms(replace(standing, ended_ms=0), turn)
    parts: list[str] = []
    if then + asked <= own_ms:
        parts.append(f"it fits when the month turns ({turn:%Y-%m-%d})")
    if committed and counted - committed + asked <= own_ms:
        sooner = "sooner " if parts else "it fits "
        parts.append(
            f"{sooner}if running and waiting jobs leave enough of the {words.gpu_hours(committed)} they may use"
        )
    return ", ".join(parts) or "it fits when the month has turned and what then still runs has ended"


def above_top(tenant: Tenant, priority: Priority, *, by_kind: bool = False) -> Reason | None:
    """Why the tenant may not have a job of this class, or None; `by_kind`: it follows from the kind of the job."""
    top = tenant.quotas.top_priority
    if RANK[priority] >= RANK[top]:
        return None
    return words.priority_not_allowed(tenant.tenant, priority, top, by_kind=by_kind)


def refusal(
    tenant: Tenant,
    spec: JobSpec,
    standing: Standing,
    now: datetime,
    share_milli: int | None = None,
    cohort: CohortHours | None = None,
) -> Reason | None:
    """Why the tenant may not submit this job at all, or None. What fits but not now is left to the plan.

    `share_milli` is the most of a card that each of its cards may count; `cohort` lends hours.
    """
    quotas = tenant.quotas
    above = above_top(tenant, spec.effective_priority, by_kind=spec.priority is None)
    if above is not None:
        return above
    if quotas.concurrent_jobs < 1:
        return words.never_fits(tenant.tenant, "jobs", 1, quotas.concurrent_jobs)
    cards = -(-spec.total_cards * (share_milli or CARD_MILLI) // CARD_MILLI)
    if cards > quotas.cards:
        return words.never_fits(tenant.tenant, "cards", cards, quotas.cards)
    if cards > quotas.most_cards:
        return words.exceeds_largest_quota(tenant.tenant, cards, quotas.most_cards)
    asked = commit_ms(spec, share_milli)
    counted = counted_ms(standing, now)
    allowed = allowed_ms(quotas, counted, cohort)
    if asked and counted + asked > allowed:
        when = when_hours_fit(standing, asked, quotas.gpu_ms_month, now)
        return words.gpu_hours_exceeded(tenant.tenant, counted, asked, allowed, when)
    return None
