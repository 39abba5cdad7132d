"""What a closing costs: roll-ups and a rate card in, the lines of an invoice out, or why there can be none yet.

A line is a job's usage of one item on one kind of card in one tier at one price. Its amount is a fraction of integers
(quantity x price / quantity of one unit) until it is rounded, once, to millionths.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from contracts.base import INT64_MAX, Tier
from contracts.invoices import Invoice, InvoiceLine
from contracts.usage import RollUpEntry, UsagePeriodClosed, UsageRolledUp
from services.billing.core.cards import UNITS, RateCard
from services.billing.core.money import MICRO, decimal_text, round_half_even, split_minor, to_minor

LineKey: TypeAlias = tuple[str, str, str, Tier, int]


@dataclass(frozen=True)
class Rated:
    """The closing has a price."""

    card: RateCard
    lines: tuple[InvoiceLine, ...]
    sha256: str
    total_micro: int
    total_minor: int


@dataclass(frozen=True)
class Hold:
    """There can be no invoice yet; why, in words."""

    message: str


@dataclass(frozen=True)
class Nothing:
    """Nothing was used: there is no invoice to be made."""


Outcome: TypeAlias = Rated | Hold | Nothing


@dataclass
class _Sum:
    """What a line adds up; name and team are those of its first entry."""

    entry: RollUpEntry
    first_hour: datetime
    last_hour: datetime
    quantity: int = 0
    samples: int = 0

    @property
    def name(self) -> str:
        """The job's, by which lines are ordered."""
        return self.entry.job_name or ""


@dataclass
class _Sums:
    """All lines while they are added up."""

    card: RateCard
    lines: dict[LineKey, _Sum] = field(default_factory=dict[LineKey, _Sum])

    def add(self, entry: RollUpEntry, hour: datetime) -> Hold | None:
        """Add usage of one hour to the line of its price."""
        unit = UNITS.get(entry.item)
        if unit is None or entry.job_id is None or entry.accelerator is None or entry.tier is None:
            return Hold(f"{entry.item} of job {entry.job_id} cannot be priced by this release: run a newer billing")
        item = unit.item
        price = self.card.price(item, entry.accelerator, entry.tier.value, hour)
        if price is None:
            return Hold(
                f"rate card {self.card.name} version {self.card.version} has no price for {item} on "
                f"{entry.accelerator} in tier {entry.tier} at {hour:%Y-%m-%dT%H:%MZ}: add one and raise the version"
            )
        key = (entry.job_id, entry.item, entry.accelerator, entry.tier, price.price_micro)
        line = self.lines.setdefault(key, _Sum(entry, hour, hour))
        line.last_hour = hour
        line.quantity += entry.quantity
        line.samples += entry.samples
        return None


def rate(closing: UsagePeriodClosed, rollups: Sequence[UsageRolledUp], card: RateCard | None) -> Outcome:
    """Decide what becomes of a closing whose roll-ups are there, in whatever order they came."""
    counted = (len(rollups), sum(rollup.samples for rollup in rollups))
    if counted != (closing.rollups, closing.samples):
        return Hold(
            f"closing {closing.number} counts {closing.rollups} roll-ups with {closing.samples} samples, kept are "
            f"{counted[0]} with {counted[1]}: metering's roll-ups of close_id {closing.close_id} must be set right"
        )
    if closing.samples == 0:
        return Nothing()
    if card is None:
        return Hold(f"no rate card is for tenant {closing.tenant}: name it in one, or add one without `tenants`")
    sums = _Sums(card)
    for rollup in sorted(rollups, key=lambda each: (each.hour, each.number, each.rollup_id)):
        for entry in rollup.entries:
            held = sums.add(entry, rollup.hour)
            if held is not None:
                return held
    return _finish(sums, digest(rollups))


def digest(rollups: Sequence[UsageRolledUp]) -> str:
    """SHA-256 over the digests of the roll-ups, in the order of their ids, one a line."""
    hasher = hashlib.sha256()
    for rollup in sorted(rollups, key=lambda each: each.rollup_id):
        hasher.update(f"{rollup.sha256}\n".encode())
    return hasher.hexdigest()


def _finish(sums: _Sums, sha256: str) -> Outcome:
    amounts = {key: _amount(key, line) for key, line in sums.lines.items()}
    micro = {key: round_half_even(numerator * MICRO, denominator) for key, (numerator, denominator) in amounts.items()}
    total_micro = sum(micro.values())
    if max(total_micro, *(line.quantity for line in sums.lines.values())) > INT64_MAX:
        return Hold(f"the closing costs {total_micro} millionths, more than {INT64_MAX} can be told: close more often")
    keys = sorted(sums.lines, key=lambda key: (sums.lines[key].name, *key[:4], sums.lines[key].first_hour))
    exponent = sums.card.exponent
    minor = split_minor([micro[key] for key in keys], exponent)
    lines = tuple(
        _line(number, key, sums.lines[key], decimal_text(*amounts[key]), (micro[key], minor[number - 1]))
        for number, key in enumerate(keys, start=1)
    )
    return Rated(sums.card, lines, sha256, total_micro, to_minor(total_micro, exponent))


def _amount(key: LineKey, line: _Sum) -> tuple[int, int]:
    """The exact amount in the currency, as a fraction."""
    return line.quantity * key[4], UNITS[key[1]].quantity * MICRO


def _line(number: int, key: LineKey, line: _Sum, amount: str, rounded: tuple[int, int]) -> InvoiceLine:
    job_id, item, accelerator, tier, price_micro = key
    return InvoiceLine(
        line=number,
        job_id=job_id,
        job_name=line.entry.job_name,
        team=line.entry.team,
        item=item,
        accelerator=accelerator,
        tier=tier,
        quantity=line.quantity,
        samples=line.samples,
        unit=UNITS[item].label,
        unit_price_micro=price_micro,
        amount=amount,
        amount_micro=rounded[0],
        amount_minor=rounded[1],
        first_hour=line.first_hour,
        last_hour=line.last_hour,
    )


def make_invoice(
    closing: UsagePeriodClosed, rated: Rated, *, invoice_id: str, number: int, issued_at: datetime
) -> Invoice:
    """The invoice of a rated closing; `number` counts the tenant's invoices."""
    return Invoice(
        invoice_id=invoice_id,
        close_id=closing.close_id,
        tenant=closing.tenant,
        number=number,
        period_start=closing.period_start,
        period_end=closing.period_end,
        currency=rated.card.currency,
        exponent=rated.card.exponent,
        rate_card=rated.card.name,
        rate_card_version=rated.card.version,
        rate_card_sha256=rated.card.sha256,
        cutoff=closing.cutoff,
        rollups=closing.rollups,
        samples=closing.samples,
        sha256=rated.sha256,
        lines=len(rated.lines),
        total_micro=rated.total_micro,
        total_minor=rated.total_minor,
        issued_at=issued_at,
    )
