"""The life of an attempt: how it is claimed, stopped, and what its end means for the job.

One member's end other than by completion stops all; the attempt is over when each member has ended.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from contracts.attempts import ExitCause
from contracts.base import Reason, ReasonCode
from contracts.jobs import JobPhase, Outcome
from contracts.requests import ClaimReply
from services.scheduler.core import words
from services.scheduler.core.model import (
    Attempt,
    Charge,
    Claim,
    Decision,
    Effect,
    Free,
    Job,
    Limits,
    MemberPhase,
    MemberRun,
    Stop,
    StopMember,
    StopWhy,
)
from services.scheduler.core.transitions import commit, live_phase


def stop_attempt(
    before: Job,
    job: Job,
    stop: Stop,
    now: datetime,
    limits: Limits,
    *,
    effects: tuple[Effect, ...] = (),
    spare: int | None = None,
) -> Decision:
    """End all members: the first cause stays, offers not taken up are withdrawn, `spare` is stopped by its agent."""
    assert job.attempt is not None
    if job.attempt.stop is not None:
        return settle(before, job, now, limits, effects)
    members: list[MemberRun] = []
    orders: list[Effect] = []
    for member in job.attempt.members:
        ended = member
        if member.phase is MemberPhase.OFFERED:
            ended = replace(member, phase=MemberPhase.WITHDRAWN)
            orders.append(Free(job.attempt.number, ended, now))
        if not member.ended and member.index != spare:
            orders.append(_order_stop(job, member, stop))
        members.append(ended)
    attempt = replace(job.attempt, members=tuple(members), stop=stop)
    return settle(before, replace(job, attempt=attempt), now, limits, (*effects, *orders))


def _order_stop(job: Job, member: MemberRun, stop: Stop) -> StopMember:
    assert job.attempt is not None
    return StopMember(member.seat.node, job.attempt.number, member.index, job.spec.stop_grace_s, stop.reason.message)


def claim(job: Job, event: Claim, now: datetime, limits: Limits) -> tuple[Decision, ClaimReply]:
    """A node takes up its offer: granted once to one incarnation, told to go when every member has claimed.

    A node that restarted may claim again only while nobody can have been told to go: at most one execution.
    """
    refusal = _refusal(job, event)
    if refusal is not None:
        return Decision(job), ClaimReply(granted=False, message=refusal)
    attempt = job.attempt
    assert attempt is not None
    member = attempt.members[event.member]
    first = member.phase is MemberPhase.OFFERED
    claimed = replace(member, missing_since=None)
    if not attempt.all_claimed:
        claimed = replace(
            claimed,
            phase=MemberPhase.CLAIMED,
            incarnation=event.incarnation,
            endpoint=event.endpoint,
            claimed_at=now if first else member.claimed_at,
        )
    charge = (Charge(attempt.number, claimed, now),) if first else ()
    decision = settle(job, with_members(job, claimed), now, limits, charge)
    after = decision.job.attempt
    assert after is not None
    go = after.all_claimed
    return decision, ClaimReply(granted=True, go=go, rendezvous=after.members[0].endpoint if go else None)


def _refusal(job: Job, event: Claim) -> str | None:
    """Why a claim is refused, or None."""
    attempt = job.attempt
    if job.finished or attempt is None or attempt.number != event.attempt or attempt.generation != event.generation:
        return words.stray(job, event.attempt)
    if attempt.stop is not None:
        return f"attempt {attempt.number} is being stopped: {attempt.stop.reason.message}"
    if event.member >= len(attempt.members) or attempt.members[event.member].seat.node != event.node:
        return f"member {event.member} of attempt {attempt.number} was not offered to node {event.node}"
    member = attempt.members[event.member]
    if member.ended:
        return f"member {event.member} of attempt {attempt.number} has ended"
    if attempt.all_claimed and member.incarnation != event.incarnation:
        return (
            f"member {event.member} of attempt {attempt.number} is claimed by an earlier start of node {event.node}, "
            "which may have been told to go: report it as never started"
        )
    return None


def settle(before: Job, job: Job, now: datetime, limits: Limits, effects: tuple[Effect, ...] = ()) -> Decision:
    """Bring the job's phase in line with its members; when each has ended, the attempt is over."""
    attempt = job.attempt
    assert attempt is not None
    if attempt.over:
        return commit(before, _concluded(job, attempt, now, limits), now).then(*effects)
    phase = live_phase(attempt)
    held = job.reason is not None and job.reason.code is ReasonCode.ON_HOLD
    reason = job.reason if held or phase is JobPhase.UNREACHABLE else None
    if attempt.stop is not None:
        reason = attempt.stop.reason
    return commit(before, replace(job, phase=phase, reason=reason), now).then(*effects)


