"""Checkpoints, reports and grants for tests of the core."""

from datetime import UTC, datetime, timedelta
from typing import Any

from contracts.attempts import AttemptSaved, AttemptUnsaved, Binding, Shard
from contracts.jobs import DatasetRef
from services.checkpoint.core.model import Checkpoint, Grant, Job, Phase

JOB_ID = "01890000-0000-7000-8000-000000000001"
INCARNATION = "01890000-0000-7000-8000-000000000002"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BINDING = Binding(dataset=DatasetRef(name="digits", version="v1"), code_version="a" * 64, seed=7)


def shard(member: int = 0, digest: str = "0") -> Shard:
    return Shard(member=member, uri=f"s3://farside/shard-{member}", sha256=digest * 64, size_bytes=10)


def job(fence: int = 1, *, finished: bool = False) -> Job:
    return Job(JOB_ID, "acme", fence, finished)


def checkpoint(attempt: int = 1, step: int = 10, phase: Phase = Phase.COMMITTED, **changes: Any) -> Checkpoint:
    members = changes.pop("members", 1)
    fields: dict[str, Any] = {
        "job_id": JOB_ID,
        "tenant": "acme",
        "attempt": attempt,
        "step": step,
        "phase": phase,
        "members": members,
        "binding": BINDING,
        "keep_last": 3,
        "begun_at": NOW - timedelta(hours=1),
        "decided_at": NOW,
        "shards": tuple(shard(member) for member in range(members)),
    }
    return Checkpoint(**{**fields, **changes})


def grant(attempt: int, step: int | None = None, from_attempt: int | None = None) -> Grant:
    return Grant(attempt, step, from_attempt)


def saved(attempt: int = 1, step: int = 10, member: int = 0, members: int = 1, **changes: Any) -> AttemptSaved:
    fields: dict[str, Any] = {
        "job_id": JOB_ID,
        "tenant": "acme",
        "attempt": attempt,
        "member": member,
        "node": "central-1",
        "incarnation": INCARNATION,
        "step": step,
        "members": members,
        "shard": shard(member),
        "binding": BINDING,
        "keep_last": 3,
        "stall_ms": 0,
        "persist_ms": 0,
        "saved_at": NOW,
    }
    return AttemptSaved(**{**fields, **changes})


def unsaved(attempt: int = 1, step: int = 10) -> AttemptUnsaved:
    return AttemptUnsaved(
        job_id=JOB_ID,
        tenant="acme",
        attempt=attempt,
        member=0,
        node="central-1",
        incarnation=INCARNATION,
        step=step,
        message="the store does not answer",
        failed_at=NOW,
    )
