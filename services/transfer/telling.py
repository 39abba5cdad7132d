"""Events of the transfer service, each in the caller's transaction."""

from datetime import datetime

from contracts import registry
from contracts.transfers import TransferCompleted, TransferFailed
from libs.bus import Tx
from libs.db import Connection
from libs.kit.logs import get_logger
from libs.objects import keys
from libs.telemetry import context
from services.transfer import store
from services.transfer.core import Dataset, Transfer
from services.transfer.stager import Stager, prefix_of
from services.transfer.store import Origin

MAX_TEXT_CHARS = 4000


def completed(transfer: Transfer, dataset: Dataset, stager: Stager) -> TransferCompleted:
    """The event, and the row of the listing, of a dataset version that stands."""
    assert dataset.completed_at is not None, f"dataset {dataset.dataset!r} does not stand yet"
    prefix = prefix_of(transfer)
    return TransferCompleted(
        transfer_id=transfer.transfer_id,
        tenant=transfer.tenant,
        dataset=transfer.dataset,
        prefix=stager.uri(prefix),
        manifest=stager.uri(keys.manifest_key(prefix)),
        manifest_sha256=dataset.manifest_sha256,
        objects=dataset.objects or 0,
        size_bytes=dataset.size_bytes or 0,
        completed_at=dataset.completed_at,
    )


async def tell_completed(tx: Tx[Connection], body: TransferCompleted, origin: Origin) -> None:
    """Tell that a version stands."""
    get_logger().info(
        "transfer.completed",
        transfer=body.transfer_id,
        tenant=body.tenant,
        dataset=f"{body.dataset.name}:{body.dataset.version}",
        objects=body.objects,
        size_bytes=body.size_bytes,
    )
    sequence = await store.next_sequence(tx.conn, body.transfer_id)
    with context.use(context.current() or origin.trace):
        tx.emit(
            registry.TRANSFERS_COMPLETED,
            body,
            key=body.tenant,
            subject=body.transfer_id,
            sequence=sequence,
            actor=origin.actor,
        )


async def tell_failed(tx: Tx[Connection], transfer: Transfer, message: str, now: datetime, origin: Origin) -> None:
    """Tell that a request became no version, and why."""
    get_logger().warning(
        "transfer.failed",
        transfer=transfer.transfer_id,
        tenant=transfer.tenant,
        dataset=f"{transfer.dataset.name}:{transfer.dataset.version}",
        message=message,
    )
    body = TransferFailed(
        transfer_id=transfer.transfer_id,
        tenant=transfer.tenant,
        dataset=transfer.dataset,
        message=message[:MAX_TEXT_CHARS],
        failed_at=now,
    )
    sequence = await store.next_sequence(tx.conn, transfer.transfer_id)
    with context.use(context.current() or origin.trace):
        tx.emit(
            registry.TRANSFERS_FAILED,
            body,
            key=transfer.tenant,
            subject=transfer.transfer_id,
            sequence=sequence,
            actor=origin.actor,
        )
