"""Work in the store that was decided before: commits, removals. Each may be repeated, after a crash too.

In: a due checkpoint. Out: the store's objects, then one transaction that says what came of it.
"""

from dataclasses import replace
from datetime import timedelta
from typing import assert_never

from contracts.checkpoints import CheckpointCommitted, CheckpointFailure
from libs.bus import Ledger
from libs.db import Connection
from libs.kit.clock import Clock
from libs.kit.retry import delay
from libs.telemetry import spans
from services.checkpoint import store
from services.checkpoint.core import marker
from services.checkpoint.core.lineage import expire
from services.checkpoint.core.model import Checkpoint, Fail, Phase
from services.checkpoint.effects import TRIED_ON, Teller
from services.checkpoint.protocol import Protocol, Taken, Unfit, Valid, marker_of
from services.checkpoint.settings import CheckpointSettings
from services.checkpoint.store import Due

PUBLISH_TRIES = 3
_DEAD = frozenset({Phase.DAMAGED, Phase.EXPIRING, Phase.EXPIRED, Phase.FAILED})


class Committer:
    """Carries out what is due for one checkpoint at a time. Raises ObjectsError while the store is away."""

    def __init__(
        self, ledger: Ledger[Connection], protocol: Protocol, clock: Clock, settings: CheckpointSettings
    ) -> None:
        """Work on the ledger's tables and the protocol's bucket."""
        self._ledger = ledger
        self._protocol = protocol
        self._clock = clock
        self._settings = settings

    async def run(self, item: Due) -> None:
        """Do the work that the checkpoint's phase asks for."""
        async with self._ledger.transaction() as tx:
            checkpoint = await store.load_checkpoint(tx.conn, item.job_id, item.attempt, item.step)
        assert checkpoint is not None, f"checkpoint {item.job_id}/{item.attempt}/{item.step} has no row"
        match checkpoint.phase:
            case Phase.COMMITTING:
                with spans.span("commit checkpoint"):
                    spans.annotate(job=item.job_id, tenant=checkpoint.tenant, attempt=item.attempt)
                    spans.put(**{"farside.step": item.step})
                    await self.commit(checkpoint)
            case Phase.EXPIRING:
                await self._remove(checkpoint)
            case Phase.DAMAGED:
                await self._protocol.remove_marker(checkpoint)
                await self._settle(checkpoint)
            case Phase.COLLECTING | Phase.COMMITTED | Phase.FAILED | Phase.EXPIRED:
                await self._settle(checkpoint)
            case _:
                assert_never(checkpoint.phase)

    async def commit(self, checkpoint: Checkpoint) -> None:
        """Publish the marker of a complete checkpoint, then say so once."""
        outcome = await self._publish(checkpoint)
        async with self._ledger.transaction() as tx:
            teller = Teller(tx, self._clock.now(), self._settings.orphan_after)
            job = await store.lock_job(tx.conn, checkpoint.job_id, checkpoint.tenant)
            current = await store.load_checkpoint(tx.conn, checkpoint.job_id, *checkpoint.place)
            if current is None or current.phase is not Phase.COMMITTING:
                return
            origin = await store.origin_of(tx.conn, checkpoint)
            if isinstance(outcome, Unfit):
                failed = replace(checkpoint, phase=Phase.FAILED)
                await teller.fail(Fail(failed, outcome.cause, outcome.message), origin)
                return
            await store.move(tx.conn, replace(checkpoint, phase=Phase.COMMITTED), Phase.COMMITTING)
            await teller.tell_committed(committed(checkpoint, self._protocol), origin)
            seen = await store.snapshot(tx.conn, job)
            standing = [one for one in seen.checkpoints if one.phase is Phase.COMMITTED]
            await teller.apply(expire(standing, seen.grants, checkpoint.keep_last), origin)

    async def postpone(self, item: Due, message: str) -> None:
        """Put work off while the store is away; tell it once, at the first failure unless the settings say later."""
        settings, now = self._settings, self._clock.now()
        async with self._ledger.transaction() as tx:
            tries = await store.tries(tx.conn, item)
            wait_s = delay(tries, settings.checkpoint_retry_first_s, settings.checkpoint_retry_cap_s)
            since, told = await store.postpone(tx.conn, item, now + timedelta(seconds=wait_s), now, message)
            checkpoint = await store.load_checkpoint(tx.conn, item.job_id, item.attempt, item.step)
            lasting = (now - since).total_seconds() >= settings.checkpoint_alert_after_s
            if told or not lasting or checkpoint is None or checkpoint.phase is not Phase.COMMITTING:
                return
            text = f"{message}; {TRIED_ON}"
            teller = Teller(tx, now, self._settings.orphan_after)
            await teller.tell_failed(checkpoint, CheckpointFailure.STORE_UNAVAILABLE, text, item.origin)
            await store.mark_alerted(tx.conn, item)

    async def _publish(self, checkpoint: Checkpoint) -> Valid | Unfit:
        """Publish; a marker that a dead checkpoint left in the way is removed first."""
        for _ in range(PUBLISH_TRIES):
            outcome = await self._protocol.publish(checkpoint)
            if not isinstance(outcome, Taken):
                return outcome
            async with self._ledger.transaction() as tx:
                owner = await self._owner(tx.conn, checkpoint, outcome.writer)
            if owner is None or owner.phase not in _DEAD:
                break
            await self._protocol.remove_marker(owner)
        message = (
            f"step {checkpoint.step} of attempt {checkpoint.attempt}: {marker_of(checkpoint)} is there already, "
            f"by another writer; that one stands, the next save gets a place of its own"
        )
        return Unfit(CheckpointFailure.CONFLICT, message)

    async def _owner(self, conn: Connection, checkpoint: Checkpoint, writer: str) -> Checkpoint | None:
        """The checkpoint whose marker stands in the place of this one's; None when that is unknown."""
        place = marker.place_of(writer, checkpoint.job_id)
        if place is None or place == checkpoint.place:
            return None
        return await store.load_checkpoint(conn, checkpoint.job_id, *place)

    async def _remove(self, checkpoint: Checkpoint) -> None:
        await self._protocol.remove(checkpoint)
        async with self._ledger.transaction() as tx:
            await store.lock_job(tx.conn, checkpoint.job_id, checkpoint.tenant)
            origin = await store.origin_of(tx.conn, checkpoint)
            if await store.move(tx.conn, replace(checkpoint, phase=Phase.EXPIRED), Phase.EXPIRING):
                await Teller(tx, self._clock.now(), self._settings.orphan_after).tell_expired(checkpoint, origin)

    async def _settle(self, checkpoint: Checkpoint) -> None:
        async with self._ledger.transaction() as tx:
            await store.settle(tx.conn, checkpoint)


def committed(checkpoint: Checkpoint, protocol: Protocol) -> CheckpointCommitted:
    """The event, and the row of the listing, of a committed checkpoint."""
    assert checkpoint.decided_at is not None, f"checkpoint {checkpoint.writer} is not complete"
    return CheckpointCommitted(
        job_id=checkpoint.job_id,
        tenant=checkpoint.tenant,
        attempt=checkpoint.attempt,
        step=checkpoint.step,
        marker=protocol.uri(marker_of(checkpoint)),
        shards=list(checkpoint.shards),
        binding=checkpoint.binding,
        size_bytes=checkpoint.size_bytes,
        committed_at=checkpoint.decided_at,
    )
