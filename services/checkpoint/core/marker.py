"""COMMIT.json: the object whose presence makes a checkpoint, and what to think of one that is there already."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationError

from contracts.attempts import Binding, Shard
from contracts.base import Count, Model, Name, Text, Utc, Uuid
from services.checkpoint.core.model import Checkpoint


class Marker(Model):
    """The content of COMMIT.json. `writer` is the same in every try of one commit."""

    format: Literal[1]
    writer: Text
    job_id: Uuid
    tenant: Name
    attempt: Annotated[int, Field(ge=1)]
    step: Count
    prefix: Text
    shards: Annotated[list[Shard], Field(min_length=1)]
    binding: Binding
    committed_at: Utc


@dataclass(frozen=True)
class Own:
    """The marker is ours, from an earlier try perhaps."""


@dataclass(frozen=True)
class Foreign:
    """The marker is another writer's (`writer` says whose), or ours with other content, or not readable."""

    writer: str


Verdict: TypeAlias = Own | Foreign


def build(checkpoint: Checkpoint, prefix: str) -> bytes:
    """The marker of a complete checkpoint; the same bytes in every try."""
    assert checkpoint.decided_at is not None, f"checkpoint {checkpoint.writer} is not complete"
    assert len(checkpoint.shards) == checkpoint.members, f"checkpoint {checkpoint.writer} lacks shards"
    marker = Marker(
        format=1,
        writer=checkpoint.writer,
        job_id=checkpoint.job_id,
        tenant=checkpoint.tenant,
        attempt=checkpoint.attempt,
        step=checkpoint.step,
        prefix=prefix,
        shards=list(checkpoint.shards),
        binding=checkpoint.binding,
        committed_at=checkpoint.decided_at,
    )
    return marker.model_dump_json(indent=1).encode()


def writer_of(content: bytes) -> str | None:
    """Who wrote a marker; None when it is not readable."""
    try:
        return Marker.model_validate_json(content).writer
    except ValidationError:
        return None


def place_of(writer: str, job_id: str) -> tuple[int, int] | None:
    """Attempt and step of a writer of this job; None for any other text."""
    match = re.fullmatch(rf"{re.escape(job_id)}/([0-9]+)/([0-9]+)", writer)
    return None if match is None else (int(match[1]), int(match[2]))


def judge(content: bytes, checkpoint: Checkpoint) -> Verdict:
    """Whose marker is this? Ours only when writer, shards and binding are all ours."""
    try:
        marker = Marker.model_validate_json(content)
    except ValidationError:
        return Foreign("nobody: it is not readable")
    same = marker.writer == checkpoint.writer and tuple(marker.shards) == checkpoint.shards
    if same and marker.binding == checkpoint.binding:
        return Own()
    return Foreign(marker.writer)
