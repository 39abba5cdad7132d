"""What the scheduler is told by its environment: the bus, the database, the tenants and how long it is patient."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from libs.kit.settings import LeaseTimings, ServiceSettings
from services.scheduler.core.model import Limits

GRACE_PER_LEASE = 0.25
LEAST_GRACE_S = 10.0


class SchedulerSettings(ServiceSettings, LeaseTimings):
    """`FARSIDE_PG_DSN` is required; `tenants` is a folder of tenant files, `cycle_s` how often the cycle looks.

    `reconcile_grace_s` is how long the exit of an attempt may take that its returned node no longer holds (a quarter
    of `lease_s`, 10 s at least, unless given); `max_losses` is how many attempts a job may lose to its nodes.
    """

    tenants: Path = Path("deploy/local/tenants")
    cycle_s: float = Field(default=0.1, gt=0, le=60)
    reconcile_grace_s: float | None = Field(default=None, gt=0)
    max_losses: int = Field(default=100, ge=0)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.pg_dsn:
            msg = (
                "FARSIDE_PG_DSN is not set: the scheduler keeps its jobs in PostgreSQL, postgresql://user@host/database"
            )
            raise ValueError(msg)
        return self

    @property
    def dsn(self) -> str:
        """Where the jobs are."""
        assert self.pg_dsn is not None
        return self.pg_dsn

    @property
    def limits(self) -> Limits:
        """What the core needs of them."""
        grace_s = self.reconcile_grace_s or max(LEAST_GRACE_S, self.lease_s * GRACE_PER_LEASE)
        return Limits(max_losses=self.max_losses, reconcile_grace_s=grace_s)
