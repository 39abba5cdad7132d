"""A task's output on its way to the store, in chunks, while the task runs.

In: segments that the shim writes. Out: objects `logs/.../<chunk>.log`, in order; together they are the output, but for
what the bound left out, which is said in its place. A chunk that was sent but not yet marked is sent again whole, under
its own number.
"""

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from libs.kit.logs import get_logger
from libs.kit.retry import delays
from libs.objects import AsyncStore, ObjectsError, log_key
from services.agent import proctree, store
from services.agent.core.model import AttemptKey
from services.agent.handoff import LogBound
from services.agent.journal import Journal
from services.agent.store import LogMark

CHUNK_BYTES = 512 * 1024
RETRY_FIRST_S = 0.25
RETRY_CAP_S = 5.0
SLOWEST_S = 15.0
SLOWER_AFTER_S = 300.0


@dataclass(frozen=True)
class Chunk:
    """Bytes to ship; the next chunk begins at `end`."""

    data: bytes
    end: int


def next_chunk(folder: Path, offset: int, bound: LogBound, *, whole: bool) -> Chunk | None:
    """What follows `offset`, or None. Beyond the head it is read only when the output is `whole` (the task ended)."""
    if offset >= bound.head_bytes and not whole:
        return None
    starts = sorted(int(path.stem) for path in folder.glob("*.log"))
    holding = [start for start in starts if start <= offset < start + _size(folder, start)]
    if holding:
        data = _read(folder, holding[-1], offset)
        return Chunk(data, offset + len(data))
    later = [start for start in starts if start > offset and _size(folder, start)]
    if not later:
        return None
    note = f"\n[farside: {later[0] - offset} bytes left out here, the log is over its bound]\n".encode()
    data = _read(folder, later[0], later[0])
    return Chunk(note + data, later[0] + len(data))


class LogShipper:
    """Ships the log of one attempt."""

    def __init__(
        self, *, key: AttemptKey, tenant: str, folder: Path, bound: LogBound, objects: AsyncStore, journal: Journal
    ) -> None:
        self._key = key
        self._tenant = tenant
        self._folder = folder
        self._bound = bound
        self._objects = objects
        self._journal = journal
        self._mark = LogMark(0, 0)
        self._begun = proctree.boottime()
        self._shipping = asyncio.Lock()

    async def load(self) -> None:
        """Go on where an earlier agent stood."""
        self._mark = await self._journal.read(lambda conn: store.log_mark(conn, self._key))

    async def run(self, every_s: float) -> None:
        """Ship what there is, again and again; the longer the task has run, the larger the chunks."""
        while True:
            age_s = proctree.boottime() - self._begun
            await asyncio.sleep(max(every_s, min(SLOWEST_S, age_s / SLOWER_AFTER_S * every_s)))
            await self.ship(whole=False)

    async def finish(self) -> None:
        """The task is gone: ship the rest, for as long as the caller waits."""
        for delay_s in delays(RETRY_FIRST_S, RETRY_CAP_S):
            if await self.ship(whole=True):
                return
            await asyncio.sleep(delay_s)

    async def ship(self, *, whole: bool) -> bool:
        """Ship all there is at present; False when the store did not take it."""
        async with self._shipping:
            while chunk := await asyncio.to_thread(self._next, whole=whole):
                key = log_key(self._tenant, self._key.job_id, self._key.attempt, self._key.member, self._mark.chunk)
                try:
                    await self._objects.put(key, chunk.data, verify=False)
                except (ObjectsError, OSError) as error:
                    get_logger().warning("log.delayed", job=self._key.job_id, error=str(error))
                    return False
                await self._advance(chunk.end)
            return True

    def _next(self, *, whole: bool) -> Chunk | None:
        return next_chunk(self._folder, self._mark.offset, self._bound, whole=whole)

    async def _advance(self, end: int) -> None:
        mark = LogMark(end, self._mark.chunk + 1)
        await self._journal.read(lambda conn: store.mark_log(conn, self._key, mark))
        self._mark = mark
        starts = sorted(int(path.stem) for path in self._folder.glob("*.log"))
        for start, following in pairwise(starts):
            if following <= end:
                _path(self._folder, start).unlink(missing_ok=True)


def _path(folder: Path, start: int) -> Path:
    return folder / f"{start:016d}.log"


def _size(folder: Path, start: int) -> int:
    try:
        return _path(folder, start).stat().st_size
    except FileNotFoundError:
        return 0


def _read(folder: Path, start: int, offset: int) -> bytes:
    with _path(folder, start).open("rb") as file:
        file.seek(offset - start)
        return file.read(CHUNK_BYTES)
