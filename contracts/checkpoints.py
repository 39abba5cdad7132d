"""Checkpoints: what the checkpoint service has decided."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from contracts.attempts import Binding, Shard
from contracts.base import Count, Model, Name, Open, Positive, Text, Uri, Utc, Uuid
from contracts.jobs import MAX_MEMBERS


class CheckpointCommitted(Model):
    """`marker` (COMMIT.json) exists and names every shard; the checkpoint may be restored."""

    job_id: Uuid
    tenant: Name
    attempt: Positive
    step: Count
    marker: Uri
    shards: Annotated[list[Shard], Field(min_length=1, max_length=MAX_MEMBERS)]
    binding: Binding
    size_bytes: Count
    committed_at: Utc


class CheckpointFailure(StrEnum):
    """Why a checkpoint cannot be used."""

    FENCED = "fenced"
    DIGEST_MISMATCH = "digest_mismatch"
    MISSING_SHARD = "missing_shard"
    CONFLICT = "conflict"
    STORE_UNAVAILABLE = "store_unavailable"


class CheckpointFailed(Model):
    """A save that became no checkpoint, or a checkpoint found damaged."""

    job_id: Uuid
    tenant: Name
    attempt: Positive
    step: Count
    cause: Open[CheckpointFailure]
    message: Text
    failed_at: Utc


class CheckpointRestored(Model):
    """A restore was opened: the fence stands at `attempt`. `step` is None when there was nothing to restore."""

    job_id: Uuid
    tenant: Name
    attempt: Positive
    step: Count | None
    from_attempt: Count | None
    restored_at: Utc


class CheckpointExpired(Model):
    """A checkpoint beyond `keep_last` was removed: marker first, then shards."""

    job_id: Uuid
    tenant: Name
    attempt: Positive
    step: Count
    expired_at: Utc
