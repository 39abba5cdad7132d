"""The publish protocol on the store: what makes a checkpoint, proves it, and takes it away.

Shards lie under an immutable prefix of their attempt, put there by agents. Here the marker COMMIT.json is written last
and under a condition, read before anything is believed, and removed before the shards are. Every step may be repeated.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from contracts.attempts import AttemptSaved
from contracts.checkpoints import CheckpointFailure
from libs.objects import AsyncStore, Created, DamagedError, Exists, MissingError, keys
from services.checkpoint.core import marker
from services.checkpoint.core.model import Checkpoint
from services.checkpoint.core.orphans import Stored

VERIFIES_IN_FLIGHT = 4


@dataclass(frozen=True)
class Valid:
    """The checkpoint is whole."""


@dataclass(frozen=True)
class Unfit:
    """The checkpoint is not, or cannot be made, one to restore from."""

    cause: CheckpointFailure
    message: str


@dataclass(frozen=True)
class Taken:
    """The place of the marker holds another writer's."""

    writer: str


Published: TypeAlias = Valid | Unfit | Taken


def marker_of(checkpoint: Checkpoint) -> str:
    """The marker's key."""
    return keys.marker_key(checkpoint.tenant, checkpoint.job_id, checkpoint.step)


def prefix_of(checkpoint: Checkpoint) -> str:
    """The attempt's immutable prefix."""
    return keys.attempt_prefix(checkpoint.tenant, checkpoint.job_id, checkpoint.step, checkpoint.attempt)


class Protocol:
    """The store's side of checkpoints. Raises ObjectsError when the store is away; then nothing is known."""

    def __init__(self, store: AsyncStore) -> None:
        """Use `store`."""
        self._store = store
        self._verifying = asyncio.Semaphore(VERIFIES_IN_FLIGHT)

    def uri(self, key: str) -> str:
        """The URI of a key in the bucket."""
        return self._store.uri(key)

    def shard_uri(self, saved: AttemptSaved) -> str:
        """Where a member's shard must lie."""
        return self._store.uri(keys.shard_key(saved.tenant, saved.job_id, saved.step, saved.attempt, saved.member))

    async def publish(self, checkpoint: Checkpoint) -> Published:
        """Look that all shards are there in full, then write the marker unless there is one."""
        sizes = {item.key: item.size_bytes for item in await self._store.list(prefix_of(checkpoint))}
        for shard in checkpoint.shards:
            size_bytes = sizes.get(self._store.key(shard.uri))
            if size_bytes != shard.size_bytes:
                found = "is not there" if size_bytes is None else f"has {size_bytes} bytes"
                message = (
                    f"shard {shard.uri} {found}, {shard.size_bytes} bytes were reported: the next save replaces it"
                )
                return Unfit(CheckpointFailure.MISSING_SHARD, message)
        answer = await self._store.put_if_absent(marker_of(checkpoint), marker.build(checkpoint, prefix_of(checkpoint)))
        match answer:
            case Created():
                return Valid()
            case Exists(content):
                return self._whose(content, checkpoint)

    async def verify(self, checkpoint: Checkpoint) -> Valid | Unfit:
        """Read the marker and every shard, and compare digests."""
        try:
            content = await self._store.get(marker_of(checkpoint))
        except MissingError:
            message = f"step {checkpoint.step} has no COMMIT.json any more: it counts as not committed"
            return Unfit(CheckpointFailure.MISSING_SHARD, message)
        match marker.judge(content, checkpoint):
            case marker.Own():
                problems = await asyncio.gather(
                    *(self._prove(shard.uri, shard.sha256, shard.size_bytes) for shard in checkpoint.shards)
                )
                return next((problem for problem in problems if problem is not None), Valid())
            case marker.Foreign(writer):
                message = f"the COMMIT.json of step {checkpoint.step} is by {writer}, {checkpoint.writer} was recorded"
                return Unfit(CheckpointFailure.DIGEST_MISMATCH, message)

    async def remove_marker(self, checkpoint: Checkpoint) -> None:
        """Remove the checkpoint's own marker and no other, however late this call lands in the store."""
        key = marker_of(checkpoint)
        try:
            version = await self._store.get_version(key)
        except MissingError:
            return
        if marker.writer_of(version.content) in {checkpoint.writer, None}:
            await self._store.delete_version(key, version.etag)

    async def remove(self, checkpoint: Checkpoint) -> None:
        """Remove a checkpoint: the marker first, so that no marker ever names shards that are gone."""
        await self.remove_marker(checkpoint)
        await self._store.delete([self._store.key(shard.uri) for shard in checkpoint.shards])

    async def shards_of_job(self, tenant: str, job_id: str) -> list[Stored]:
        """Every shard object of a job, whatever is known of it. Complete, or an error."""
        found: list[Stored] = []
        for item in await self._store.list(keys.job_prefix(tenant, job_id)):
            parsed = keys.parse_shard_key(item.key)
            if parsed is not None:
                step, attempt = parsed
                found.append(Stored(item.key, attempt, step, item.modified_at))
        return found

    async def end_uploads(self, tenant: str, job_id: str, before: datetime) -> int:
        """End uploads by parts of a job's shards that were begun before a time and never finished."""
        return await self._store.abort_uploads(keys.job_prefix(tenant, job_id), before)

    async def remove_keys(self, object_keys: Sequence[str]) -> None:
        """Remove objects."""
        await self._store.delete(object_keys)

    async def admit(self, wait_s: float) -> None:
        """Wait for a store that stores; see `libs.objects.admission`."""
        await self._store.admit("probes/checkpoint", wait_s)

    async def answers(self, probe: str) -> None:
        """Raise unless the store takes a write and gives it back."""
        digest = await self._store.put(probe, probe.encode())
        assert digest.size_bytes == len(probe.encode())
        await self._store.delete([probe])

    def _whose(self, content: bytes, checkpoint: Checkpoint) -> Published:
        match marker.judge(content, checkpoint):
            case marker.Own():
                return Valid()
            case marker.Foreign(writer):
                return Taken(writer)

    async def _prove(self, uri: str, sha256: str, size_bytes: int) -> Unfit | None:
        async with self._verifying:
            try:
                digest = await self._store.digest(self._store.key(uri))
            except MissingError:
                return Unfit(CheckpointFailure.MISSING_SHARD, f"shard {uri} is gone")
            except DamagedError as error:
                return Unfit(CheckpointFailure.DIGEST_MISMATCH, str(error))
        if digest.sha256 == sha256:
            return None
        message = (
            f"shard {uri} has SHA-256 {digest.sha256} ({digest.size_bytes} bytes), {sha256} ({size_bytes}) was saved"
        )
        return Unfit(CheckpointFailure.DIGEST_MISMATCH, message)
