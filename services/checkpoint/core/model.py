r"""The state of checkpoints and what decisions lead to.

A checkpoint is one attempt's save of one step. Its way:

    collecting -> committing -> committed -> expiring -> expired
         \\            \\           \\-> damaged
          \\-> failed   \\-> failed

`committing` is an intent that is never taken back by the fence: the marker may already be on its way to the store. So a
restore rolls it forward before it chooses.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from contracts.attempts import Binding, Shard
from contracts.checkpoints import CheckpointFailure


class Phase(StrEnum):
    """Where a checkpoint stands."""

    COLLECTING = "collecting"
    COMMITTING = "committing"
    COMMITTED = "committed"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    FAILED = "failed"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Job:
    """A job as this service knows it. `fence` is the lowest attempt whose commits are still taken."""

    job_id: str
    tenant: str
    fence: int = 1
    finished: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """One attempt's save of one step. `decided_at` is when the last report came; it has all `shards` from then on."""

    job_id: str
    tenant: str
    attempt: int
    step: int
    phase: Phase
    members: int
    binding: Binding
    keep_last: int
    begun_at: datetime
    decided_at: datetime | None = None
    shards: tuple[Shard, ...] = ()

    @property
    def place(self) -> tuple[int, int]:
        """Attempt and step: unique within a job, and newer attempts come after older ones."""
        return self.attempt, self.step

    @property
    def writer(self) -> str:
        """Who writes the marker; the same in every try."""
        return f"{self.job_id}/{self.attempt}/{self.step}"

    @property
    def size_bytes(self) -> int:
        """All shards together."""
        return sum(shard.size_bytes for shard in self.shards)


@dataclass(frozen=True)
class Grant:
    """What an attempt was told to start from. `step` None: from nothing."""

    attempt: int
    step: int | None
    from_attempt: int | None


@dataclass(frozen=True)
class Keep:
    """Write the checkpoint as it is now."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class KeepShard:
    """Remember a member's shard of the checkpoint."""

    checkpoint: Checkpoint
    shard: Shard


@dataclass(frozen=True)
class Fail:
    """Write the checkpoint as failed (or damaged) and tell it."""

    checkpoint: Checkpoint
    cause: CheckpointFailure
    message: str


@dataclass(frozen=True)
class Expire:
    """Take the checkpoint out of reach; its objects are removed afterwards."""

    checkpoint: Checkpoint


Effect: TypeAlias = Keep | KeepShard | Fail | Expire
