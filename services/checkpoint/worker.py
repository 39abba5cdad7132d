"""The background loop: commits and removals that are due, and the sweep for orphans. One process at a time runs it."""

import asyncio
from datetime import timedelta

from libs.bus import Ledger
from libs.db import Connection
from libs.kit.bell import Bell
from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from libs.objects import ObjectsError
from libs.telemetry import context
from services.checkpoint import store
from services.checkpoint.committer import Committer
from services.checkpoint.core.orphans import abandoned, sweep
from services.checkpoint.effects import Teller
from services.checkpoint.protocol import Protocol
from services.checkpoint.settings import CheckpointSettings
from services.checkpoint.store import Due, Origin

WORK_IN_FLIGHT = 8
SWEEPS_AT_ONCE = 4
SWEEP_RETRY_S = 60.0
UPLOAD_KEEP_S = 7 * 24 * 3600
SERVICE = "/farside/checkpoint"


class Worker:
    """Does due work, woken by handlers and every `checkpoint_poll_s`."""

    def __init__(
        self,
        ledger: Ledger[Connection],
        committer: Committer,
        protocol: Protocol,
        clock: Clock,
        settings: CheckpointSettings,
    ) -> None:
        """Nothing runs before `run`."""
        self._ledger = ledger
        self._committer = committer
        self._protocol = protocol
        self._clock = clock
        self._settings = settings
        self._bell = Bell()

    def wake(self) -> None:
        """There may be work."""
        self._bell.ring()

    async def run(self) -> None:
        """Work for ever, once the store has proved that it keeps what it is given and honours conditions."""
        await self._protocol.admit(self._settings.checkpoint_store_wait_s)
        while True:
            if not await self.work():
                await self._bell.wait(self._settings.checkpoint_poll_s)

    async def work(self) -> bool:
        """Do what is due now; False when nothing was."""
        self._bell.quiet()
        async with self._ledger.transaction() as tx:
            items = await store.due(tx.conn, self._clock.now(), WORK_IN_FLIGHT)
            jobs = await store.sweeps(tx.conn, self._clock.now(), SWEEPS_AT_ONCE)
        await asyncio.gather(*(self._do(item) for item in items))
        for job_id in jobs:
            await self._sweep(job_id)
        return bool(items or jobs)

    async def _do(self, item: Due) -> None:
        with context.use(item.origin.trace):
            try:
                await self._committer.run(item)
            except ObjectsError as error:
                get_logger().warning(
                    "checkpoint.postponed", job=item.job_id, attempt=item.attempt, step=item.step, error=str(error)
                )
                await self._committer.postpone(item, str(error))

    async def _sweep(self, job_id: str) -> None:
        """Look for shards that no checkpoint will ever name."""
        keep_s = self._settings.checkpoint_orphan_after_s
        try:
            again = await self._remove_orphans(job_id, keep_s)
        except ObjectsError as error:
            get_logger().warning("checkpoint.sweep_postponed", job=job_id, error=str(error))
            again_s: float | None = SWEEP_RETRY_S
        else:
            again_s = keep_s if again else None
        async with self._ledger.transaction() as tx:
            at = None if again_s is None else self._clock.now() + timedelta(seconds=again_s)
            await store.set_sweep(tx.conn, job_id, at)

    async def _remove_orphans(self, job_id: str, keep_s: float) -> bool:
        """List first, decide then: what is decided to be dead stays dead. True when some must wait."""
        now = self._clock.now()
        async with self._ledger.transaction() as tx:
            job = await store.find_job(tx.conn, job_id)
            assert job is not None, f"job {job_id} has no row"
        stored = await self._protocol.shards_of_job(job.tenant, job_id)
        async with self._ledger.transaction() as tx:
            job = await store.lock_job(tx.conn, job_id, job.tenant)
            seen = await store.snapshot(tx.conn, job)
            await Teller(tx, now, self._settings.orphan_after).apply(
                abandoned(job, seen.checkpoints, now, keep_s), Origin(SERVICE, None)
            )
            live = (await store.snapshot(tx.conn, job)).checkpoints
        plan = sweep(job, stored, live, now, keep_s, self._settings.checkpoint_orphan_cap)
        await self._protocol.remove_keys(plan.remove)
        ended = await self._protocol.end_uploads(job.tenant, job_id, now - timedelta(seconds=UPLOAD_KEEP_S))
        get_logger().info("checkpoint.swept", job=job_id, tenant=job.tenant, shards=len(plan.remove), uploads=ended)
        return plan.again
