"""Offer a commit with the number of an attempt that is dead, as its agent would if it came back."""

from contracts import registry
from contracts.attempts import AttemptSaved, Shard
from contracts.checkpoints import CheckpointCommitted, CheckpointFailure
from deploy.demo import finders
from deploy.demo.watcher import Watcher
from libs.cli.session import Session
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.objects import marker_key, shard_key

DEAD_ATTEMPT = 1
REFUSAL_S = 30.0


async def is_refused(session: Session, watcher: Watcher, newest: CheckpointCommitted, node: str, step: int) -> bool:
    """Offer `step` with a shard that is there and whole; True when it is fenced off and no marker was written."""
    job_id, tenant = newest.job_id, newest.tenant
    saved = await _save(session, watcher, newest, node, step)
    await session.publish(registry.ATTEMPTS_SAVED, saved, key=node, subject=job_id, actor=f"agent/{node}", id=new_id())
    failure = await watcher.wait("the refusal of the dead attempt's commit", finders.refused(job_id, step), REFUSAL_S)
    async with session.store() as store:
        markers = await store.list(marker_key(tenant, job_id, step))
    return failure.cause is CheckpointFailure.FENCED and failure.attempt == DEAD_ATTEMPT and not markers


async def _save(session: Session, watcher: Watcher, newest: CheckpointCommitted, node: str, step: int) -> AttemptSaved:
    shard, key = newest.shards[0], shard_key(newest.tenant, newest.job_id, step, DEAD_ATTEMPT, 0)
    async with session.store() as store:
        await store.copy(store.key(shard.uri), key, shard.size_bytes)
        uri = store.uri(key)
    return AttemptSaved(
        job_id=newest.job_id,
        tenant=newest.tenant,
        attempt=DEAD_ATTEMPT,
        member=0,
        node=node,
        incarnation=watcher.seen.nodes[node][0].incarnation,
        step=step,
        members=1,
        shard=Shard(member=0, uri=uri, sha256=shard.sha256, size_bytes=shard.size_bytes),
        binding=newest.binding,
        keep_last=3,
        stall_ms=0,
        persist_ms=0,
        saved_at=SystemClock().now(),
    )
