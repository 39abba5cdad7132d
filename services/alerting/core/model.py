"""What alerting knows of one subject, such as a node or the checkpoints of a job, and what it decides.

Events of one subject come in any order. What opens an alert and what closes it are therefore kept as points: the
sequence of the event, and a mark (the step of a checkpoint, else 0). A closing covers an opening when it is newer and
its mark is as high. An alert fires while an opening is not covered, whichever was read first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from contracts.alerts import Alert
from contracts.base import INT64_MAX

POINTS_LIMIT = 64


class Point(NamedTuple):
    """Where in its subject's history an event stands."""

    sequence: int
    mark: int = 0

    def covers(self, other: "Point") -> bool:
        """Whether this one, as a closing, is newer than `other` and reaches as far."""
        return self.sequence >= other.sequence and self.mark >= other.mark


Points: TypeAlias = tuple[Point, ...]

FOR_GOOD = Point(INT64_MAX, INT64_MAX)


def add(points: Points, point: Point) -> Points:
    """`points` with one more, less those that it makes superfluous; the oldest go beyond POINTS_LIMIT."""
    if any(known.covers(point) for known in points):
        return points
    kept = [known for known in points if not point.covers(known)]
    return tuple(sorted([*kept, point]))[-POINTS_LIMIT:]


@dataclass(frozen=True)
class Signal:
    """An event reduced to what rules look at. `facts` are what its labels and annotations are written from."""

    message: str
    at: Point
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Watch:
    """One subject: what is open, what has closed, and the episode that fires now."""

    openings: Points = ()
    closings: Points = ()
    firing: Alert | None = None

    def closed_by(self, point: Point) -> "Watch":
        """After a closing; the episode is left as it is."""
        left = tuple(opening for opening in self.openings if not point.covers(opening))
        return Watch(left, add(self.closings, point), self.firing)

    def is_covered(self, opening: Point) -> bool:
        """Whether a closing that was read before makes this opening a thing of the past."""
        return any(closing.covers(opening) for closing in self.closings)

    def newest(self) -> int:
        """The highest sequence among the openings, -1 without any."""
        return max(_sequences(self.openings), default=-1)


def _sequences(points: Points) -> Iterable[int]:
    return (point.sequence for point in points)


@dataclass(frozen=True)
class Rule:
    """When an alert fires and when it is over, as data.

    `opens` and the keys of `closes` are message ids; the values of `closes` are the words for the resolution. `labels`
    are the facts that make up an alert's identity. An opening whose facts are in `harmless` is none. `annotations` and
    the words are templates over the facts.
    """

    name: str
    level: int
    labels: tuple[str, ...]
    opens: str
    closes: Mapping[str, str]
    annotations: Mapping[str, str]
    harmless: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    def concerns(self, signal: Signal) -> bool:
        """Whether this rule looks at such an event."""
        return signal.message == self.opens or signal.message in self.closes


@dataclass(frozen=True)
class Fire:
    """A new episode: to be told."""

    alert: Alert


@dataclass(frozen=True)
class Count:
    """It happened again while the episode fires: kept, not told."""

    alert: Alert


@dataclass(frozen=True)
class Resolve:
    """The episode is over: to be told."""

    alert: Alert


Effect: TypeAlias = Fire | Count | Resolve
