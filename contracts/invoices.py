"""Invoices: what billing has made of a closed period. Money is in integers of a named unit, never a float."""

from typing import Annotated

from pydantic import Field, StringConstraints

from contracts.base import (
    PAGE_LIMIT,
    Count,
    Cursor,
    Label,
    Model,
    Name,
    Open,
    PageLimit,
    Positive,
    Sha256,
    Text,
    Tier,
    Utc,
    Uuid,
)
from contracts.usage import UsageItem

Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
Exact = Annotated[str, StringConstraints(pattern=r"^\d{1,20}(\.\d{1,30})?$")]


class Invoice(Model):
    """An issued invoice; it never changes. Its lines are read with `query.billing.lines`.

    `total_micro` is in millionths of the currency and is the sum of the lines' `amount_micro`; `total_minor` is it
    rounded (half to even) to the currency's `exponent`, 2 for cents. `cutoff` is the stored-at limit of the usage in
    it; `samples` counts that usage and `sha256` is taken over the digests of its roll-ups in the order of their ids.
    """

    invoice_id: Uuid
    close_id: Uuid
    tenant: Name
    number: Positive
    period_start: Utc
    period_end: Utc
    currency: Currency
    exponent: Annotated[int, Field(ge=0, le=6)]
    rate_card: Name
    rate_card_version: Positive
    rate_card_sha256: Sha256
    cutoff: Utc
    rollups: Count
    samples: Count
    sha256: Sha256
    lines: Count
    total_micro: Count
    total_minor: Count
    issued_at: Utc


class InvoiceLine(Model):
    """One line: a job's usage of one item on one kind of card at one price; what is no job's or no card's names none.

    `quantity` is in the item's own unit, `unit_price_micro` for one `unit` (GPU hour, GiB hour). `amount` is in the
    currency, to 30 decimals (a ninth of an hour has no end); `amount_micro` is the exact amount rounded once, half to
    even. `amount_minor` parts add up to the invoice's `total_minor` (largest remainder).
    """

    line: Positive
    job_id: Uuid | None = None
    job_name: Name | None = None
    team: Label | None = None
    item: Open[UsageItem]
    accelerator: Label | None = None
    tier: Tier | None = None
    quantity: Count
    samples: Count
    unit: Label
    unit_price_micro: Count
    amount: Exact
    amount_micro: Count
    amount_minor: Count
    first_hour: Utc
    last_hour: Utc


class InvoicesQuery(Model):
    """The invoices of the tenant in the subject (`_`: of all), newest first; the one of a closing if that is named."""

    close_id: Uuid | None = None
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT


class InvoiceHeld(Model):
    """A closed period that could not be rated yet, and why; it is tried again when the rate cards change."""

    close_id: Uuid
    tenant: Name
    period_start: Utc
    period_end: Utc
    message: Text


class InvoicesPage(Model):
    """`held` is on the first page only; `cursor` is None on the last."""

    invoices: list[Invoice]
    held: list[InvoiceHeld] = []
    cursor: Cursor | None = None


class LinesQuery(Model):
    """The lines of an invoice, in order."""

    invoice_id: Uuid
    cursor: Cursor | None = None


class LinesPage(Model):
    """`rate_card_text`, the file of the invoice's digest, is on the first page only; `cursor` is None on the last."""

    lines: list[InvoiceLine]
    rate_card_text: str | None = None
    cursor: Cursor | None = None
