"""Checkpoint files on their way to the store: noted down, uploaded, read back, announced.

In: files that the task has written. Out: `attempts.saved`, once the object has the promised digest, and before it
`attempts.unsaved`, once a step, at its first failure. While the store is away a file is tried again for as long as the
attempt lives, with a growing, capped delay; the task waits only when `limit` files are pending.
"""

import asyncio
from pathlib import Path

from contracts.attempts import Shard
from libs.kit.logs import get_logger
from libs.kit.retry import delays
from libs.objects import AsyncStore, DamagedError, ObjectsError, shard_key
from services.agent import store
from services.agent.activity import Activity
from services.agent.core.model import AttemptKey, Event, NotStored, Reported, Stored
from services.agent.errors import TaskRequestError
from services.agent.journal import Journal
from services.agent.progress import ProgressBuffer
from services.agent.server import SaveOp
from services.agent.store import Save

RETRY_FIRST_S = 0.25
RETRY_CAP_S = 5.0
DAMAGED_TRIES = 3


class Uploads:
    """The saves of one attempt, one after another in the order of their steps."""

    def __init__(
        self,
        *,
        key: AttemptKey,
        tenant: str,
        folder: Path,
        objects: AsyncStore,
        journal: Journal,
        progress: ProgressBuffer,
        activity: Activity,
        limit: int,
    ) -> None:
        self._key = key
        self._tenant = tenant
        self._folder = folder
        self._objects = objects
        self._journal = journal
        self._progress = progress
        self._activity = activity
        self._limit = limit
        self._changed = asyncio.Condition()
        self._pending: list[Save] = []
        self._accepting = asyncio.Lock()

    async def load(self) -> None:
        """Take up what an earlier agent left."""
        self._pending = await self._journal.read(lambda conn: store.pending_saves(conn, self._key))
        for _ in self._pending:
            self._activity.begin()

    @property
    def pending(self) -> tuple[int, ...]:
        """Steps that are not in the store yet."""
        return tuple(save.step for save in self._pending)

    async def accept(self, op: SaveOp) -> None:
        """Note a file down; waits while too many are pending. Raises TaskRequestError for a file that is not there."""
        async with self._accepting:
            if not _there(self._folder / op.file, op.size_bytes) and not await self._known(op.step):
                msg = f"save of step {op.step}: file {op.file!r} is not in the folder with {op.size_bytes} bytes"
                raise TaskRequestError(msg)
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._pending) < self._limit)
            await self._take(op)

    async def settled(self, wait_s: float) -> None:
        """Return when nothing is pending, or after `wait_s`."""
        try:
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: not self._pending)
        except TimeoutError:
            return

    async def newest(self) -> int | None:
        """The highest step in the store."""
        return await self._journal.read(lambda conn: store.newest_stored(conn, self._key))

    async def run(self) -> None:
        """Upload what is pending, for as long as the attempt lives."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._pending))
            save = self._pending[0]
            stored = await self._upload(save)
            await self._finish(save, stored)
            async with self._changed:
                self._pending.remove(save)
                self._activity.end()
                self._changed.notify_all()

    async def _known(self, step: int) -> bool:
        newest = await self.newest()
        return step in self.pending or (newest is not None and step <= newest)

    async def _take(self, op: SaveOp) -> None:
        now = self._journal.clock.now()
        save = Save(op.step, op.file, op.sha256, op.size_bytes, op.stall_ms, op.write_ms, now)
        if not await self._journal.read(lambda conn: store.take_save(conn, self._key, save)):
            return
        self._activity.begin()
        async with self._changed:
            self._pending.append(save)
            self._changed.notify_all()

    async def _upload(self, save: Save) -> Shard | None:
        """The shard in the store, or None when the file itself is not what was promised."""
        key = shard_key(self._tenant, self._key.job_id, save.step, self._key.attempt, self._key.member)
        damaged = 0
        for delay_s in delays(RETRY_FIRST_S, RETRY_CAP_S):
            try:
                digest = await self._objects.put(key, self._folder / save.file, save.sha256)
            except (DamagedError, FileNotFoundError) as error:
                damaged += 1
                await self._failed(save, error)
                if damaged == DAMAGED_TRIES:
                    return None
            except (ObjectsError, OSError) as error:
                await self._failed(save, error)
            else:
                uri = self._objects.uri(key)
                return Shard(member=self._key.member, uri=uri, sha256=digest.sha256, size_bytes=digest.size_bytes)
            await asyncio.sleep(delay_s)
        return None

    async def _finish(self, save: Save, shard: Shard | None) -> None:
        """Write the outcome down: progress first, then the save, in one transaction."""
        points, serial = self._progress.take()
        events: list[Event] = [Reported(points, serial)] if points else []
        if shard is not None:
            waited = self._journal.clock.now() - save.accepted_at
            persist_ms = save.write_ms + max(0, int(waited.total_seconds() * 1000))
            events.append(Stored(save.step, shard, save.stall_ms, persist_ms))
        try:
            async with self._journal.transaction() as tx:
                self._journal.apply_in(tx, self._key, *events)
                if shard is None:
                    store.drop_save(tx.conn, self._key, save.step)
                else:
                    store.mark_stored(tx.conn, self._key, save.step)
        except BaseException:
            self._progress.put_back(points)
            raise
        (self._folder / save.file).unlink(missing_ok=True)

    async def _failed(self, save: Save, error: Exception) -> None:
        """Say it; the first failure of a step to the fleet as well, however often the agent is started anew."""
        get_logger().warning(
            "save.retried", job=self._key.job_id, attempt=self._key.attempt, step=save.step, error=str(error)
        )
        async with self._journal.transaction() as tx:
            if store.tell_unsaved(tx.conn, self._key, save.step):
                self._journal.apply_in(tx, self._key, NotStored(save.step, str(error)))


def _there(path: Path, size_bytes: int) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size == size_bytes
