"""What the transfer service is told by its environment."""

from typing import Self

from pydantic import Field, model_validator

from libs.kit.settings import ServiceSettings

DAY_S = 24 * 3600


class TransferSettings(ServiceSettings):
    """`FARSIDE_PG_DSN` is required. Times are in seconds.

    `transfer_source_keep_s`: how long an upload is kept after it was staged, to go back to.
    """

    transfer_poll_s: float = Field(default=1.0, gt=0)
    transfer_retry_first_s: float = Field(default=0.5, gt=0)
    transfer_retry_cap_s: float = Field(default=30.0, gt=0)
    transfer_source_keep_s: float = Field(default=7.0 * DAY_S, gt=0)
    transfer_store_wait_s: float = Field(default=60.0, gt=0)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.pg_dsn:
            msg = "FARSIDE_PG_DSN is not set: the ledger of transfers is in PostgreSQL, postgresql://user@host/database"
            raise ValueError(msg)
        return self

    @property
    def dsn(self) -> str:
        """Where the ledger is."""
        assert self.pg_dsn is not None
        return self.pg_dsn
