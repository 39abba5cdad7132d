"""All checks of one invoice, in the order in which money comes about: measured, kept, rolled up, priced, added up."""

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import yaml

from contracts.usage import UsageRow
from libs.audit.amounts import Recomputed, check_amounts, recompute
from libs.audit.extracts import check_extracts, check_raw
from libs.audit.findings import MAX_DIFFERENCES, Difference, Findings, differs, reference
from libs.audit.gathered import Dossier, identity, words
from libs.audit.placed import check_placed, unplaced
from libs.audit.published import check_others, check_published, unchecked

AHEAD = timedelta(minutes=5)
"""How far after it was stored a measured window may end."""


def check(dossier: Dossier) -> Findings:
    """Everything that differs."""
    invoice, replay = dossier.invoice, dossier.replay
    lost = sorted(replay.billed.keys() - replay.nodes.keys())
    unreplayed = [key for key in lost if _out_of_reach(replay.billed[key], dossier.published.reach.usage)]
    card = hashlib.sha256(dossier.card_text.encode()).hexdigest()
    is_card, lines = card == invoice.rate_card_sha256, dossier.lines
    computed = recompute(dossier.rollups, dossier.card_text) if is_card else Recomputed()
    differences = [
        *dossier.faults,
        *(() if lines is None else differs("sha256 of the rate card", "invoice", card, invoice.rate_card_sha256)),
        *(_check_card(dossier) if is_card else ()),
        *check_published(dossier),
        *check_extracts(invoice.tenant, dossier.rollups, dossier.extracts),
        *check_others(dossier),
        *_check_measured(dossier),
        *check_placed(dossier),
        *(found for rollup in dossier.rollups for found in _check_raw(dossier, rollup.rollup_id)),
        *(check_amounts(invoice, lines, computed) if is_card and lines is not None else ()),
    ]
    return Findings(
        invoice=reference(invoice),
        invoice_id=invoice.invoice_id,
        samples=sum(len(extract.rows) for extract in dossier.extracts.values()),
        measured=len(replay.nodes),
        invoice_total_micro=invoice.total_micro,
        recomputed_total_micro=computed.total_micro,
        differences=differences[:MAX_DIFFERENCES],
        differing=len(differences),
        unreplayed=[words(key) for key in unreplayed][:MAX_DIFFERENCES],
        unchecked=[*dossier.unchecked, *unchecked(dossier), *unplaced(dossier)][:MAX_DIFFERENCES],
        later=len({identity(row) for row in replay.unexplained if row in dossier.held}),
        billed_later=len(replay.billed_later),
    )


def _check_card(dossier: Dossier) -> Iterator[Difference]:
    """What the invoice says of its rate card."""
    invoice = dossier.invoice
    card: dict[str, Any] = yaml.safe_load(dossier.card_text)
    named = (invoice.rate_card, invoice.rate_card_version, invoice.currency, invoice.exponent)
    should = tuple(card[name] for name in ("rate_card", "version", "currency", "exponent"))
    yield from differs("rate card's name, version, currency, exponent", "invoice", should, named)


def _check_raw(dossier: Dossier, rollup_id: str) -> Iterator[Difference]:
    extract, raw = dossier.extracts[rollup_id], dossier.raw.get(rollup_id)
    return check_raw(extract, raw) if extract.fault is None and raw is not None else iter(())


def _check_measured(dossier: Dossier) -> Iterator[Difference]:
    """Each billed sample was measured, with this content; each measured row is billed, or refused with a reason."""
    replay = dossier.replay
    measured = {identity(row): row for row in replay.unexplained}
    for key in sorted(replay.billed.keys() - replay.nodes.keys()):
        billed = replay.billed[key]
        if key in measured:
            found = billed.model_dump_json()
            yield from differs("sample as it was measured", words(key), measured[key].model_dump_json(), found)
        elif not _out_of_reach(billed, dossier.published.reach.usage):
            yield from differs("sample that was never measured", words(key), "none", billed.model_dump_json())
    for row in replay.unexplained:
        key = identity(row)
        if row in dossier.held or (key in replay.billed and key not in replay.nodes):
            continue
        expected = "in the invoice, in an earlier one, or kept with a reason"
        yield from differs("measured row", words(key), expected, f"nowhere: {row.model_dump_json()}")


def _out_of_reach(row: UsageRow, reach: datetime | None) -> bool:
    return reach is not None and row.window_end < reach + AHEAD
