"""Finding what an attempt may start from: the newest checkpoint whose marker and digests hold.

Reading takes as long as the shards are large, so it runs apart from any request and outside of transactions: the first
request of an attempt begins it, the others (and its own repetitions) meet the same result. Damaged checkpoints are
told and passed over; a store that is away ends the search without a verdict.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from contracts.checkpoints import CheckpointFailure
from libs.bus import Ledger
from libs.db import Connection
from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from libs.objects import UnavailableError
from services.checkpoint import store
from services.checkpoint.committer import Committer
from services.checkpoint.core.model import Checkpoint, Fail, Phase
from services.checkpoint.core.restoring import candidates
from services.checkpoint.core.spells import Spells
from services.checkpoint.effects import Teller
from services.checkpoint.protocol import Protocol, Unfit, Valid
from services.checkpoint.settings import CheckpointSettings
from services.checkpoint.store import Snapshot

SEARCHES_LIMIT = 64
PATIENCE_S = 3.0
SPELL_GAP_S = 180.0

Search: TypeAlias = "asyncio.Task[Checkpoint | None]"


class Busy(Exception):  # noqa: N818 - an answer, not an error: ask again
    """The search goes on; ask again."""


@dataclass(frozen=True)
class _Place:
    job_id: str
    attempt: int


class Restorer:
    """Searches, one for each (job, attempt), at most SEARCHES_LIMIT at a time."""

    def __init__(
        self,
        ledger: Ledger[Connection],
        protocol: Protocol,
        committer: Committer,
        clock: Clock,
        settings: CheckpointSettings,
    ) -> None:
        """Search the ledger's tables and the protocol's bucket."""
        self._ledger = ledger
        self._protocol = protocol
        self._committer = committer
        self._clock = clock
        self._settings = settings
        self._searches: dict[_Place, Search] = {}
        self._unreadable = Spells(SPELL_GAP_S)

    async def find(self, job_id: str, attempt: int) -> Checkpoint | None:
        """The newest valid checkpoint of the job, or None. Raises Busy, or ObjectsError while the store is away."""
        place = _Place(job_id, attempt)
        search = self._searches.get(place) or self._begin(place, self._search(job_id, attempt))
        done, _ = await asyncio.wait({search}, timeout=PATIENCE_S)
        if not done:
            msg = f"the checkpoints of job {job_id} are being verified: ask again"
            raise Busy(msg)
        if search.exception() is not None:
            self.forget(job_id, attempt)
        return search.result()

    def forget(self, job_id: str, attempt: int) -> None:
        """Drop what was found for this attempt of the job and for older ones."""
        for place in [one for one in self._searches if one.job_id == job_id and one.attempt <= attempt]:
            self._searches.pop(place).cancel()

    async def close(self) -> None:
        """End all searches."""
        searches = list(self._searches.values())
        self._searches.clear()
        for search in searches:
            search.cancel()
        await asyncio.gather(*searches, return_exceptions=True)

    def _begin(self, place: _Place, search: Coroutine[Any, Any, Checkpoint | None]) -> Search:
        if len(self._searches) >= SEARCHES_LIMIT:
            done = next((one for one, task in self._searches.items() if task.done()), None)
            if done is None:
                search.close()
                msg = f"{SEARCHES_LIMIT} restores are being prepared: ask again"
                raise Busy(msg)
            del self._searches[done]
        task = asyncio.create_task(search, name=f"restore {place.job_id} {place.attempt}")
        task.add_done_callback(_look_at)
        self._searches[place] = task
        return task

    async def _search(self, job_id: str, attempt: int) -> Checkpoint | None:
        """Roll older attempts' commits forward, then take the newest that is whole."""
        for checkpoint in (await self._snapshot(job_id)).checkpoints:
            if checkpoint.phase is Phase.COMMITTING and checkpoint.attempt < attempt:
                await self._committer.commit(checkpoint)
        seen = await self._snapshot(job_id)
        for checkpoint in candidates(seen.checkpoints, seen.grants):
            problem = await self._problem(checkpoint)
            if problem is None:
                return checkpoint
            await self._condemn(checkpoint, problem)
        return None

    async def _problem(self, checkpoint: Checkpoint) -> Unfit | None:
        began_s = self._clock.monotonic()
        try:
            verdict = await self._protocol.verify(checkpoint)
        except UnavailableError as error:
            return await self._weigh(checkpoint, error, began_s)
        self._unreadable.forget(checkpoint.writer)
        return None if isinstance(verdict, Valid) else verdict

    async def _weigh(self, checkpoint: Checkpoint, error: UnavailableError, began_s: float) -> Unfit:
        """A checkpoint unreadable for long, in a store that answers otherwise, is lost. Raises before that.

        SeaweedFS answers 500, after some 13 s, for an object with a flipped byte on its disk.
        """
        await self._protocol.answers(f"probes/checkpoint/{checkpoint.job_id}-{checkpoint.attempt}-{checkpoint.step}")
        unreadable_s = self._unreadable.seen(checkpoint.writer, began_s, self._clock.monotonic())
        if unreadable_s < self._settings.checkpoint_unreadable_s:
            raise error
        message = f"step {checkpoint.step} cannot be read for {unreadable_s:.0f} s, other objects can: {error}"
        return Unfit(CheckpointFailure.MISSING_SHARD, message)

    async def _condemn(self, checkpoint: Checkpoint, problem: Unfit) -> None:
        async with self._ledger.transaction() as tx:
            await store.lock_job(tx.conn, checkpoint.job_id, checkpoint.tenant)
            current = await store.load_checkpoint(tx.conn, checkpoint.job_id, *checkpoint.place)
            if current is None or current.phase is not Phase.COMMITTED:
                return
            origin = await store.origin_of(tx.conn, checkpoint)
            damaged = replace(checkpoint, phase=Phase.DAMAGED)
            await Teller(tx, self._clock.now(), self._settings.orphan_after).fail(
                Fail(damaged, problem.cause, problem.message), origin
            )

    async def _snapshot(self, job_id: str) -> Snapshot:
        async with self._ledger.transaction() as tx:
            job = await store.find_job(tx.conn, job_id)
            assert job is not None, f"job {job_id} has no row: raise the fence first"
            return await store.snapshot(tx.conn, job)


def _look_at(search: Search) -> None:
    """Note how a search ended, also when nobody asks any more."""
    error = None if search.cancelled() else search.exception()
    if error is not None:
        get_logger().warning("restore.search_failed", search=search.get_name(), error=repr(error))
