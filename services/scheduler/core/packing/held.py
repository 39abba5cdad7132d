"""Places: what was found, what is held, and a change of what is free."""

from dataclasses import dataclass

from services.scheduler.core.arrays import Demand


@dataclass(frozen=True)
class Spot:
    """A place for one member: `cards` are indexes into the fleet's cards, `share` is taken of each (millionths)."""

    node: int
    cards: tuple[int, ...]
    share: int


@dataclass(frozen=True)
class Found:
    """Places for all members of a job, in the order of their indexes."""

    demand: Demand
    spots: tuple[Spot, ...]


@dataclass(frozen=True)
class Held:
    """What one member holds on a node."""

    node: int
    cards: tuple[int, ...]
    share: int
    cpu_milli: int
    memory_bytes: int
    link_mbps: int


@dataclass(frozen=True)
class Change:
    """Something taken (`sign` -1) or given back (+1)."""

    held: Held
    sign: int
