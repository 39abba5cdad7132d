"""What metering is told by its environment."""

from pydantic import Field

from contracts.registry import USAGE
from libs.kit.settings import LedgerSettings
from services.metering.core.model import Limits


class MeteringSettings(LedgerSettings):
    """`FARSIDE_PG_DSN` is required. Times are in seconds.

    `metering_ahead_s`: how far after its message was stored a window may end. `metering_reconcile_s`: how often the
    scheduler's ledger is asked. `metering_close_grace_s`: how long after a month's end it is closed by itself.
    """

    metering_ahead_s: float = Field(default=300.0, ge=0)
    metering_reconcile_s: float = Field(default=15.0, gt=0)
    metering_close_grace_s: float = Field(default=3600.0, ge=0)
    metering_poll_s: float = Field(default=1.0, gt=0)

    @property
    def limits(self) -> Limits:
        """What a window's time may be; nothing older than the stream keeps comes by it."""
        return Limits(self.metering_ahead_s, float(USAGE.max_age_s))
