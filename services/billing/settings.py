"""What billing is told by its environment."""

from pathlib import Path

from pydantic import Field

from libs.kit.settings import LedgerSettings


class BillingSettings(LedgerSettings):
    """`FARSIDE_PG_DSN` is required; `rates` is a folder of rate cards.

    `billing_poll_s`: how often the folder is looked at, and closings that are complete.
    """

    rates: Path = Path("deploy/local/rates")
    billing_poll_s: float = Field(default=0.5, gt=0, le=60)
