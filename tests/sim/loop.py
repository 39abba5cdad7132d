"""Virtual time: acts in the order of the time that they are due, and of asking where that is the same."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

T0 = datetime(2026, 3, 2, tzinfo=UTC)
SECOND = 1000
_MS = timedelta(milliseconds=1)


def at(ms: int) -> datetime:
    """An instant of virtual time as services see it."""
    return T0 + timedelta(milliseconds=ms)


def ms_of(moment: datetime) -> int:
    """The other way, rounded down."""
    return (moment - T0) // _MS


class Loop:
    """The one clock of a world, in whole milliseconds, and what is to come."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.acts = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._asked = 0

    @property
    def now(self) -> datetime:
        """The present instant."""
        return at(self.now_ms)

    def at(self, ms: int, act: Callable[..., None], *arguments: Any) -> None:
        """Do `act` at `ms`, or at once if that is past."""
        self._asked += 1
        heapq.heappush(self._heap, (max(ms, self.now_ms), self._asked, act, arguments))

    def after(self, delay_ms: int, act: Callable[..., None], *arguments: Any) -> None:
        """Do `act` in `delay_ms`."""
        self.at(self.now_ms + delay_ms, act, *arguments)

    def step(self, until_ms: int) -> bool:
        """Do what is due next; False when there is nothing up to `until_ms`."""
        if not self._heap or self._heap[0][0] > until_ms:
            return False
        self.now_ms, _, act, arguments = heapq.heappop(self._heap)
        self.acts += 1
        act(*arguments)
        return True
