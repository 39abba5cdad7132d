"""Rate cards: one versioned YAML file each, read at the start and again when a file changes.

A file that is wrong stops the start; a wrong change later is logged and the last good cards are kept.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator

from contracts.base import Label, Name, Positive, Tier
from contracts.invoices import Currency
from libs.kit.logs import get_logger
from libs.kit.schema import WORDS
from libs.kit.yamldir import Signature, signature
from libs.kit.yamlfile import Form, YamlFileError, read, text_of
from services.billing.core.cards import Price, PriceItem, RateCard, card_for, exponent_of, find_overlap
from services.billing.core.money import MICRO_DIGITS

MAX_CARDS = 1_000
MAX_PRICES = 2_000
MAX_FILE_BYTES = 200_000
HOUR_WORDS = "a UTC time on a whole hour, such as 2026-01-01T00:00:00Z"


class RateCardError(ValueError):
    """A rate card is wrong; the message names file, line, entry, value and remedy."""


def _price_text(value: object) -> object:
    if isinstance(value, int | float):
        msg = f'write the price in quotes, as in "{value}": a number in YAML may be rounded before it is read'
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns ValueError into a field error
    return value


def _hour(value: object) -> datetime:
    msg = f"expected {HOUR_WORDS}"
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(msg) from error
    if not isinstance(at, datetime) or at.tzinfo is None or at.utcoffset() != UTC.utcoffset(None):
        raise ValueError(msg)
    if at.minute or at.second or at.microsecond:
        raise ValueError(msg)
    return at.astimezone(UTC)


PriceText = Annotated[
    str,
    StringConstraints(pattern=r"^\d{1,12}(\.\d{1,6})?$"),
    BeforeValidator(_price_text),
    Field(json_schema_extra={WORDS: 'a price in quotes with up to six decimals, such as "2.50"'}),
]
TierText = Annotated[
    str, StringConstraints(pattern=rf"^(\*|{'|'.join(Tier)})$"), WithJsonSchema({"enum": ["*", *Tier]})
]
Hour = Annotated[datetime, BeforeValidator(_hour), Field(json_schema_extra={WORDS: HOUR_WORDS})]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _PriceEntry(_File):
    item: Annotated[PriceItem, Field(strict=False)]
    accelerator: Label
    tier: TierText
    price: PriceText
    valid_from: Hour = Field(alias="from")
    valid_until: Hour | None = Field(alias="until")

    def to_price(self) -> Price:
        whole, _, decimals = self.price.partition(".")
        micro = int(whole + decimals.ljust(MICRO_DIGITS, "0"))
        return Price(self.item, self.accelerator, self.tier, micro, self.valid_from, self.valid_until)

    @model_validator(mode="after")
    def _ends_later(self) -> Self:
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            msg = f"until is {_shown(self.valid_until)}: it must be later than `from`, {_shown(self.valid_from)}"
            raise ValueError(msg)
        return self


class _CardFile(_File):
    rate_card: Name
    version: Positive
    currency: Currency
    exponent: Annotated[int, Field(ge=0, le=MICRO_DIGITS)]
    tenants: Annotated[list[Name], Field(min_length=1)] | None = None
    prices: Annotated[list[_PriceEntry], Field(min_length=1, max_length=MAX_PRICES)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.exponent != exponent_of(self.currency):
            msg = f"exponent is {self.exponent}: {self.currency} has {exponent_of(self.currency)} decimals"
            raise ValueError(msg)
        prices = [entry.to_price() for entry in self.prices]
        found = find_overlap(prices)
        if found is not None:
            first, second = found
            msg = (
                f"prices[{first}] ({_words(prices[first])}) and prices[{second}] ({_words(prices[second])}) overlap: "
                "end the earlier one where the later one begins"
            )
            raise ValueError(msg)
        return self


FORM = Form(_CardFile, "rate card", "rate_card, version, currency, exponent and prices")


def read_rates(folder: Path) -> tuple[RateCard, ...]:
    """All rate cards of the folder's `*.yaml` files. Raises RateCardError."""
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    if not files:
        msg = f"FARSIDE_RATES is {folder}: expected a folder with a YAML file for each rate card"
        raise RateCardError(msg)
    if len(files) > MAX_CARDS:
        msg = f"{folder} holds {len(files)} rate cards, the limit is {MAX_CARDS}: remove those not in use"
        raise RateCardError(msg)
    cards = [(path, _read(path)) for path in files]
    for second, (path, card) in enumerate(cards):
        for other_path, other in cards[:second]:
            _check_pair(other_path, other, path, card)
    return tuple(card for _, card in cards)


def _check_pair(first_path: Path, first: RateCard, path: Path, card: RateCard) -> None:
    both = f"{first_path} and {path}"
    if first.name == card.name:
        msg = (
            f"{both}: version {first.version} and version {card.version} of rate card {card.name!r} at once: "
            "keep one file and change prices by `from` and `until`"
        )
        raise RateCardError(msg)
    claimed = sorted(first.tenants & card.tenants)
    if claimed:
        msg = f"{both}: field tenants: both claim tenant {claimed[0]!r}: name it in one of them"
        raise RateCardError(msg)
    if not first.tenants and not card.tenants:
        msg = f"{both}: both are for everybody: name the `tenants` of one of them"
        raise RateCardError(msg)


def _read(path: Path) -> RateCard:
    try:
        text = text_of(path, FORM.what)
        size = len(text.encode())
        if size > MAX_FILE_BYTES:
            msg = f"{path} has {size} bytes, the limit is {MAX_FILE_BYTES}: remove prices that are long over"
            raise RateCardError(msg)
        parsed = read(path, text, FORM)
    except YamlFileError as error:
        raise RateCardError(str(error)) from None
    return RateCard(
        name=parsed.rate_card,
        version=parsed.version,
        currency=parsed.currency,
        exponent=parsed.exponent,
        prices=tuple(entry.to_price() for entry in parsed.prices),
        tenants=frozenset(parsed.tenants or ()),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        text=text,
    )


def _words(price: Price) -> str:
    until = "for good" if price.valid_until is None else f"until {_shown(price.valid_until)}"
    return f"{price.item} {price.accelerator} {price.tier} from {_shown(price.valid_from)} {until}"


def _shown(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%MZ}"


@dataclass
class RateBook:
    """The rate cards as of the last good reading of `folder`."""

    folder: Path
    cards: Sequence[RateCard] = ()
    _seen: Signature = field(default=())

    @classmethod
    def read(cls, folder: Path) -> "RateBook":
        """Read all files of `folder`. Raises RateCardError."""
        book = cls(folder)
        book._seen = signature(folder)
        book.cards = read_rates(folder)
        book._tell()
        return book

    def refresh(self) -> bool:
        """Read again if a file has changed; True when the cards are other than before."""
        seen = signature(self.folder)
        if seen == self._seen:
            return False
        before, self._seen = self.cards, seen
        try:
            self.cards = read_rates(self.folder)
        except RateCardError as error:
            get_logger().error("rates.refused", error=str(error))
            return False
        self._tell()
        return self.cards != before

    def card_for(self, tenant: str) -> RateCard | None:
        """The card of one tenant, or None."""
        return card_for(self.cards, tenant)

    def _tell(self) -> None:
        get_logger().info("rates.read", cards=[f"{card.name} version {card.version}" for card in self.cards])
