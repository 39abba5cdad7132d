"""Jobs: what a tenant asks for, and the full state that every job event carries."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator
from pydantic.config import JsonDict

from contracts.base import (
    Count,
    Label,
    Model,
    Name,
    Positive,
    Priority,
    Reason,
    Seconds,
    Sha256,
    Text,
    Tier,
    Uri,
    Utc,
    Uuid,
)

MAX_CARDS_PER_MEMBER = 64
MAX_MEMBERS = 4096


class JobKind(StrEnum):
    """What a job does; decides where it may run (FEATURES row S2)."""

    TRAINING = "training"
    FINE_TUNING = "fine_tuning"
    INFERENCE = "inference"
    PREPROCESSING = "preprocessing"
    BATCH = "batch"


class JobPhase(StrEnum):
    """States of the one transition table for jobs."""

    ACCEPTED = "accepted"
    HELD = "held"
    WAITING = "waiting"
    PLACED = "placed"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    UNREACHABLE = "unreachable"
    FINISHED = "finished"


class Outcome(StrEnum):
    """How a finished job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class OnPartition(StrEnum):
    """What becomes of a job whose node falls silent."""

    REQUEUE = "requeue"
    KEEP = "keep"


class Resources(Model):
    """What one member of the job needs on its node."""

    cards: Annotated[int, Field(ge=0, le=MAX_CARDS_PER_MEMBER)] = 0
    accelerator: Label | None = None
    memory_per_card_bytes: Count = 0
    cpu_milli: Count = 0
    memory_bytes: Count = 0
    huge_pages_bytes: Count = 0


class Artefact(Model):
    """The job's code: a tar.gz on object storage, unpacked into the attempt's directory."""

    uri: Uri
    sha256: Sha256


class DatasetRef(Model):
    """A version of a dataset that transfer has staged and verified."""

    name: Name
    version: Name


class CheckpointPolicy(Model):
    """How often the job saves, and how many committed checkpoints are kept (at least one)."""

    interval_steps: Positive | None = None
    keep_last: Annotated[int, Field(ge=1, le=1000)] = 3


EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


# The cross-field rules of `JobSpec` in the words of JSON Schema, for those who publish without this package.
_FINITE_UNLESS_INFERENCE: JsonDict = {
    "if": {"properties": {"kind": {"const": "inference"}}, "required": ["kind"]},
    "else": {
        "properties": {"max_runtime_s": {"type": "integer"}, "on_partition": {"const": "requeue"}},
        "required": ["max_runtime_s"],
    },
}


class JobSpec(Model):
    """What a job is. A job file holds these fields, all but `job_id` and `tenant`."""

    model_config = ConfigDict(json_schema_extra=_FINITE_UNLESS_INFERENCE)

    job_id: Uuid
    tenant: Name
    name: Name
    kind: JobKind
    command: Annotated[list[Text], Field(min_length=1, max_length=256)]
    resources: Resources = Resources()
    members: Annotated[int, Field(ge=1, le=MAX_MEMBERS)] = 1
    priority: Priority | None = None
    team: Label | None = None
    labels: Annotated[dict[Label, Label], Field(max_length=64)] = {}
    env: Annotated[dict[EnvName, Text], Field(max_length=256)] = {}
    artefact: Artefact | None = None
    dataset: DatasetRef | None = None
    seed: Count | None = None
    checkpoint: CheckpointPolicy | None = None
    max_runtime_s: Seconds | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    start_deadline_s: Seconds = 300
    stop_grace_s: Annotated[int, Field(ge=0, le=3600)] = 10
    hang_timeout_s: Seconds | None = None
    on_partition: OnPartition = OnPartition.REQUEUE

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind is not JobKind.INFERENCE and self.max_runtime_s is None:
            msg = f"max_runtime_s is missing: a {self.kind} job states its longest run in seconds, for example 3600"
            raise ValueError(msg)
        if self.kind is not JobKind.INFERENCE and self.on_partition is OnPartition.KEEP:
            msg = f"on_partition is 'keep': only inference jobs may keep running unseen, a {self.kind} job is requeued"
            raise ValueError(msg)
        return self

    @property
    def effective_priority(self) -> Priority:
        """The stated class, or the default of the kind: inference online, batch work batch, the rest normal."""
        if self.priority is not None:
            return self.priority
        match self.kind:
            case JobKind.INFERENCE:
                return Priority.ONLINE
            case JobKind.BATCH | JobKind.PREPROCESSING:
                return Priority.BATCH
            case JobKind.TRAINING | JobKind.FINE_TUNING:
                return Priority.NORMAL

    @property
    def total_cards(self) -> int:
        """Cards held by all members together."""
        return self.members * self.resources.cards


class JobCancel(Model):
    """Cancel is a desired state: it may arrive before the job it names."""

    job_id: Uuid
    reason: Text = ""


class JobHold(Model):
    """Keep a job from being placed until it is released; a running attempt is left alone."""

    job_id: Uuid
    reason: Text = ""


class JobRelease(Model):
    """End a hold."""

    job_id: Uuid


class Member(Model):
    """One member of an attempt: its index in the gang, its node and the card indexes it holds there.

    `accelerator` is the model of these cards, in lower case, and `card_memory_bytes` the memory of the largest, both as
    they were known when the member was placed.
    """

    index: Annotated[int, Field(ge=0, lt=MAX_MEMBERS)]
    node: Name
    tier: Tier
    cards: Annotated[list[Count], Field(max_length=MAX_CARDS_PER_MEMBER)]
    accelerator: Label | None = None
    card_memory_bytes: Count | None = None


class AttemptState(Model):
    """One run of a job. `number` only grows; `generation` names the placement of the whole gang."""

    number: Positive
    generation: Positive
    members: Annotated[list[Member], Field(min_length=1, max_length=MAX_MEMBERS)]
    endpoint: Text | None = None
    progress_step: Count | None = None


class JobState(Model):
    """The full state of a job after a transition; `version` is the event's `ce-sequence`."""

    job_id: Uuid
    tenant: Name
    spec: JobSpec
    version: Positive
    state: JobPhase
    outcome: Outcome | None = None
    reason: Reason | None = None
    attempt: AttemptState | None = None
    attempts: Count = 0
    failures: Count = 0
    losses: Count = 0
    cancel_requested: bool = False
    submitted_at: Utc
    updated_at: Utc


class JobRejected(Model):
    """A submission that became no job. `submission_id` is the `ce-id` of the refused message."""

    submission_id: Text
    tenant: Name
    job_id: Uuid | None = None
    name: Text | None = None
    reason: Reason
    rejected_at: Utc
