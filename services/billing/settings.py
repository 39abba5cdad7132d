"""What billing is told by its environment."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from libs.kit.settings import LedgerSettings
from services.billing.rates import RateBook


class BillingSettings(LedgerSettings):
    """`FARSIDE_PG_DSN` is required; `rates` is a folder of rate cards.

    `billing_poll_s`: how often the folder is looked at, and closings that are complete.
    """

    rates: Path = Path("deploy/local/rates")
    billing_poll_s: float = Field(default=0.5, gt=0, le=60)

    @model_validator(mode="after")
    def _has_rates(self) -> Self:
        RateBook.read(self.rates)
        return self
