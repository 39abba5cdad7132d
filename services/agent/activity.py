"""Signs of life of one task: when it last moved, and whether the agent itself is what it waits for.

In: progress, saves, bytes that reached the store. Out: how long the task has been silent. Time is the boot clock.
"""

from services.agent import proctree


class Activity:
    """Silence is counted only while nothing of the task is under way to the store."""

    def __init__(self) -> None:
        self._last = proctree.boottime()
        self._under_way = 0

    def touch(self) -> None:
        """The task has moved."""
        self._last = proctree.boottime()

    def begin(self) -> None:
        """Something of the task is under way; a wait for it is no hang."""
        self._under_way += 1
        self.touch()

    def end(self) -> None:
        """It has arrived, or was given up."""
        self._under_way -= 1
        self.touch()

    def silent_s(self) -> float:
        """Seconds without a sign of life."""
        return 0.0 if self._under_way else proctree.boottime() - self._last
