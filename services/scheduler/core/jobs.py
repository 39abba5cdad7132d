"""The life of a job: what each event makes of it.

In: a job, an event, the time and the bounds of patience. Out: the job afterwards and the effects of the change. Nothing
here asks whether a message came twice or late: an event that no longer fits changes nothing.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from contracts.attempts import ExitCause
from contracts.base import Open, ReasonCode
from contracts.jobs import JobPhase, OnPartition, Outcome
from services.scheduler.core import words
from services.scheduler.core.attempts import finish, lose_members, settle, stop_attempt, with_members
from services.scheduler.core.model import (
    HELD_BY_NODE,
    Allocate,
    Asked,
    Attempt,
    Cancel,
    Decision,
    Event,
    Exited,
    Free,
    Hold,
    Hung,
    Job,
    Limits,
    MemberPhase,
    MemberRun,
    NodeBack,
    NodeLost,
    Offer,
    Place,
    Preempt,
    Publish,
    Ready,
    Release,
    Reprioritize,
    Started,
    Stop,
    StopMember,
    StopWhy,
    Tick,
    Wait,
)
from services.scheduler.core.transitions import commit, start_deadline


def decide(job: Job, event: Event, now: datetime, limits: Limits) -> Decision:
    """What `event` makes of `job`. A finished job stays as it is: the first terminal state wins."""
    match event:
        case Cancel() | Hold() | Release() | Reprioritize() | Preempt():
            return _asked(job, event, now, limits)
        case Wait() | Place() | Tick():
            return _scheduled(job, event, now, limits)
        case Started() | Ready() | Hung() | Exited():
            return _reported(job, event, now, limits)
        case NodeLost():
            return _node_lost(job, event, now, limits)
        case NodeBack():
            return _node_back(job, event, now, limits)
        case _:
            assert_never(event)


# ---- asked by people and by the placer -------------------------------------------------------------------------------


def _asked(job: Job, event: Asked, now: datetime, limits: Limits) -> Decision:
    if job.finished:
        return Decision(job)
    match event:
        case Cancel():
            return _cancel(job, event, now, limits)
        case Hold() | Release():
            return _hold_or_release(job, event, now)
        case Reprioritize():
            return _reprioritize(job, event, now)
        case Preempt():
            if job.attempt is None or job.attempt.stop is not None:
                return Decision(job)
            damaged_at = now if event.first else job.damaged_at
            leaving = replace(job, preempted_at=now, leaving_for=event.for_job, damaged_at=damaged_at)
            return stop_attempt(job, leaving, Stop(StopWhy.PREEMPTED, event.reason), now, limits)


def _cancel(job: Job, event: Cancel, now: datetime, limits: Limits) -> Decision:
    if job.cancel_requested:
        return Decision(job)
    stop = Stop(StopWhy.CANCELLED, words.cancelled(event.reason))
    wanted = replace(job, cancel_requested=True)
    if job.attempt is None:
        return commit(job, finish(wanted, Outcome.CANCELLED, stop.reason), now)
    if job.attempt.stop is None:
        return stop_attempt(job, wanted, stop, now, limits)
    return settle(job, replace(wanted, attempt=replace(job.attempt, stop=stop)), now, limits)


def _hold_or_release(job: Job, event: Hold | Release, now: datetime) -> Decision:
    if job.hold_changed_at is not None and event.at <= job.hold_changed_at:
        return Decision(job)
    changed = replace(job, held=isinstance(event, Hold), hold_changed_at=event.at)
    if isinstance(event, Hold) and job.placeable:
        changed = replace(changed, phase=JobPhase.HELD, reason=words.on_hold(event.reason))
    elif isinstance(event, Release) and job.phase is JobPhase.HELD:
        changed = replace(changed, phase=JobPhase.WAITING, reason=None)
    elif isinstance(event, Hold) and job.attempt is not None and job.attempt.stop is None:
        changed = replace(changed, reason=words.held_later(job.attempt, event.reason))
    elif isinstance(event, Release) and job.reason is not None and job.reason.code is ReasonCode.ON_HOLD:
        changed = replace(changed, reason=None)
    return commit(job, changed, now)


def _reprioritize(job: Job, event: Reprioritize, now: datetime) -> Decision:
    """The class of the job and of its attempt, if it has one; a refusal is told and leaves the job as it was."""
    if job.priority_changed_at is not None and event.at <= job.priority_changed_at:
        return Decision(job)
    seen = replace(job, priority_changed_at=event.at)
    if event.refused is not None:
        told = replace(seen, version=job.version + 1, updated_at=now)
        return Decision(told, (Publish(told, event.refused),))
    spec = job.spec.model_copy(update={"priority": event.priority})
    return commit(job, replace(seen, spec=spec), now)


def _scheduled(job: Job, event: Wait | Place | Tick, now: datetime, limits: Limits) -> Decision:
    match event:
        case Tick():
            return _tick(job, now, limits)
        case Wait():
            if not job.placeable:
                return Decision(job)
            return commit(job, replace(job, phase=JobPhase.WAITING, reason=event.reason), now)
        case Place():
            return _place(job, event, now) if job.placeable else Decision(job)


def _place(job: Job, event: Place, now: datetime) -> Decision:
    assert len(event.seats) == job.spec.members, f"job {job.spec.job_id}: {len(event.seats)} seats"
    number = job.attempts + 1
    members = tuple(MemberRun(index, seat) for index, seat in enumerate(event.seats))
    attempt = Attempt(number, generation=number, placed_at=now, members=members)
    after = replace(job, phase=JobPhase.PLACED, attempt=attempt, attempts=number, reason=None, damaged_at=None)
    decision = commit(job, replace(after, progress_step=None, not_before=None, leaving_for=None), now)
    allocations = (Allocate(number, member) for member in members)
    offers = (Offer(decision.job, attempt, member) for member in members)
    return decision.then(*allocations, *offers)


def _tick(job: Job, now: datetime, limits: Limits) -> Decision:
    attempt = job.attempt
    if attempt is None or job.finished:
        return Decision(job)
    grace = timedelta(seconds=limits.reconcile_grace_s)
    gone = [m for m in attempt.members if m.missing_since is not None and m.missing_since + grace <= now]
    if gone:
        return lose_members(job, attempt, gone, words.missing(gone[0], limits.reconcile_grace_s), now, limits)
    if attempt.stop is None and not attempt.all_claimed and start_deadline(job, attempt) <= now:
        late = next(member for member in attempt.members if member.phase is MemberPhase.OFFERED)
        return stop_attempt(job, job, Stop(StopWhy.NOT_CLAIMED, words.not_claimed(job.spec, late)), now, limits)
    return Decision(job)


# ---- reported by agents ----------------------------------------------------------------------------------------------


def _reported(job: Job, event: Started | Ready | Hung | Exited, now: datetime, limits: Limits) -> Decision:
    member = _live_member(job, event)
    if member is None:
        return _stop_stray(job, event) if isinstance(event, Started) else Decision(job)
    match event:
        case Started():
            started = replace(member, phase=MemberPhase.STARTED, missing_since=None)
            return settle(job, with_members(job, started), now, limits)
        case Ready():
            assert job.attempt is not None
            ready = replace(job, attempt=replace(job.attempt, endpoint=event.endpoint))
            return settle(job, ready, now, limits)
        case Hung():
            stop = Stop(StopWhy.FAILED, words.hung(member, event.silent_s))
            return stop_attempt(job, job, stop, now, limits, spare=member.index)
        case Exited():
            return _exited(job, member, event, now, limits)


def _exited(job: Job, member: MemberRun, event: Exited, now: datetime, limits: Limits) -> Decision:
    assert job.attempt is not None
    gone = replace(
        member,
        phase=MemberPhase.EXITED,
        cause=event.cause,
        exit_code=event.exit_code,
        unreachable=False,
        missing_since=None,
    )
    free = Free(job.attempt.number, gone, now)
    after = with_members(job, gone)
    if event.cause is ExitCause.COMPLETED:
        return settle(job, after, now, limits, (free,))
    return stop_attempt(
        job, after, Stop(_why(event.cause), words.exited(gone, event), gone.seat.node), now, limits, effects=(free,)
    )


def _why(cause: Open[ExitCause]) -> StopWhy:
    """Whose doing an end was; what a newer agent calls by another word is the node's."""
    match cause:
        case ExitCause.FAILED | ExitCause.HUNG:
            return StopWhy.FAILED
        case ExitCause.MAX_RUNTIME:
            return StopWhy.MAX_RUNTIME
        case _:
            return StopWhy.LOST


