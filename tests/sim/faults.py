"""Faults drawn from a seed, each with a name of its own.

Whether a fault happens is a function of the seed and of the fault's name alone, never of what was drawn before it. So
one fault can be left out of a run and the others stay where they were, which is what shrinking a story takes.
"""

import zlib
from collections.abc import Collection
from dataclasses import dataclass

_MASK = (1 << 32) - 1


@dataclass(frozen=True)
class Rates:
    """How often each thing goes wrong, as a share of the messages, transactions or requests that it may befall."""

    drop: float = 0.02
    duplicate: float = 0.05
    delay: float = 0.05
    rollback: float = 0.02
    ack_lost: float = 0.02
    republish: float = 0.02
    request_lost: float = 0.03
    reply_lost: float = 0.03
    store_away: float = 0.05
    slow_plan: float = 0.1
    outbox_slow: float = 0.03


CALM = Rates(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def draw(seed: int, name: str) -> float:
    """A number in [0, 1) from the seed and a name."""
    return _mix(seed, name) / (1 << 32)


def amount(seed: int, name: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    return low + _mix(seed, name) % (high - low + 1)


def _mix(seed: int, name: str) -> int:
    """A checksum of the name, begun at the seed, its bits well mixed (the finalizer of MurmurHash3)."""
    z = zlib.crc32(name.encode(), seed * 0x9E3779B1 & _MASK)
    z = (z ^ z >> 16) * 0x85EBCA6B & _MASK
    z = (z ^ z >> 13) * 0xC2B2AE35 & _MASK
    return z ^ z >> 16


class Faults:
    """Says of each fault whether it happens; `kept` are the names that may, None all. After `calm` none does."""

    def __init__(self, seed: int, rates: Rates, kept: Collection[str] | None = None) -> None:
        self.seed = seed
        self.rates = rates
        self.fired: dict[str, None] = {}
        self.calm = False
        self._kept = None if kept is None else frozenset(kept)

    def hits(self, kind: str, rate: float, about: str) -> bool:
        """Whether the fault `kind` happens to `about`."""
        if rate <= 0.0 or self.calm:
            return False
        name = f"{kind}: {about}"
        if draw(self.seed, name) >= rate or not self.allows(name):
            return False
        self.fired[name] = None
        return True

    def pick(self, about: str, *choices: tuple[str, float]) -> str | None:
        """The one of several faults, each with its rate, that happens to `about`; mostly none."""
        if self.calm:
            return None
        place = draw(self.seed, about)
        for kind, rate in choices:
            if place < rate:
                name = f"{kind}: {about}"
                if not self.allows(name):
                    return None
                self.fired[name] = None
                return kind
            place -= rate
        return None

    def allows(self, name: str) -> bool:
        """Whether an ingredient of this name is part of the run."""
        return self._kept is None or name in self._kept

    def plans(self, name: str) -> bool:
        """Whether something planned for a fixed time is part of the run; it counts as fired."""
        if not self.allows(name):
            return False
        self.fired[name] = None
        return True

    def amount(self, name: str, low: int, high: int) -> int:
        """How long or how much, for the fault or pause of that name."""
        return amount(self.seed, name, low, high)
