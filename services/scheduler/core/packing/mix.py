"""The workload as it was seen to arrive: which shapes come, and how often. What is kept free is kept free for these."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.scheduler.core.arrays import Demand

COVERED = 0.95
LARGEST = 100_000
SHAPES = 4_096
FIRST, GROWTH = 64, 2


@dataclass(frozen=True)
class Mix:
    """How often each shape came of late. Equal mixes weigh equally; an empty one knows nothing."""

    counts: tuple[tuple[Demand, float], ...] = ()
    seen: float = field(default=0.0)

    @property
    def due(self) -> int:
        """How many must have arrived in all to learn anew: each new mix costs its scores, so ever more."""
        return max(FIRST, int(self.seen * GROWTH))

    def learn(self, arrivals: Iterable[Demand]) -> "Mix":
        """The mix after more arrivals. Beyond `LARGEST` of them older ones count for less."""
        counts = Counter(dict(self.counts))
        fresh = Counter(arrivals)
        seen = self.seen + sum(fresh.values())
        fade = min(1.0, LARGEST / seen) if seen else 1.0
        counts.update(fresh)
        kept = sorted(counts.items(), key=lambda item: (-item[1], repr(item[0])))[:SHAPES]
        return Mix(tuple((shape, count * fade) for shape, count in kept), seen * fade)