def _live_member(job: Job, event: Started | Ready | Hung | Exited) -> MemberRun | None:
    """The member that `event` speaks of, if it belongs to the attempt that runs now."""
    attempt = job.attempt
    if job.finished or attempt is None or attempt.number != event.attempt or event.member >= len(attempt.members):
        return None
    member = attempt.members[event.member]
    return None if member.ended or member.seat.node != event.node else member


def _stop_stray(job: Job, event: Started) -> Decision:
    """A process that runs without a right to is stopped; one that has exited meanwhile needs nothing."""
    if event.attempt == job.attempts and job.attempt is not None and event.member < len(job.attempt.members):
        member = job.attempt.members[event.member]
        if member.phase is MemberPhase.EXITED and member.seat.node == event.node:
            return Decision(job)
    return Decision(job, (_stray(job, event.node, event.attempt, event.member),))


def _stray(job: Job, node: str, attempt: int, member: int) -> StopMember:
    return StopMember(node, attempt, member, job.spec.stop_grace_s, words.stray(job, attempt))


# ---- told by inventory -----------------------------------------------------------------------------------------------


def _node_lost(job: Job, event: NodeLost, now: datetime, limits: Limits) -> Decision:
    attempt = job.attempt
    if job.finished or attempt is None:
        return Decision(job)
    there = [member for member in attempt.members if member.seat.node == event.node and not member.ended]
    held = [member for member in there if member.phase in HELD_BY_NODE]
    keep = job.spec.on_partition is OnPartition.KEEP
    if held and (keep or event.held):
        reason = words.silent(event.node) if keep else words.breaker(event.node)
        away = (replace(member, unreachable=True) for member in held)
        return settle(job, replace(with_members(job, *away), reason=reason), now, limits)
    if not there or event.held:
        return Decision(job)
    return lose_members(job, attempt, there, words.lost(event.node, there[0]), now, limits)


