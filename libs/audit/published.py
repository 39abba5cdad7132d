"""What the records say now beside what was published when it came about: the invoice, its closing, its roll-ups."""

import hashlib
from collections.abc import Iterator
from datetime import datetime

from contracts.base import Model
from contracts.invoices import Invoice
from libs.audit.findings import Difference, differs
from libs.audit.gathered import Dossier, words

CLOSED = ("tenant", "period_start", "period_end", "cutoff", "rollups", "samples")
"""What an invoice takes over from its closing."""


def check_published(dossier: Dossier) -> Iterator[Difference]:
    """Each field of the invoice, and each roll-up, is the one that was published."""
    invoice, told = dossier.invoice, dossier.published
    if told.issued is not None:
        yield from _same(invoice, told.issued, tuple(Invoice.model_fields), "billing's invoice and invoices.issued")
    elif not _beyond(told.reach.invoices, invoice.issued_at):
        yield from differs("invoice that was never issued", "INVOICES", "invoices.issued", "no such message")
    if told.closed is not None:
        yield from _same(invoice, told.closed, CLOSED, "billing's invoice and usage.period_closed")
    elif not _beyond(told.reach.usage, invoice.cutoff):
        yield from differs("closing that was never published", "USAGE", "usage.period_closed", "no such message")
    yield from _check_counts(dossier)
    yield from _check_rollups(dossier)


def _same(invoice: Invoice, told: Model, names: tuple[str, ...], where: str) -> Iterator[Difference]:
    for name in names:
        yield from differs(f"invoice's {name}", where, _shown(getattr(told, name)), _shown(getattr(invoice, name)))


def _shown(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _beyond(reach: datetime | None, at: datetime) -> bool:
    """Whether a stream that begins at `reach` may have lost what was published at `at`."""
    return reach is not None and at < reach


def _check_counts(dossier: Dossier) -> Iterator[Difference]:
    """What the invoice says of its roll-ups."""
    invoice, rollups = dossier.invoice, dossier.rollups
    hasher = hashlib.sha256()
    for rollup in sorted(rollups, key=lambda each: each.rollup_id):
        hasher.update(f"{rollup.sha256}\n".encode())
    yield from differs("sha256 of the roll-ups", "invoice", hasher.hexdigest(), invoice.sha256)
    yield from differs("roll-ups", "invoice", len(rollups), invoice.rollups)
    yield from differs("samples", "invoice", sum(rollup.samples for rollup in rollups), invoice.samples)


def _check_rollups(dossier: Dossier) -> Iterator[Difference]:
    """Metering's roll-ups are those that were published, no more and no fewer."""
    told = dossier.published
    kept = {rollup.rollup_id: rollup for rollup in dossier.rollups}
    lost = _beyond(told.reach.usage, dossier.invoice.cutoff)
    for rollup_id in sorted(kept.keys() | told.rollups.keys()):
        here, there = kept.get(rollup_id), told.rollups.get(rollup_id)
        if here == there or (there is None and lost):
            continue
        where = f"metering's roll-up {rollup_id} of {(here or told.rollups[rollup_id]).hour.isoformat()}"
        shown = ["none" if each is None else each.model_dump_json() for each in (there, here)]
        yield from differs("roll-up since it was published", where, shown[0], shown[1])


def check_others(dossier: Dossier) -> Iterator[Difference]:
    """No sample of this invoice is in an extract of another closing."""
    replay = dossier.replay
    alone = f"in closing {dossier.invoice.close_id} alone"
    for key in sorted(replay.billed.keys() & replay.others.keys()):
        for other in replay.others[key]:
            when = "later" if other.later else "earlier"
            found = f"also in roll-up {other.rollup_id} of the {when} closing {other.close_id}"
            yield from differs("sample in another closing", words(key), alone, found)


def unchecked(dossier: Dossier) -> Iterator[str]:
    """Messages that a stream no longer reaches back to, in words."""
    invoice, told = dossier.invoice, dossier.published
    if told.issued is None and _beyond(told.reach.invoices, invoice.issued_at):
        yield f"the invoice as it was issued: the stream INVOICES reaches back to {told.reach.invoices} only"
    if told.closed is None and _beyond(told.reach.usage, invoice.cutoff):
        yield f"the closing as it was published: the stream USAGE reaches back to {told.reach.usage} only"
    missing = {rollup.rollup_id for rollup in dossier.rollups} - told.rollups.keys()
    if missing and _beyond(told.reach.usage, invoice.cutoff):
        yield f"{len(missing)} roll-ups as published: the stream USAGE reaches back to {told.reach.usage} only"
