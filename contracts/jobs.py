"""Jobs: what a tenant asks for, and the full state that every job event carries."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator
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
    Word,
)

MAX_CARDS_PER_MEMBER = 64
MAX_MEMBERS = 4096
MAX_ACCELERATORS = 16
MAX_PARALLEL = 65_536
CARD_MILLI = 1000
CARD_MILLIONTHS = 1_000_000


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


def _stated(name: str, rule: JsonDict) -> JsonDict:
    """`rule` for whoever states the field `name`; null states nothing."""
    return {name: {"anyOf": [{"properties": {name: {"type": "null"}}}, rule]}}


def _each_once(models: list[str]) -> list[str]:
    """Models that differ in case only are one: the first spelling stands."""
    known: dict[str, str] = {}
    for model in models:
        known.setdefault(model.casefold(), model)
    return list(known.values())


# The cross-field rules of `Resources` in the words of JSON Schema.
_ONE_CARD: JsonDict = {"properties": {"cards": {"const": 1}}, "required": ["cards"]}
_EITHER_SHARE: JsonDict = {
    "properties": {"cards": {"const": 1}, "share_milli": {"type": "null"}},
    "required": ["cards"],
}
_ANY_OF_THESE: JsonDict = {"properties": {"accelerator": {"type": "null"}}}
_SHARES: JsonDict = {
    "dependentSchemas": {
        **_stated("share_milli", _ONE_CARD),
        **_stated("share_memory_bytes", _EITHER_SHARE),
        **_stated("accelerators", _ANY_OF_THESE),
    }
}


class Resources(Model):
    """What one member of the job needs on its node.

    A member with one card may ask for a share of it: thousandths, or so many bytes of its memory. A share never spans
    cards. `accelerators` are models any of which will do. `link_mbps` is kept free for it on the node's link.
    """

    model_config = ConfigDict(json_schema_extra=_SHARES)

    cards: Annotated[int, Field(ge=0, le=MAX_CARDS_PER_MEMBER)] = 0
    accelerator: Label | None = None
    memory_per_card_bytes: Count = 0
    cpu_milli: Count = 0
    memory_bytes: Count = 0
    huge_pages_bytes: Count = 0
    share_milli: Annotated[int, Field(ge=1, le=CARD_MILLI)] | None = None
    share_memory_bytes: Positive | None = None
    accelerators: (
        Annotated[list[Label], Field(min_length=1, max_length=MAX_ACCELERATORS), AfterValidator(_each_once)] | None
    ) = None
    link_mbps: Count | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        shared = self.share_milli is not None or self.share_memory_bytes is not None
        if shared and self.cards != 1:
            msg = f"cards is {self.cards}: a share is taken of one card, so state cards 1, or no share"
            raise ValueError(msg)
        if self.share_milli is not None and self.share_memory_bytes is not None:
            msg = "share_milli is stated beside share_memory_bytes: state one of them"
            raise ValueError(msg)
        if self.accelerator is not None and self.accelerators is not None:
            msg = "accelerator is stated beside accelerators: state one of them"
            raise ValueError(msg)
        return self

    @property
    def models(self) -> tuple[str, ...]:
        """The card models that will do, in lower case and in order; empty: any."""
        stated = self.accelerators or ([] if self.accelerator is None else [self.accelerator])
        return tuple(sorted({model.casefold() for model in stated}))


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


class TopologyLevel(StrEnum):
    """How near to each other the members of a gang are; `link`: the cards of each member share a card link too."""

    LINK = "link"
    NODE = "node"
    RACK = "rack"
    ZONE = "zone"


class Topology(Model):
    """All members within one node, rack or zone: `required`, or where that can be had. No level asks nothing."""

    level: TopologyLevel | None = None
    required: bool = False


class Image(Model):
    """A container image, and the code commit and dataset version that its reference stands for, for good."""

    reference: Label
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")] | None = None
    dataset: DatasetRef | None = None


class Recompute(StrEnum):
    """What of the activations is computed again instead of kept (gradient checkpointing)."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


Degree = Annotated[int, Field(ge=1, le=MAX_PARALLEL)]


class Parallel(Model):
    """How the job divides its model over its cards; the job's own script reads it, the scheduler does not.

    `virtual` is the number of pieces of the model on each pipeline stage (interleaved schedule); `precision` is the
    number format of the forward pass, such as bf16 or fp8.
    """

    tp: Degree = 1
    pp: Degree = 1
    dp: Degree = 1
    microbatch: Degree | None = None
    virtual: Degree | None = None
    recompute: Recompute | None = None
    precision: Word | None = None


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
    """What a job is. A job file holds these fields, all but `job_id` and `tenant`.

    `window` names hours of the scheduler's policy file, outside of which the job is not started. `preemptible` says
    whether a running attempt may be stopped, with its grace, for another job's sake; batch work may, unless it says no.
    """

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
    topology: Topology | None = None
    window: Name | None = None
    image: Image | None = None
    parallel: Parallel | None = None
    preemptible: bool | None = None

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
    def effective_preemptible(self) -> bool:
        """Whether a running attempt may be stopped for another job: as stated, else batch work only."""
        return self.effective_priority is Priority.BATCH if self.preemptible is None else self.preemptible

    @property
    def total_cards(self) -> int:
        """Cards held by all members together."""
        return self.members * self.resources.cards


class JobCancel(Model):
    """Cancel is a desired state: it may arrive before the job it names."""

    job_id: Uuid
    reason: Text = ""


class JobHold(Model):
    """Keep a job from being placed until it is released; a running attempt is left alone, which its event says."""

    job_id: Uuid
    reason: Text = ""


class JobRelease(Model):
    """End a hold."""

    job_id: Uuid


class JobReprioritize(Model):
    """Change the priority class of a job, also of one that runs: the newest of them counts.

    A class above the tenant's highest changes nothing; the job's event says so in `refused`.
    """

    job_id: Uuid
    priority: Priority
    reason: Text = ""


class Member(Model):
    """One member of an attempt: its index in the gang, its node and the card indexes it holds there.

    `accelerator` is the model of these cards, in lower case, and `card_memory_bytes` the memory of the largest, both as
    they were known when the member was placed. A member that holds a part of its one card says how much:
    `share_millionths` exactly, `share_milli` as it is charged (rounded down, at least 1).
    """

    index: Annotated[int, Field(ge=0, lt=MAX_MEMBERS)]
    node: Name
    tier: Tier
    cards: Annotated[list[Count], Field(max_length=MAX_CARDS_PER_MEMBER)]
    accelerator: Label | None = None
    card_memory_bytes: Count | None = None
    share_milli: Annotated[int, Field(ge=1, le=CARD_MILLI)] | None = None
    share_millionths: Annotated[int, Field(ge=1, le=CARD_MILLIONTHS)] | None = None


class AttemptState(Model):
    """One run of a job. `number` only grows; `generation` names the placement of the whole gang."""

    number: Positive
    generation: Positive
    members: Annotated[list[Member], Field(min_length=1, max_length=MAX_MEMBERS)]
    endpoint: Text | None = None
    progress_step: Count | None = None


class JobState(Model):
    """The full state of a job after a transition; `version` is the event's `ce-sequence`.

    `held`: it is not placed again until it is released. `refused`: this event tells that a command about the job was
    not carried out, and why; nothing else has changed.
    """

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
    held: bool = False
    refused: Reason | None = None
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