def _node_back(job: Job, event: NodeBack, now: datetime, limits: Limits) -> Decision:
    live: dict[tuple[int, int], MemberRun] = {}
    if job.attempt is not None and not job.finished:
        number = job.attempt.number
        live = {(number, m.index): m for m in job.attempt.members if m.seat.node == event.node and not m.ended}
    strays = [_stray(job, event.node, *pair) for pair in sorted(event.listed - live.keys()) if _is_stray(job, *pair)]
    if not live:
        return Decision(job, tuple(strays))
    seen = [_reconciled(member, event, pair in event.listed, now) for pair, member in live.items()]
    return settle(job, with_members(job, *seen), now, limits).then(*strays)


def _is_stray(job: Job, attempt: int, member: int) -> bool:
    if job.attempt is None or attempt != job.attempt.number or member >= len(job.attempt.members):
        return True
    return job.attempt.members[member].phase is not MemberPhase.EXITED


def _reconciled(member: MemberRun, event: NodeBack, listed: bool, now: datetime) -> MemberRun:  # noqa: FBT001
    """A member whose node is back: there, or missing; the node's list proves nothing of what it did not yet know."""
    if listed:
        return replace(member, unreachable=False, missing_since=None)
    if member.claimed_at is None or member.claimed_at >= event.since or member.missing_since is not None:
        return member
    if member.incarnation == event.incarnation:
        return member
    return replace(member, missing_since=now)
