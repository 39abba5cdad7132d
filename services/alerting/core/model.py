"""What alerting knows of one subject, such as a node or the checkpoints of a job, and what it decides.

Events of one subject come in any order. What opens an alert and what closes it are therefore kept as points: the
sequence of the event, and a mark (the step of a checkpoint, else 0). A closing covers an opening when it is newer and
its mark is as high.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from contracts.alerts import Alert
from contracts.base import INT64_MAX


class Point(NamedTuple):
    """Where in its subject's history an event stands."""

    sequence: int
    mark: int = 0

    def covers(self, other: "Point") -> bool:
        """Whether this one, as a closing, is newer than `other` and reaches as far."""
        return self.sequence >= other.sequence and self.mark >= other.mark


FOR_GOOD = Point(INT64_MAX, INT64_MAX)


class Opening(NamedTuple):
    """Something that went wrong, and the annotations that tell it."""

    at: Point
    annotations: dict[str, str]


class Closing(NamedTuple):
    """Something that mends what went wrong before it, in words. `told`: an episode was told to be over by it."""

    at: Point
    words: str
    told: bool = False


@dataclass(frozen=True)
class Signal:
    """An event reduced to what rules look at. `facts` are what its labels and annotations are written from."""

    message: str
    at: Point
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Watch:
    """One subject: what was read of it, and the episode that fires now."""

    openings: tuple[Opening, ...] = ()
    closings: tuple[Closing, ...] = ()
    firing: Alert | None = None

    def has(self, point: Point) -> bool:
        """Whether the event at `point` was read before."""
        return any(known.at == point for known in (*self.openings, *self.closings))


@dataclass(frozen=True)
class Rule:
    """When an alert fires and when it is over, as data.

    `opens` and the keys of `closes` are message ids; the values of `closes` are the words for the resolution. `labels`
    are the facts that make up an alert's identity. An opening whose facts are in `harmless` is none, and of `mended` a
    closing must have the facts. `annotations` and the words are templates over the facts.
    """

    name: str
    level: int
    labels: tuple[str, ...]
    opens: str
    closes: Mapping[str, str]
    annotations: Mapping[str, str]
    harmless: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    mended: Mapping[str, str] = field(default_factory=dict[str, str])

    def concerns(self, signal: Signal) -> bool:
        """Whether this rule looks at such an event."""
        return signal.message == self.opens or signal.message in self.closes

    def ignores(self, signal: Signal) -> bool:
        """Whether such an opening, or such a closing, is none."""
        if signal.message == self.opens:
            return any(signal.facts[fact] in values for fact, values in self.harmless.items())
        return any(signal.facts[fact] != value for fact, value in self.mended.items())


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
