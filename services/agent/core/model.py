"""The words of the agent's decisions: the journal row, events, effects, and what is owed in each phase."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from contracts import registry
from contracts.attempts import ExitCause, ProgressPoint, Shard
from contracts.base import Model
from contracts.jobs import Member
from contracts.work import WorkRun


class Phase(StrEnum):
    """How far an attempt has come on this node."""

    OFFERED = "offered"
    CLAIMED = "claimed"
    PREPARED = "prepared"
    SPAWNING = "spawning"
    RUNNING = "running"
    ENDING = "ending"
    EXITED = "exited"


BEFORE_SPAWN = frozenset({Phase.OFFERED, Phase.CLAIMED, Phase.PREPARED})
ALIVE = frozenset({Phase.SPAWNING, Phase.RUNNING})


@dataclass(frozen=True, order=True)
class AttemptKey:
    """One member of one attempt of one job."""

    job_id: str
    attempt: int
    member: int


def own_member(run: WorkRun) -> Member:
    """The member of the gang that an offer is about."""
    return next(member for member in run.members if member.index == run.member)


@dataclass(frozen=True)
class StopOrder:
    """The attempt shall end: why, and how long the task may take over it."""

    cause: ExitCause
    grace_s: float
    reason: str


@dataclass(frozen=True)
class Inputs:
    """What was fetched for the task: folder of its dataset, and the checkpoint it starts from."""

    dataset: str | None = None
    restore_step: int | None = None
    restore_file: str | None = None


@dataclass(frozen=True)
class Ended:
    """How the task ended, as its shim wrote it down or as the agent found it; `unseen` where nobody watched it end."""

    cause: ExitCause
    exit_code: int | None
    message: str
    started_at: datetime | None
    ended_at: datetime
    unseen: bool = False


@dataclass(frozen=True)
class Attempt:
    """One row of the journal. `run` is None for a tombstone: a stop that came before its offer.

    `sequence` counts the messages sent about the attempt, `serial` the progress points that are kept for good.
    `epoch` names the unbroken lease under which the attempt may start.
    """

    key: AttemptKey
    tenant: str
    phase: Phase
    offered_at: datetime
    run: WorkRun | None = None
    endpoint: str | None = None
    epoch: int | None = None
    rendezvous: str | None = None
    inputs: Inputs = Inputs()
    stop: StopOrder | None = None
    ended: Ended | None = None
    sequence: int = 0
    serial: int = 0


@dataclass(frozen=True)
class Speaker:
    """The node, and this start of its agent."""

    node: str
    incarnation: str


# ---- events


@dataclass(frozen=True)
class Offered:
    """The scheduler offers an attempt; `endpoint` is an address kept free for the rendezvous of the gang."""

    run: WorkRun
    endpoint: str


@dataclass(frozen=True)
class StopAsked:
    """The scheduler wants the attempt to end."""

    key: AttemptKey
    tenant: str
    order: StopOrder


@dataclass(frozen=True)
class Claimed:
    """The scheduler's answer to a claim, asked under lease `epoch`. No answer at all counts as a refusal."""

    granted: bool
    go: bool
    rendezvous: str | None
    message: str
    epoch: int


@dataclass(frozen=True)
class Prepared:
    """Code, data and checkpoint are on the node, and the fence stands at this attempt."""

    inputs: Inputs


@dataclass(frozen=True)
class PrepareFailed:
    """Something the job needs cannot be had: for good (`hopeless`), or not in the time this node gives it."""

    message: str
    hopeless: bool = True


@dataclass(frozen=True)
class TaskSeen:
    """The task's process exists since `started_at`."""

    started_at: datetime


@dataclass(frozen=True)
class TaskEnded:
    """The task and all it started are gone."""

    ended: Ended


@dataclass(frozen=True)
class NeverStarted:
    """No shim took the attempt up, and now none can."""

    message: str


@dataclass(frozen=True)
class Reported:
    """Progress points of the task, each once."""

    points: Sequence[ProgressPoint]
    serial: int


@dataclass(frozen=True)
class ReadySaid:
    """The task serves at `endpoint`."""

    endpoint: str


@dataclass(frozen=True)
class Stored:
    """The member's shard of a checkpoint is in the store, verified."""

    step: int
    shard: Shard
    stall_ms: int
    persist_ms: int


@dataclass(frozen=True)
class NotStored:
    """The member's shard of a checkpoint could not be brought to the store; it is tried again."""

    step: int
    message: str


@dataclass(frozen=True)
class FellSilent:
    """No progress for `silent_s`, which is longer than the job allows."""

    silent_s: int


@dataclass(frozen=True)
class Drained:
    """Saves, logs and progress have left the node, or their time is over."""


Event: TypeAlias = (
    Offered
    | StopAsked
    | Claimed
    | Prepared
    | PrepareFailed
    | TaskSeen
    | TaskEnded
    | NeverStarted
    | Reported
    | ReadySaid
    | Stored
    | NotStored
    | FellSilent
    | Drained
)

# ---- effects


@dataclass(frozen=True)
class Record:
    """Write the row."""

    attempt: Attempt


@dataclass(frozen=True)
class Emit:
    """Send an event about the attempt; its number in order is `sequence`."""

    message: registry.Message[Any]
    body: Model
    sequence: int


Effect: TypeAlias = Record | Emit


class Duty(StrEnum):
    """What the shell owes an attempt in its present phase."""

    CLAIM = "claim"
    PREPARE = "prepare"
    SPAWN = "spawn"
    WATCH = "watch"
    DRAIN = "drain"
    NONE = "none"


def duty(attempt: Attempt) -> Duty:
    """What is to be done next, read from the row alone, so that a restarted agent goes on where the last one stood."""
    match attempt.phase:
        case Phase.OFFERED | Phase.PREPARED:
            return Duty.CLAIM
        case Phase.CLAIMED:
            return Duty.PREPARE
        case Phase.SPAWNING:
            return Duty.SPAWN
        case Phase.RUNNING:
            return Duty.WATCH
        case Phase.ENDING:
            return Duty.DRAIN
        case Phase.EXITED:
            return Duty.NONE
