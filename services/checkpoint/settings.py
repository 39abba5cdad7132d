"""What the checkpoint service is told by its environment."""

from datetime import timedelta

from pydantic import Field

from libs.kit.settings import LedgerSettings


class CheckpointSettings(LedgerSettings):
    """`FARSIDE_PG_DSN` is required. Times are in seconds.

    `checkpoint_orphan_after_s`: how old a shard of a dead attempt is when it is removed.
    `checkpoint_alert_after_s`: how long a commit may fail before that is told; 0, the default, tells its first failure.
    It is tried on either way.
    `checkpoint_unreadable_s`: how long one checkpoint may be unreadable, while the store answers otherwise, before the
    next older one is taken.
    """

    checkpoint_poll_s: float = Field(default=1.0, gt=0)
    checkpoint_retry_first_s: float = Field(default=0.5, gt=0)
    checkpoint_retry_cap_s: float = Field(default=30.0, gt=0)
    checkpoint_alert_after_s: float = Field(default=0.0, ge=0)
    checkpoint_orphan_after_s: float = Field(default=3600.0, gt=0)
    checkpoint_orphan_cap: int = Field(default=10_000, ge=1)
    checkpoint_unreadable_s: float = Field(default=60.0, gt=0)
    checkpoint_store_wait_s: float = Field(default=60.0, gt=0)

    @property
    def orphan_after(self) -> timedelta:
        """See `checkpoint_orphan_after_s`."""
        return timedelta(seconds=self.checkpoint_orphan_after_s)
