"""Amounts computed anew, in fractions, from roll-ups and the text of a rate card."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, TypeAlias

import yaml

from contracts.invoices import Invoice, InvoiceLine
from contracts.usage import UsageItem, UsageRolledUp
from libs.audit.findings import Difference, differs

Key: TypeAlias = tuple[str, str, str, str, int]

MILLION = 10**6
SHOWN_DECIMALS = 10**30
# What one unit of a price is, in the unit of the item, and how the invoice names it.
PRICED: dict[str, tuple[str | None, Fraction, str]] = {
    UsageItem.GPU_MS: ("gpu_hour", Fraction(60 * 60 * 1000), "GPU hour"),
    UsageItem.GPU_MEMORY_MIB_MS: ("gpu_memory_gib_hour", Fraction(2**10 * 60 * 60 * 1000), "GiB hour"),
}


@dataclass
class Line:
    """What one line should say."""

    names: tuple[str | None, str | None]
    first_hour: datetime
    last_hour: datetime
    quantity: int = 0
    samples: int = 0
    exact: Fraction = Fraction(0)

    @property
    def micro(self) -> int:
        """Rounded once: Python rounds a fraction half to even."""
        return round(self.exact * MILLION)


@dataclass
class Recomputed:
    """All lines, and usage that the card has no price for."""

    lines: dict[Key, Line] = field(default_factory=dict[Key, Line])
    unpriced: list[str] = field(default_factory=list[str])

    @property
    def total_micro(self) -> int:
        """The sum of the rounded lines."""
        return sum(line.micro for line in self.lines.values())


def recompute(rollups: Sequence[UsageRolledUp], card_text: str) -> Recomputed:
    """Price all usage by the card."""
    prices: list[dict[str, Any]] = yaml.safe_load(card_text)["prices"]
    result = Recomputed()
    for rollup in sorted(rollups, key=lambda each: (each.hour, each.number, each.rollup_id)):
        for entry in rollup.entries:
            item, unit, _ = PRICED.get(entry.item, (None, Fraction(1), ""))
            place = (entry.accelerator or "", entry.tier or "")
            price = None if item is None else _price(prices, item, place, rollup.hour)
            if price is None:
                what = f"{item or entry.item} {entry.accelerator} {entry.tier}"
                result.unpriced.append(f"{what} {rollup.hour.isoformat()}")
                continue
            key = (entry.job_id or "", str(entry.item), *place, int(price * MILLION))
            names = (entry.job_name, entry.team)
            line = result.lines.setdefault(key, Line(names, rollup.hour, rollup.hour))
            line.last_hour = rollup.hour
            line.quantity += entry.quantity
            line.samples += entry.samples
            line.exact += Fraction(entry.quantity) / unit * price
    return result


def _price(prices: Sequence[dict[str, Any]], item: str, place: tuple[str, str], hour: datetime) -> Fraction | None:
    """Of the prices that hold, the one that names accelerator and tier, then accelerator, then tier, then neither."""
    accelerator, tier = place
    for wanted in ((accelerator, tier), (accelerator, "*"), ("*", tier), ("*", "*")):
        for price in prices:
            named = (price["accelerator"], price["tier"])
            if price["item"] == item and named == wanted and _holds(price, hour):
                return Fraction(str(price["price"]))
    return None


def _holds(price: dict[str, Any], hour: datetime) -> bool:
    end = price["until"]
    return _time(price["from"]) <= hour and (end is None or hour < _time(end))


def _time(value: Any) -> datetime:
    return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


def check_amounts(invoice: Invoice, lines: Sequence[InvoiceLine], computed: Recomputed) -> Iterator[Difference]:
    """Every field of every line, and the totals."""
    for place in computed.unpriced:
        yield Difference(what="usage without a price", where=place, expected="a price in the rate card", found="none")
    found = {_key(line): line for line in lines}
    yield from differs("lines that are the same", "invoice", len(lines), len(found))
    shares = _shares(invoice, lines, computed)
    for key in sorted(computed.lines.keys() | found.keys()):
        where = f"job {key[0]} {key[1]} {key[2]} {key[3]} at {Fraction(key[4], MILLION)}"
        should, line = computed.lines.get(key), found.get(key)
        if should is None or line is None:
            shown = ["none" if each is None else f"a line of {each.quantity}" for each in (should, line)]
            yield Difference(what="line", where=where, expected=shown[0], found=shown[1])
        else:
            yield from _check_line(f"line {line.line}, {where}", should, line, shares[key])
    yield from differs("lines", "invoice", [*range(1, invoice.lines + 1)], [line.line for line in lines])
    yield from differs("total_micro", "invoice", computed.total_micro, invoice.total_micro)
    yield from differs("sum of amount_micro", "lines", invoice.total_micro, sum(line.amount_micro for line in lines))
    yield from differs("total_minor", "invoice", _minor_total(invoice, computed), invoice.total_minor)
    yield from differs("sum of amount_minor", "lines", invoice.total_minor, sum(line.amount_minor for line in lines))


def _check_line(where: str, should: Line, line: InvoiceLine, share: int) -> Iterator[Difference]:
    yield from differs("line's quantity", where, should.quantity, line.quantity)
    yield from differs("line's samples", where, should.samples, line.samples)
    if abs(Fraction(line.amount) - should.exact) * 2 * SHOWN_DECIMALS > 1:
        yield Difference(what="line's amount", where=where, expected=str(should.exact), found=line.amount)
    yield from differs("line's amount_micro", where, should.micro, line.amount_micro)
    yield from differs("line's amount_minor", where, share, line.amount_minor)
    yield from differs("line's unit", where, PRICED[line.item][2], line.unit)
    yield from differs("line's hours", where, (should.first_hour, should.last_hour), (line.first_hour, line.last_hour))
    yield from differs("line's names", where, should.names, (line.job_name, line.team))


def _key(line: InvoiceLine) -> Key:
    return (line.job_id or "", str(line.item), line.accelerator or "", line.tier or "", line.unit_price_micro)


def _minor_total(invoice: Invoice, computed: Recomputed) -> int:
    return round(Fraction(computed.total_micro * 10**invoice.exponent, MILLION))


def _shares(invoice: Invoice, lines: Sequence[InvoiceLine], computed: Recomputed) -> dict[Key, int]:
    """Largest remainder over the lines in their order: whole coins first, the rest to those that lost most."""
    order = [_key(line) for line in lines if _key(line) in computed.lines]
    exact = {key: Fraction(computed.lines[key].micro * 10**invoice.exponent, MILLION) for key in order}
    shares = {key: int(amount) for key, amount in exact.items()}
    rest = round(sum(exact.values(), Fraction(0))) - sum(shares.values())
    for key in sorted(exact, key=lambda each: exact[each] - shares[each], reverse=True)[:rest]:
        shares[key] += 1
    return shares
