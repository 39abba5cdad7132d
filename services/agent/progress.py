"""Progress points between the task and the bus: each once, in batches.

In: points with serials, some of them sent again after a reconnect. Out: the new points, with the newest serial.
"""

from collections.abc import Sequence

from contracts.attempts import ProgressPoint

HELD_POINTS = 8192


class ProgressBuffer:
    """Holds points until the next flush."""

    def __init__(self, serial: int) -> None:
        self._serial = serial
        self._points: list[ProgressPoint] = []

    def add(self, points: Sequence[tuple[int, ProgressPoint]]) -> None:
        """Take in what is new; serials only grow."""
        for serial, point in points:
            if serial > self._serial:
                self._serial = serial
                self._points.append(point)

    def take(self) -> tuple[list[ProgressPoint], int]:
        """All points since the last time, and the newest serial."""
        points, self._points = self._points, []
        return points, self._serial

    def put_back(self, points: list[ProgressPoint]) -> None:
        """Undo `take`: what was taken could not be written down."""
        self._points = points + self._points

    @property
    def full(self) -> bool:
        """Whether the task must wait for a flush."""
        return len(self._points) >= HELD_POINTS

    @property
    def empty(self) -> bool:
        """Whether a flush would send nothing."""
        return not self._points
