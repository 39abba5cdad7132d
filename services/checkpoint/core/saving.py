"""A member reports its shard: once all have, the checkpoint may be committed; older attempts' may not.

Or it reports that the shard could not be stored, which is trouble while that save may still become a checkpoint.

In: the job, what is known of this save, the report. Out: effects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from contracts.attempts import AttemptSaved, AttemptUnsaved, Shard
from contracts.checkpoints import CheckpointFailure
from services.checkpoint.core.model import Checkpoint, Effect, Fail, Job, Keep, KeepShard, Phase


@dataclass(frozen=True)
class Known:
    """What is known of a save so far: how many members have reported, and what the reporting one said before."""

    checkpoint: Checkpoint
    reported: int
    own: Shard | None


def take(job: Job, known: Known | None, saved: AttemptSaved, now: datetime) -> Sequence[Effect]:
    """Decide on one report. A report that comes twice changes nothing."""
    assert saved.keep_last >= 1, f"keep_last {saved.keep_last} would keep nothing"
    current = known.checkpoint if known is not None else _begin(saved, now)
    if current.phase is not Phase.COLLECTING:
        return ()
    if saved.attempt < job.fence:
        return (fenced(current, job.fence),)
    own = known.own if known is not None else None
    problem = _contradiction(current, own, saved)
    if problem is not None:
        return (Fail(replace(current, phase=Phase.FAILED), CheckpointFailure.CONFLICT, problem),)
    if own is not None:
        return ()
    reported = 1 + (known.reported if known is not None else 0)
    if reported == current.members:
        current = replace(current, phase=Phase.COMMITTING, decided_at=now)
    return (Keep(current), KeepShard(current, saved.shard))


def in_trouble(job: Job, known: Checkpoint | None, unsaved: AttemptUnsaved) -> bool:
    """Whether a failed upload is worth telling: not of an attempt that may not commit, nor of a decided save."""
    if job.finished or unsaved.attempt < job.fence:
        return False
    return known is None or known.phase is Phase.COLLECTING


def fenced(checkpoint: Checkpoint, fence: int) -> Fail:
    """What becomes of a save that a newer attempt has overtaken."""
    message = (
        f"attempt {checkpoint.attempt} may not commit step {checkpoint.step}: attempt {fence} has taken the job over, "
        "only its saves count now"
    )
    return Fail(replace(checkpoint, phase=Phase.FAILED), CheckpointFailure.FENCED, message)


def _begin(saved: AttemptSaved, now: datetime) -> Checkpoint:
    return Checkpoint(
        job_id=saved.job_id,
        tenant=saved.tenant,
        attempt=saved.attempt,
        step=saved.step,
        phase=Phase.COLLECTING,
        members=saved.members,
        binding=saved.binding,
        keep_last=saved.keep_last,
        begun_at=now,
    )


def _contradiction(current: Checkpoint, own: Shard | None, saved: AttemptSaved) -> str | None:
    """What in this report cannot be true together with the ones before."""
    where = f"step {saved.step} of attempt {saved.attempt}"
    if saved.shard.member >= saved.members:
        return f"{where}: member {saved.shard.member} saved, but there are {saved.members} members, counted from 0"
    if saved.members != current.members:
        return f"{where}: member {saved.shard.member} counts {saved.members} members, others counted {current.members}"
    if saved.binding != current.binding:
        return f"{where}: member {saved.shard.member} is bound to {saved.binding!r}, others to {current.binding!r}"
    if own is not None and own.sha256 != saved.shard.sha256:
        return f"{where}: member {own.member} reported SHA-256 {own.sha256} and then {saved.shard.sha256}"
    return None
