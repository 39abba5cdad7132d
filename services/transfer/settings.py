"""What the transfer service is told by its environment."""

from pydantic import Field

from libs.kit.settings import LedgerSettings

DAY_S = 24 * 3600


class TransferSettings(LedgerSettings):
    """`FARSIDE_PG_DSN` is required. Times are in seconds.

    `transfer_source_keep_s`: how long an upload is kept after it was staged, to go back to.
    """

    transfer_poll_s: float = Field(default=1.0, gt=0)
    transfer_retry_first_s: float = Field(default=0.5, gt=0)
    transfer_retry_cap_s: float = Field(default=30.0, gt=0)
    transfer_source_keep_s: float = Field(default=7.0 * DAY_S, gt=0)
    transfer_store_wait_s: float = Field(default=60.0, gt=0)
