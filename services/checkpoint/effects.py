"""Doing what was decided: tables, and the events that tell it, in the caller's transaction."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from contracts import registry
from contracts.attempts import AttemptUnsaved
from contracts.checkpoints import (
    CheckpointCommitted,
    CheckpointExpired,
    CheckpointFailed,
    CheckpointFailure,
    CheckpointRestored,
)
from contracts.registry import Message
from libs.bus import Tx
from libs.db import Connection
from libs.kit.logs import get_logger
from libs.telemetry import context
from services.checkpoint import meters, store
from services.checkpoint.core.model import Checkpoint, Effect, Expire, Fail, Grant, Keep, KeepShard, Phase
from services.checkpoint.store import Origin

MAX_TEXT_CHARS = 4000
TRIED_ON = "it is tried on by itself"


@dataclass(frozen=True)
class Teller:
    """One transaction with the time at which it decides."""

    tx: Tx[Connection]
    now: datetime
    orphan_after: timedelta

    async def apply(self, effects: Iterable[Effect], origin: Origin) -> None:
        """Run effects in order."""
        for effect in effects:
            match effect:
                case Keep(checkpoint):
                    due_at = self.now if checkpoint.phase is Phase.COMMITTING else None
                    await store.save_checkpoint(self.tx.conn, checkpoint, origin, due_at=due_at)
                case KeepShard(checkpoint, shard):
                    await store.add_shard(self.tx.conn, checkpoint, shard)
                case Fail():
                    await self.fail(effect, origin)
                case Expire(checkpoint):
                    expiring = replace(checkpoint, phase=Phase.EXPIRING)
                    await store.move(self.tx.conn, expiring, Phase.COMMITTED, due_at=self.now)
                case _:
                    assert_never(effect)

    async def fail(self, effect: Fail, origin: Origin) -> None:
        """Write a checkpoint as failed or damaged, and tell it."""
        checkpoint, cause = effect.checkpoint, effect.cause.value
        due_at = self.now if checkpoint.phase is Phase.DAMAGED else None
        await store.save_checkpoint(
            self.tx.conn, checkpoint, origin, due_at=due_at, cause=cause, message=effect.message
        )
        await store.want_sweep(self.tx.conn, checkpoint.job_id, self.now + self.orphan_after)
        await self.tell_failed(checkpoint, effect.cause, effect.message, origin)

    async def tell_failed(
        self, save: Checkpoint | AttemptUnsaved, cause: CheckpointFailure, message: str, origin: Origin
    ) -> None:
        """Tell that a save or a checkpoint is in trouble, whatever becomes of it."""
        get_logger().warning(
            "checkpoint.failed",
            job=save.job_id,
            tenant=save.tenant,
            attempt=save.attempt,
            step=save.step,
            cause=cause.value,
            message=message,
        )
        body = CheckpointFailed(
            job_id=save.job_id,
            tenant=save.tenant,
            attempt=save.attempt,
            step=save.step,
            cause=cause,
            message=message[:MAX_TEXT_CHARS],
            failed_at=self.now,
        )
        meters.FAILED.add(cause=cause.value)
        await self._emit(registry.CHECKPOINTS_FAILED, body, origin)

    async def tell_committed(self, committed: CheckpointCommitted, origin: Origin) -> None:
        """Tell that a checkpoint may be restored from."""
        get_logger().info(
            "checkpoint.committed",
            job=committed.job_id,
            tenant=committed.tenant,
            attempt=committed.attempt,
            step=committed.step,
            size_bytes=committed.size_bytes,
        )
        meters.COMMITTED.add()
        meters.COMMITTED_BYTES.add(committed.size_bytes)
        await self._emit(registry.CHECKPOINTS_COMMITTED, committed, origin)

    async def tell_expired(self, checkpoint: Checkpoint, origin: Origin) -> None:
        """Tell that a checkpoint is gone."""
        get_logger().info("checkpoint.expired", job=checkpoint.job_id, attempt=checkpoint.attempt, step=checkpoint.step)
        body = CheckpointExpired(
            job_id=checkpoint.job_id,
            tenant=checkpoint.tenant,
            attempt=checkpoint.attempt,
            step=checkpoint.step,
            expired_at=self.now,
        )
        await self._emit(registry.CHECKPOINTS_EXPIRED, body, origin)

    async def tell_restored(self, job_id: str, tenant: str, grant: Grant, origin: Origin) -> None:
        """Tell that an attempt starts, and from what."""
        get_logger().info(
            "checkpoint.restored",
            job=job_id,
            tenant=tenant,
            attempt=grant.attempt,
            step=grant.step,
            from_attempt=grant.from_attempt,
        )
        body = CheckpointRestored(
            job_id=job_id,
            tenant=tenant,
            attempt=grant.attempt,
            step=grant.step,
            from_attempt=grant.from_attempt,
            restored_at=self.now,
        )
        await self._emit(registry.CHECKPOINTS_RESTORED, body, origin)

    async def _emit(
        self,
        message: Message[CheckpointCommitted | CheckpointFailed | CheckpointExpired | CheckpointRestored],
        body: CheckpointCommitted | CheckpointFailed | CheckpointExpired | CheckpointRestored,
        origin: Origin,
    ) -> None:
        sequence = await store.next_version(self.tx.conn, body.job_id)
        with context.use(context.current() or origin.trace):
            self.tx.emit(message, body, key=body.tenant, subject=body.job_id, sequence=sequence, actor=origin.actor)