def _concluded(job: Job, attempt: Attempt, now: datetime, limits: Limits) -> Job:
    stop = attempt.stop
    if all(_succeeded(member, stop) for member in attempt.members):
        return finish(job, Outcome.SUCCEEDED, words.completed(attempt))
    assert stop is not None, f"job {job.spec.job_id}: attempt {attempt.number} ended without a cause"
    match stop.why:
        case StopWhy.CANCELLED:
            return finish(job, Outcome.CANCELLED, stop.reason)
        case StopWhy.MAX_RUNTIME:
            return finish(job, Outcome.FAILED, stop.reason)
        case StopWhy.PREEMPTED:
            return _requeued(job, stop.reason, now, limits)
        case StopWhy.FAILED if not _infrastructure_too(attempt):
            return _after_failure(job, stop, now, limits)
        case StopWhy.FAILED | StopWhy.LOST | StopWhy.NOT_CLAIMED:
            return _after_loss(job, stop, now, limits)


def _succeeded(member: MemberRun, stop: Stop | None) -> bool:
    if member.phase is not MemberPhase.EXITED:
        return False
    preempted = stop is not None and stop.why is StopWhy.PREEMPTED
    return member.cause is ExitCause.COMPLETED or (preempted and member.exit_code == 0)


def _infrastructure_too(attempt: Attempt) -> bool:
    """A member may fail because another's node died first; that is no failure of the job's own."""
    return any(m.phase is MemberPhase.LOST or m.cause is ExitCause.LEASE_EXPIRED for m in attempt.members)


def _after_failure(job: Job, stop: Stop, now: datetime, limits: Limits) -> Job:
    counted = replace(job, failures=job.failures + 1)
    if counted.failures > job.spec.retries:
        return finish(counted, Outcome.FAILED, words.retries_exhausted(job.spec, stop.reason))
    return _requeued(counted, stop.reason, now, limits)


def _after_loss(job: Job, stop: Stop, now: datetime, limits: Limits) -> Job:
    counted = replace(job, losses=job.losses + 1, avoid=_nodes_at_fault(job, stop), damaged_at=now)
    if counted.losses > limits.max_losses:
        return finish(counted, Outcome.FAILED, words.too_many_losses(counted.losses, limits, stop.reason))
    return _requeued(counted, stop.reason, now, limits)


def _nodes_at_fault(job: Job, stop: Stop) -> tuple[str, ...]:
    """The node of the first cause, unless its task failed, and those whose member was lost, not taken up or killed."""
    assert job.attempt is not None
    neutral = {ExitCause.COMPLETED, ExitCause.FAILED, ExitCause.HUNG, ExitCause.STOPPED}
    at_fault = (
        member.seat.node
        for member in job.attempt.members
        if member.phase is not MemberPhase.EXITED or member.cause not in neutral
    )
    first = {stop.node} if stop.node is not None and stop.why is StopWhy.LOST else set[str]()
    return tuple(sorted({*at_fault, *first}))


def _requeued(job: Job, reason: Reason, now: datetime, limits: Limits) -> Job:
    """Back to the queue; from the second end on it rests first, longer each time."""
    ends = job.failures + job.losses
    rest_s = 0.0
    if ends > 1:
        rest_s = min(limits.backoff_cap_s, limits.backoff_first_s * 2.0 ** min(ends - 2, 32))
    phase = JobPhase.HELD if job.held else JobPhase.WAITING
    shown = words.on_hold("") if job.held else reason
    not_before = now + timedelta(seconds=rest_s) if rest_s else None
    return replace(job, phase=phase, reason=shown, attempt=None, not_before=not_before, progress_step=None)


def finish(job: Job, outcome: Outcome, reason: Reason) -> Job:
    """The job with its outcome."""
    return replace(job, phase=JobPhase.FINISHED, outcome=outcome, reason=reason)


def with_members(job: Job, *changed: MemberRun) -> Job:
    """The job with some members of its attempt replaced."""
    assert job.attempt is not None
    by_index = {member.index: member for member in changed}
    members = tuple(by_index.get(member.index, member) for member in job.attempt.members)
    return replace(job, attempt=replace(job.attempt, members=members))


def lose_members(
    job: Job, attempt: Attempt, gone: list[MemberRun], reason: Reason, now: datetime, limits: Limits
) -> Decision:
    """Members of which nothing more will be heard: their cards are free, the others are stopped."""
    lost = [replace(m, phase=MemberPhase.LOST, unreachable=False, missing_since=None) for m in gone]
    frees = tuple(Free(attempt.number, member, now) for member in lost)
    return stop_attempt(job, with_members(job, *lost), Stop(StopWhy.LOST, reason), now, limits, effects=frees)
