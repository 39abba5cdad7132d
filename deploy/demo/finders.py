"""What the demo waits for: each function gives a question to `Watcher.wait`, answered from what was seen."""

from collections.abc import Callable

from contracts.alerts import Alert, AlertPhase
from contracts.checkpoints import CheckpointCommitted, CheckpointFailed, CheckpointFailure, CheckpointRestored
from contracts.invoices import Invoice
from contracts.jobs import JobPhase, JobRejected, JobState
from contracts.nodes import NodePhase, NodeState
from deploy.demo.watcher import Seen, StoryError


def rejected(job_id: str) -> Callable[[Seen], JobRejected | None]:
    """The refusal of a job."""
    return lambda seen: seen.rejected.get(job_id)


def running(job_id: str) -> Callable[[Seen], JobState | None]:
    """The job, once it runs; StoryError when it ended before."""

    def found(seen: Seen) -> JobState | None:
        job = _known(seen, job_id)
        if job is not None and job.state is JobPhase.FINISHED:
            msg = f"job {job.spec.name} ended as {job.outcome} before it was seen running"
            raise StoryError(msg)
        return job if job is not None and job.state is JobPhase.RUNNING else None

    return found


def serving(job_id: str) -> Callable[[Seen], JobState | None]:
    """The job, once it runs and has an endpoint."""

    def found(seen: Seen) -> JobState | None:
        job = running(job_id)(seen)
        return job if job is not None and job.attempt is not None and job.attempt.endpoint is not None else None

    return found


def ended(job_id: str) -> Callable[[Seen], JobState | None]:
    """The job, once it is over."""

    def found(seen: Seen) -> JobState | None:
        job = _known(seen, job_id)
        return job if job is not None and job.state is JobPhase.FINISHED else None

    return found


def nth_checkpoint(job_id: str, count: int) -> Callable[[Seen], CheckpointCommitted | None]:
    """The job's `count`-th committed checkpoint."""

    def found(seen: Seen) -> CheckpointCommitted | None:
        running(job_id)(seen)
        committed = [item for item in seen.committed if item.job_id == job_id]
        return committed[count - 1] if len(committed) >= count else None

    return found


def lost(node: str) -> Callable[[Seen], NodeState | None]:
    """The node's state, once it is declared lost."""

    def found(seen: Seen) -> NodeState | None:
        return next((state for state in seen.nodes.get(node, []) if state.state is NodePhase.LOST), None)

    return found


def restored(job_id: str, attempt: int) -> Callable[[Seen], CheckpointRestored | None]:
    """The restore that an attempt opened."""

    def found(seen: Seen) -> CheckpointRestored | None:
        matches = (item for item in seen.restored if (item.job_id, item.attempt) == (job_id, attempt))
        return next(matches, None)

    return found


def reported(job_id: str, attempt: int, step: int) -> Callable[[Seen], bool | None]:
    """True once an attempt has reported `step` and committed it."""

    def found(seen: Seen) -> bool | None:
        report = seen.progress.get((job_id, attempt))
        is_committed = any((item.job_id, item.attempt, item.step) == (job_id, attempt, step) for item in seen.committed)
        return True if is_committed and report is not None and step in report.points else None

    return found


def refused(job_id: str, step: int) -> Callable[[Seen], CheckpointFailed | None]:
    """The refusal of a save of `step`."""

    def found(seen: Seen) -> CheckpointFailed | None:
        fenced = (item for item in seen.failed if item.cause is CheckpointFailure.FENCED)
        return next((item for item in fenced if (item.job_id, item.step) == (job_id, step)), None)

    return found


def alert(name: str, state: AlertPhase) -> Callable[[Seen], Alert | None]:
    """The first telling of an alert in this state."""
    return lambda seen: next((item for item in seen.alerts if (item.name, item.state) == (name, state)), None)


def invoice(close_id: str) -> Callable[[Seen], Invoice | None]:
    """The invoice of a closing."""
    return lambda seen: next((item for item in seen.invoices if item.close_id == close_id), None)


def _known(seen: Seen, job_id: str) -> JobState | None:
    refusal = seen.rejected.get(job_id)
    if refusal is not None:
        msg = f"job {refusal.name} was refused: {refusal.reason.code}: {refusal.reason.message}"
        raise StoryError(msg)
    return seen.jobs.get(job_id)
