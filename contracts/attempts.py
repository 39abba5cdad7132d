"""Attempts: what agents report of the work on their node."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, FiniteFloat

from contracts.base import Count, Label, Model, Name, Open, Positive, Sha256, Text, Uri, Utc, Uuid
from contracts.jobs import DatasetRef

MAX_POINTS = 2048


class AttemptRef(Model):
    """Which member of which attempt of which job, and the agent start that speaks for it."""

    job_id: Uuid
    tenant: Name
    attempt: Positive
    member: Count
    node: Name
    incarnation: Uuid


class AttemptStarted(AttemptRef):
    """The task's process exists."""

    started_at: Utc


class ProgressPoint(Model):
    """One report of the task: its step and named figures at that step."""

    step: Count
    metrics: Annotated[dict[Label, FiniteFloat], Field(max_length=64)] = {}


class AttemptProgressed(AttemptRef):
    """Progress reports since the last such message, oldest first."""

    points: Annotated[list[ProgressPoint], Field(min_length=1, max_length=MAX_POINTS)]
    reported_at: Utc


class AttemptReady(AttemptRef):
    """An inference attempt serves at `endpoint`."""

    endpoint: Text
    ready_at: Utc


class Binding(Model):
    """What a checkpoint is bound to; a restore under another binding is refused (FEATURES row C3)."""

    dataset: DatasetRef | None = None
    code_version: Sha256 | None = None
    seed: Count | None = None


class Shard(Model):
    """One member's part of a checkpoint, a safetensors object under the attempt's immutable prefix."""

    member: Count
    uri: Uri
    sha256: Sha256
    size_bytes: Count


class AttemptSaved(AttemptRef):
    """One member has uploaded its shard of the checkpoint at `step`; all `members` shards make a commit."""

    step: Count
    members: Positive
    shard: Shard
    binding: Binding
    keep_last: Positive
    stall_ms: Count
    persist_ms: Count
    saved_at: Utc


class AttemptUnsaved(AttemptRef):
    """One member could not bring its shard of `step` to the store; it tries on by itself for as long as it lives."""

    step: Count
    message: Text
    failed_at: Utc


class AttemptHung(AttemptRef):
    """No progress for longer than the job allows; the agent stops the attempt."""

    silent_s: Count
    hung_at: Utc


class ExitCause(StrEnum):
    """Why a task ended, as its agent knows it. Only `completed` and `failed` are the task's own doing.

    A reader takes a cause that it does not know as the node's doing.
    """

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    MAX_RUNTIME = "max_runtime"
    HUNG = "hung"
    LEASE_EXPIRED = "lease_expired"
    NEVER_STARTED = "never_started"
    KILLED = "killed"


class AttemptExited(AttemptRef):
    """The member's process group is gone. `exit_code` is None where no shim lived to write it down."""

    cause: Open[ExitCause]
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
    message: Text = ""
    ended_at: Utc
