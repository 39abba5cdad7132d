"""Shapes that were looked at in vain, so that no other is that asks at least as much for the same purpose."""

from collections.abc import Hashable

from services.scheduler.core.arrays import Demand

Amounts = tuple[int, int, int, int, int, int]


class Hopeless:
    """Holds while room only shrinks: what failed for little fails for more."""

    def __init__(self) -> None:
        self._least: dict[Hashable, list[Amounts]] = {}

    def add(self, purpose: Hashable, demand: Demand) -> None:
        """It was looked for in vain."""
        self._least.setdefault((purpose, _kind(demand)), []).append(_amounts(demand))

    def covers(self, purpose: Hashable, demand: Demand) -> bool:
        """Whether something that asks no more was looked for in vain."""
        failed = self._least.get((purpose, _kind(demand)), ())
        asked = _amounts(demand)
        return any(all(less <= more for less, more in zip(least, asked, strict=True)) for least in failed)


def _kind(demand: Demand) -> Hashable:
    level = demand.level if demand.level_required else None
    return demand.tiers, demand.models, level, demand.share_memory_bytes, demand.cards == 1


def _amounts(demand: Demand) -> Amounts:
    asked = demand.members, demand.cards, demand.share, demand.cpu_milli, demand.memory_bytes
    return *asked, demand.card_memory_bytes
