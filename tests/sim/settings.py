"""What a world is made with: times, sizes, the functions of the cores."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from services.checkpoint.core import lineage, restoring, saving
from services.inventory.core import announce as announcing
from services.inventory.core import liveness
from services.inventory.core.model import BreakerRules, Timings
from services.metering.core import judge as judging
from services.metering.core.model import Limits as MeteringLimits
from services.scheduler.core import admission, attempts, jobs
from services.scheduler.core.model import Limits

DAY_S = 24 * 3600
MARGIN_S = 30


@dataclass(frozen=True)
class Cores:
    """The functions of the cores that the simulated services call; a test of the simulator breaks one of them."""

    refusal: Callable[..., Any] = admission.refusal
    admit: Callable[..., Any] = admission.admit
    decide: Callable[..., Any] = jobs.decide
    claim: Callable[..., Any] = attempts.claim
    announce: Callable[..., Any] = announcing.announce
    judge_tick: Callable[..., Any] = liveness.judge_tick
    take: Callable[..., Any] = saving.take
    refuse_old: Callable[..., Any] = restoring.refuse_old
    candidates: Callable[..., Any] = restoring.candidates
    expire: Callable[..., Any] = lineage.expire
    judge: Callable[..., Any] = judging.judge
    distinct: Callable[..., Any] = judging.distinct
    inbox: bool = True


@dataclass(frozen=True)
class Times:
    """The times of the lease and of the scheduler's patience, in seconds.

    `keep_s` is how long rows of what has ended are kept: longer than any copy of a message about it is on its way.
    """

    heartbeat_s: int = 5
    suspect_s: int = 15
    lease_s: int = 60
    tick_s: float = 2.5
    cycle_s: float = 1.0
    usage_period_s: int = 60
    reconcile_grace_s: int = 20
    node_slots: int = 64
    keep_s: int = 900

    @property
    def timings(self) -> Timings:
        """What inventory judges by: a node is lost at its lease and half a minute."""
        return Timings(
            suspect_ms=self.suspect_s * 1000,
            lease_ms=self.lease_s * 1000,
            lost_ms=(self.lease_s + MARGIN_S) * 1000,
            gap_ms=self.heartbeat_s * 1000,
        )

    @property
    def limits(self) -> Limits:
        """The scheduler's patience."""
        return Limits(reconcile_grace_s=self.reconcile_grace_s, node_slots=self.node_slots)


BREAKER = BreakerRules(share=0.5, window_ms=60_000)
METERING = MeteringLimits(ahead_s=300.0, late_s=30.0 * DAY_S)
AHEAD = timedelta(seconds=METERING.ahead_s)
