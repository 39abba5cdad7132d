"""Shards that no checkpoint will ever name: uploaded by attempts that died before their save was complete."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from contracts.checkpoints import CheckpointFailure
from services.checkpoint.core.model import Checkpoint, Fail, Job, Phase
from services.checkpoint.core.saving import fenced

_IN_USE = frozenset({Phase.COLLECTING, Phase.COMMITTING, Phase.COMMITTED, Phase.EXPIRING})


@dataclass(frozen=True)
class Stored:
    """A shard object in the store."""

    key: str
    attempt: int
    step: int
    modified_at: datetime


@dataclass(frozen=True)
class Sweep:
    """Keys to remove, oldest first; `again` says that more are waiting for their age, or for a place under the cap."""

    remove: tuple[str, ...]
    again: bool


def abandoned(job: Job, checkpoints: Collection[Checkpoint], now: datetime, keep_s: float) -> list[Fail]:
    """Saves that will never be complete: begun long ago by attempts that are over."""
    before = now - timedelta(seconds=keep_s)
    return [
        fenced(one, job.fence) if one.attempt < job.fence else _incomplete(one)
        for one in checkpoints
        if one.phase is Phase.COLLECTING and one.begun_at < before and _is_over(job, one.attempt)
    ]


def sweep(
    job: Job, stored: Iterable[Stored], checkpoints: Collection[Checkpoint], now: datetime, keep_s: float, cap: int
) -> Sweep:
    """Choose what to remove.

    An object goes when its attempt can commit no more (fenced off, or the job is finished), no live checkpoint is of
    its attempt and step, and it is older than `keep_s`. At most `cap` go at a time.
    """
    assert cap >= 1, f"a cap of {cap} would remove nothing, ever"
    live = {one.place for one in checkpoints if one.phase in _IN_USE}
    before = now - timedelta(seconds=keep_s)
    dead = [one for one in stored if _is_over(job, one.attempt) and (one.attempt, one.step) not in live]
    old = sorted((one for one in dead if one.modified_at < before), key=_age)[:cap]
    return Sweep(remove=tuple(one.key for one in old), again=len(old) < len(dead))


def _is_over(job: Job, attempt: int) -> bool:
    return job.finished or attempt < job.fence


def _age(stored: Stored) -> tuple[datetime, str]:
    return stored.modified_at, stored.key


def _incomplete(checkpoint: Checkpoint) -> Fail:
    here = {shard.member for shard in checkpoint.shards}
    lacking: Sequence[int] = [member for member in range(checkpoint.members) if member not in here]
    message = (
        f"step {checkpoint.step} of attempt {checkpoint.attempt}: {len(here)} of {checkpoint.members} members saved, "
        f"member {lacking[0]} never reported and the job is over"
    )
    return Fail(replace(checkpoint, phase=Phase.FAILED), CheckpointFailure.MISSING_SHARD, message)
