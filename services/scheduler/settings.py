"""What the scheduler is told by its environment: the bus, the database, the tenants and how long it is patient."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from libs.kit.settings import LeaseTimings, LedgerSettings
from services.scheduler.core.model import Limits
from services.scheduler.policies import PolicyBook
from services.scheduler.tenants import TenantBook, check

GRACE_PER_LEASE = 0.25
LEAST_GRACE_S = 10.0


class SchedulerSettings(LedgerSettings, LeaseTimings):
    """`FARSIDE_PG_DSN` is required; `tenants` is a folder of tenant files, `cycle_s` how often the cycle looks.

    `policy` is a file of windows, pools, cohorts and knobs of the plan; all of it has defaults.

    `reconcile_grace_s` is how long the exit of an attempt may take that its returned node no longer holds (a quarter
    of `lease_s`, 10 s at least, unless given); `max_losses` is how many attempts a job may lose to its nodes.
    `node_slots` is how many members of attempts, of all jobs together, a node holds at a time, however little they
    ask: each is a process tree on the node, and too many of them keep its agent from renewing the lease.
    """

    tenants: Path = Path("deploy/local/tenants")
    policy: Path | None = None
    cycle_s: float = Field(default=0.1, gt=0, le=60)
    reconcile_grace_s: float | None = Field(default=None, gt=0)
    max_losses: int = Field(default=100, ge=0)
    node_slots: int = Field(default=64, ge=1, le=10_000)

    @model_validator(mode="after")
    def _has_tenants(self) -> Self:
        check(TenantBook.read(self.tenants), PolicyBook.read(self.policy))
        return self

    @property
    def limits(self) -> Limits:
        """What the core needs of them."""
        grace_s = self.reconcile_grace_s or max(LEAST_GRACE_S, self.lease_s * GRACE_PER_LEASE)
        return Limits(max_losses=self.max_losses, reconcile_grace_s=grace_s, node_slots=self.node_slots)
