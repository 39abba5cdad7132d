"""The one transition table for jobs, and the rule by which a change becomes a published transition."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from contracts.jobs import JobPhase
from services.scheduler.core.model import Attempt, Decision, Job, Limits, MemberPhase, Publish

_BACK = frozenset({JobPhase.WAITING, JobPhase.HELD})
_ENDING = frozenset({JobPhase.STOPPING, JobPhase.FINISHED}) | _BACK

TRANSITIONS: Mapping[JobPhase, frozenset[JobPhase]] = {
    JobPhase.ACCEPTED: _BACK | {JobPhase.ACCEPTED, JobPhase.PLACED, JobPhase.FINISHED},
    JobPhase.HELD: frozenset({JobPhase.HELD, JobPhase.WAITING, JobPhase.FINISHED}),
    JobPhase.WAITING: _BACK | {JobPhase.PLACED, JobPhase.FINISHED},
    JobPhase.PLACED: _ENDING | {JobPhase.PLACED, JobPhase.STARTING},
    JobPhase.STARTING: _ENDING | {JobPhase.STARTING, JobPhase.RUNNING, JobPhase.UNREACHABLE},
    JobPhase.RUNNING: _ENDING | {JobPhase.RUNNING, JobPhase.UNREACHABLE},
    JobPhase.UNREACHABLE: _ENDING | {JobPhase.STARTING, JobPhase.RUNNING, JobPhase.UNREACHABLE},
    JobPhase.STOPPING: _ENDING,
    JobPhase.FINISHED: frozenset(),
}


def live_phase(attempt: Attempt) -> JobPhase:
    """The phase of a job whose attempt is not over, from its members."""
    phases = {member.phase for member in attempt.members if not member.ended}
    if attempt.stop is not None:
        return JobPhase.STOPPING
    if any(member.unreachable for member in attempt.members):
        return JobPhase.UNREACHABLE
    if phases <= {MemberPhase.STARTED}:
        return JobPhase.RUNNING
    if all(member.phase is MemberPhase.OFFERED for member in attempt.members):
        return JobPhase.PLACED
    return JobPhase.STARTING


def commit(before: Job, after: Job, now: datetime) -> Decision:
    """Publish the change when anybody outside can see it; else keep the version."""
    if _seen(before) == _seen(after):
        return Decision(after)
    assert after.phase in TRANSITIONS[before.phase], f"job {before.spec.job_id}: {before.phase} to {after.phase}"
    job = replace(after, version=before.version + 1, updated_at=now)
    return Decision(job, (Publish(job),))


def _seen(job: Job) -> tuple[object, ...]:
    """What makes a transition. The figures of a waiting reason are kept up to date without one."""
    code, resource = (job.reason.code, job.reason.resource) if job.reason is not None else (None, None)
    endpoint = job.attempt.endpoint if job.attempt is not None else None
    asked = job.cancel_requested, job.held, job.spec.priority
    return job.phase, *asked, job.attempts, code, resource, endpoint


def wake_at(job: Job, limits: Limits) -> datetime | None:
    """When the next `Tick` is due, if no event comes before."""
    attempt = job.attempt
    if attempt is None or job.finished:
        return None
    grace = timedelta(seconds=limits.reconcile_grace_s)
    deadlines = [member.missing_since + grace for member in attempt.members if member.missing_since is not None]
    if attempt.stop is None and not attempt.all_claimed:
        deadlines.append(start_deadline(job, attempt))
    return min(deadlines, default=None)


def start_deadline(job: Job, attempt: Attempt) -> datetime:
    """When the offers of an attempt must have been taken up."""
    return attempt.placed_at + timedelta(seconds=job.spec.start_deadline_s)
