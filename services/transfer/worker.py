"""The background loop: stages what was requested, a batch of files at a time, and goes on where it was killed.

Between batches the ledger remembers which files are proven; nothing that takes long happens inside a transaction.
"""

import asyncio
from datetime import timedelta
from typing import assert_never

from libs.bus import Ledger
from libs.db import Connection
from libs.kit.bell import Bell
from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from libs.kit.retry import delay
from libs.objects import ObjectsError, UnavailableError
from libs.telemetry import spans
from services.transfer import store
from services.transfer.core import (
    Dataset,
    Done,
    Reject,
    Stage,
    State,
    Totals,
    Transfer,
    Wait,
    admit,
    check_manifest,
    check_totals,
    claim,
)
from services.transfer.settings import TransferSettings
from services.transfer.stager import Read, Stager
from services.transfer.store import Due
from services.transfer.telling import completed, tell_completed, tell_failed

TRANSFERS_IN_FLIGHT = 2
ENTRIES_AT_ONCE = 32


class Worker:
    """Does due work, woken by requests and every `transfer_poll_s`."""

    def __init__(self, ledger: Ledger[Connection], stager: Stager, clock: Clock, settings: TransferSettings) -> None:
        """Nothing runs before `run`."""
        self._ledger = ledger
        self._stager = stager
        self._clock = clock
        self._settings = settings
        self._bell = Bell()

    def wake(self) -> None:
        """There may be work."""
        self._bell.ring()

    async def run(self) -> None:
        """Work for ever, once the store has proved that it keeps what it is given."""
        await self._stager.admit(self._settings.transfer_store_wait_s)
        while True:
            self._bell.quiet()
            async with self._ledger.transaction() as tx:
                items = await store.due(tx.conn, self._clock.now(), TRANSFERS_IN_FLIGHT)
            await asyncio.gather(*(self._do(item) for item in items))
            if not items:
                await self._bell.wait(self._settings.transfer_poll_s)

    async def _do(self, item: Due) -> None:
        with spans.span("move dataset", trace=item.origin.trace):
            spans.annotate(tenant=item.transfer.tenant)
            spans.put(**{"farside.transfer": item.transfer.transfer_id, "farside.state": item.transfer.state.value})
            try:
                await self._step(item.transfer)
            except UnavailableError as error:
                await self._postpone(item.transfer, str(error))
            except ObjectsError as error:
                await self._fail(item.transfer, str(error))

    async def _step(self, transfer: Transfer) -> None:
        match transfer.state:
            case State.STAGING:
                await self._stage(transfer)
            case State.CLEARING:
                await self._clear(transfer)
            case State.COMPLETED:
                await self._stager.remove_source(transfer)
                await self._settle(transfer)
            case State.FAILED:
                await self._settle(transfer)
            case _:
                assert_never(transfer.state)

    async def _stage(self, transfer: Transfer) -> None:
        refused = admit(transfer, self._stager.areas(transfer.tenant))
        if refused is not None:
            await self._fail(transfer, refused.message)
            return
        async with self._ledger.transaction() as tx:
            verdict = claim(transfer, await store.claim_dataset(tx.conn, transfer))
        match verdict:
            case Stage():
                rejected = await self._copy_all(transfer)
                if rejected is not None:
                    await self._fail(transfer, rejected.message)
            case Wait():
                await self._postpone(transfer, "another transfer is staging this version")
            case Done(dataset):
                await self._complete(transfer, dataset)
            case Reject(message):
                await self._fail(transfer, message)
            case _:
                assert_never(verdict)

    async def _copy_all(self, transfer: Transfer) -> Reject | None:
        """Everything between a request and a version that stands."""
        read = await self._stager.read_manifest(transfer)
        if isinstance(read, Reject):
            return read
        rejected = await self._stager.check_free(transfer, read.content) or check_manifest(
            read.manifest, transfer, await self._stager.source_sizes(transfer)
        )
        if rejected is not None:
            return rejected
        async with self._ledger.transaction() as tx:
            await store.add_entries(tx.conn, transfer.transfer_id, read.manifest.entries)
        while True:
            async with self._ledger.transaction() as tx:
                entries = await store.waiting_entries(tx.conn, transfer.transfer_id, ENTRIES_AT_ONCE)
            if not entries:
                return await self._publish(transfer, read)
            rejected = await self._stager.stage(transfer, entries)
            if rejected is not None:
                return rejected
            async with self._ledger.transaction() as tx:
                await store.mark_staged(tx.conn, transfer.transfer_id, [entry.path for entry in entries])

    async def _publish(self, transfer: Transfer, read: Read) -> Reject | None:
        """Compare totals and what lies in the store, then write the manifest."""
        async with self._ledger.transaction() as tx:
            found = await store.totals(tx.conn, transfer.transfer_id)
        rejected = check_totals(found, read.manifest)
        if rejected is not None:
            return rejected
        staged = await self._stager.staged_sizes(transfer)
        named = {entry.path for entry in read.manifest.entries}
        await self._stager.remove_staged(transfer, sorted(staged.keys() - named))
        rejected = check_manifest(read.manifest, transfer, {path: staged[path] for path in staged.keys() & named})
        rejected = rejected or await self._stager.publish(transfer, read.content)
        if rejected is not None:
            return rejected
        at = self._clock.now()
        standing = Dataset(
            tenant=transfer.tenant,
            dataset=transfer.dataset,
            transfer_id=transfer.transfer_id,
            manifest_sha256=transfer.manifest_sha256,
            objects=found.objects,
            size_bytes=found.size_bytes,
            completed_at=at,
        )
        await self._complete(transfer, standing, found)
        return None

    async def _complete(self, transfer: Transfer, dataset: Dataset, found: Totals | None = None) -> None:
        """Say that the version stands; `found` where this transfer is the one that staged it."""
        now = self._clock.now()
        due_at = now + timedelta(seconds=self._settings.transfer_source_keep_s)
        own_upload = transfer.source.startswith(self._stager.areas(transfer.tenant)[0])
        async with self._ledger.transaction() as tx:
            origin = await store.origin_of(tx.conn, transfer.transfer_id)
            if found is not None:
                await store.complete_dataset(tx.conn, transfer.transfer_id, found, dataset.completed_at or now)
            if await store.move(
                tx.conn, transfer, State.COMPLETED, due_at=due_at if own_upload else None, ended_at=now
            ):
                await tell_completed(tx, completed(transfer, dataset, self._stager), origin)

    async def _fail(self, transfer: Transfer, message: str) -> None:
        """Tell it at once; what was staged is removed after that."""
        now = self._clock.now()
        async with self._ledger.transaction() as tx:
            origin = await store.origin_of(tx.conn, transfer.transfer_id)
            if await store.move(tx.conn, transfer, State.CLEARING, message=message, due_at=now, ended_at=now):
                await tell_failed(tx, transfer, message, now, origin)

    async def _clear(self, transfer: Transfer) -> None:
        """Remove what a failed transfer staged, if the version is its own claim, and give the claim back."""
        async with self._ledger.transaction() as tx:
            standing = await store.find_claim(tx.conn, transfer)
        if standing is not None and standing.completed_at is None:
            await self._stager.clear(transfer)
        async with self._ledger.transaction() as tx:
            await store.free_dataset(tx.conn, transfer.transfer_id)
            await store.move(tx.conn, transfer, State.FAILED, message=transfer.message, ended_at=self._clock.now())

    async def _postpone(self, transfer: Transfer, message: str) -> None:
        get_logger().warning("transfer.postponed", transfer=transfer.transfer_id, message=message)
        settings = self._settings
        async with self._ledger.transaction() as tx:
            tries = await store.tries(tx.conn, transfer.transfer_id)
            wait_s = delay(tries, settings.transfer_retry_first_s, settings.transfer_retry_cap_s)
            await store.postpone(tx.conn, transfer.transfer_id, self._clock.now() + timedelta(seconds=wait_s), message)

    async def _settle(self, transfer: Transfer) -> None:
        async with self._ledger.transaction() as tx:
            await store.settle(tx.conn, transfer.transfer_id)
