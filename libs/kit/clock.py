"""Clocks: the only place where time is read. Everything else takes a `Clock` or an instant as an argument."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What code that needs the time asks for."""

    def now(self) -> datetime:
        """The time of day in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; stops while the machine sleeps."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """The time of day in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


def boottime() -> float:
    """Seconds since boot, counting while the machine sleeps (CLOCK_BOOTTIME; monotonic where there is none)."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def epoch_ns() -> int:
    """Nanoseconds since 1970, as spans count."""
    return time.time_ns()
