"""Rate cards: what one unit of usage costs, by kind of card and tier, and from when to when."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from contracts.usage import UsageItem

ANY = "*"
HOUR_MS = 3_600_000
MIB_PER_GIB = 1024
USUAL_EXPONENT = 2
_ZERO = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_THREE = "BHD IQD JOD KWD LYD OMR TND"
UNUSUAL_EXPONENTS = {**dict.fromkeys(_ZERO.split(), 0), **dict.fromkeys(_THREE.split(), 3)}
"""Currencies whose smallest coin is no hundredth (ISO 4217)."""


class PriceItem(StrEnum):
    """What a price is for, with its unit in the name: a price by the month has no place here."""

    GPU_HOUR = "gpu_hour"
    GPU_MEMORY_GIB_HOUR = "gpu_memory_gib_hour"


@dataclass(frozen=True)
class Unit:
    """The unit in which an item is priced, and how much of the item's own unit makes one."""

    item: PriceItem
    label: str
    quantity: int


UNITS: dict[str, Unit] = {
    UsageItem.GPU_MS: Unit(PriceItem.GPU_HOUR, "GPU hour", HOUR_MS),
    UsageItem.GPU_MEMORY_MIB_MS: Unit(PriceItem.GPU_MEMORY_GIB_HOUR, "GiB hour", MIB_PER_GIB * HOUR_MS),
}


@dataclass(frozen=True)
class Price:
    """One price; `valid_from` and `valid_until` (None: for good) are whole hours, half-open."""

    item: PriceItem
    accelerator: str
    tier: str
    price_micro: int
    valid_from: datetime
    valid_until: datetime | None

    @property
    def place(self) -> tuple[PriceItem, str, str]:
        """What it is for."""
        return (self.item, self.accelerator, self.tier)

    def covers(self, item: PriceItem, accelerator: str, tier: str, hour: datetime) -> bool:
        """Whether it holds for usage of this kind in this hour."""
        return (
            self.item is item
            and self.accelerator in {accelerator, ANY}
            and self.tier in {tier, ANY}
            and self.valid_from <= hour
            and (self.valid_until is None or hour < self.valid_until)
        )

    def overlaps(self, other: "Price") -> bool:
        """Whether both would hold at some time for the same thing."""
        return (
            self.place == other.place
            and (other.valid_until is None or self.valid_from < other.valid_until)
            and (self.valid_until is None or other.valid_from < self.valid_until)
        )


@dataclass(frozen=True)
class RateCard:
    """One version of a rate card. `tenants` are those it is for; none named: everybody whom no other card names."""

    name: str
    version: int
    currency: str
    exponent: int
    prices: tuple[Price, ...]
    tenants: frozenset[str]
    sha256: str
    text: str

    def price(self, item: PriceItem, accelerator: str, tier: str, hour: datetime) -> Price | None:
        """The most exact price that holds: one that names the accelerator before one that names the tier only."""
        found = [price for price in self.prices if price.covers(item, accelerator, tier, hour)]
        return max(found, key=lambda price: (price.accelerator != ANY, price.tier != ANY), default=None)


def card_for(cards: Sequence[RateCard], tenant: str) -> RateCard | None:
    """The card that names the tenant, else the one that names none."""
    named = (card for card in cards if tenant in card.tenants)
    return next(named, None) or next((card for card in cards if not card.tenants), None)


def find_overlap(prices: Sequence[Price]) -> tuple[int, int] | None:
    """The places of two prices for the same thing that hold at the same time, or None."""
    for second, price in enumerate(prices):
        for first in range(second):
            if prices[first].overlaps(price):
                return first, second
    return None


def exponent_of(currency: str) -> int:
    """How many decimals the currency's smallest coin is (ISO 4217)."""
    return UNUSUAL_EXPONENTS.get(currency, USUAL_EXPONENT)
