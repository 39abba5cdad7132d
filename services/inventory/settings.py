"""What inventory is told by its environment: the bus, the database, the times of the lease and of the breaker."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from libs.kit.settings import LeaseTimings, LedgerSettings
from services.inventory.core.model import BreakerRules, SkewRules, Timings
from services.inventory.rulebook import read_capacity, read_grading, read_health

MAX_TICK_S = 1.0
TICKS_PER_HEARTBEAT = 5


class InventorySettings(LedgerSettings, LeaseTimings):
    """`FARSIDE_PG_DSN` is required. `tick_s` is a fifth of `heartbeat_s`, one second at most, unless it is given.

    The breaker opens at a loss while more than `breaker_share` of the nodes, and more than one, are silent; nodes lost
    in the last `breaker_window_s` of observed time count among them. The breaker of quarantines opens when more than
    `fault_share` of the nodes, and more than one, are found faulty within `fault_window_s`.

    A node's clock may be off by `skew_bound_s`, `skew_delay_s` of delay allowed for, by the least of what is seen in
    `skew_window_s`. The three files take the place of those beside this module.
    """

    tick_s: float | None = Field(default=None, gt=0)
    breaker_share: float = Field(default=0.5, gt=0, le=1)
    breaker_window_s: float = Field(default=60.0, gt=0)
    fault_share: float = Field(default=0.25, gt=0, le=1)
    fault_window_s: float = Field(default=600.0, gt=0)
    skew_bound_s: float = Field(default=2.0, gt=0)
    skew_delay_s: float = Field(default=2.0, ge=0)
    skew_window_s: float = Field(default=30.0, gt=0)
    health_file: Path | None = None
    grading_file: Path | None = None
    capacity_file: Path | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tick_every_s > self.heartbeat_s:
            msg = f"FARSIDE_TICK_S is {self.tick_s}: it must not be above FARSIDE_HEARTBEAT_S ({self.heartbeat_s}), "
            raise ValueError(msg + "else the time between two ticks would not count in full")
        if self.suspect_s >= self.lost_s:
            msg = f"FARSIDE_SUSPECT_S is {self.suspect_s}: it must be below FARSIDE_LOST_S ({self.lost_s})"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _rules_are_usable(self) -> Self:
        read_health(self.health_file)
        read_grading(self.grading_file)
        read_capacity(self.capacity_file)
        return self

    @property
    def tick_every_s(self) -> float:
        """Seconds between two ticks."""
        return self.tick_s or min(MAX_TICK_S, self.heartbeat_s / TICKS_PER_HEARTBEAT)

    @property
    def timings(self) -> Timings:
        """The limits that core judges by; a gap between ticks counts as one interval between heartbeats at most."""
        return Timings(
            suspect_ms=round(self.suspect_s * 1000),
            lease_ms=round(self.lease_s * 1000),
            lost_ms=round(self.lost_s * 1000),
            gap_ms=round(self.heartbeat_s * 1000),
        )

    @property
    def fault_breaker(self) -> BreakerRules:
        """When the breaker of quarantines opens."""
        return BreakerRules(share=self.fault_share, window_ms=round(self.fault_window_s * 1000))

    @property
    def skew(self) -> SkewRules:
        """When a clock is off."""
        return SkewRules(
            bound_ms=round(self.skew_bound_s * 1000),
            delay_ms=round(self.skew_delay_s * 1000),
            window_ms=round(self.skew_window_s * 1000),
        )

    @property
    def breaker(self) -> BreakerRules:
        """When the breaker opens."""
        return BreakerRules(share=self.breaker_share, window_ms=round(self.breaker_window_s * 1000))
