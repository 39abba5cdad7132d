"""Shapes that were looked at in vain, so that no other is that asks at least as much for the same purpose."""

from collections.abc import Hashable
from operator import le

from services.scheduler.core.arrays import Demand

Amounts = tuple[int, int, int, int, int, int, int]


class Hopeless:
    """Holds while room only shrinks: what failed for little fails for more."""

    def __init__(self) -> None:
        self._least: dict[Hashable, list[Amounts]] = {}

    def add(self, purpose: Hashable, demand: Demand) -> None:
        """It was looked for in vain; what asks more need not be remembered beside it."""
        key, asked = (purpose, _kind(demand)), _amounts(demand)
        self._least[key] = [*(known for known in self._least.get(key, ()) if not _no_more(asked, known)), asked]

    def covers(self, purpose: Hashable, demand: Demand) -> bool:
        """Whether something that asks no more was looked for in vain."""
        failed = self._least.get((purpose, _kind(demand)), ())
        asked = _amounts(demand)
        return any(_no_more(least, asked) for least in failed)


def _kind(demand: Demand) -> Hashable:
    level = demand.level if demand.level_required else None
    return demand.tiers, demand.models, level, demand.share_memory_bytes, demand.cards == 1


def _amounts(demand: Demand) -> Amounts:
    of_cards = demand.cards, demand.share, demand.card_memory_bytes
    return demand.members, *of_cards, demand.cpu_milli, demand.memory_bytes, demand.link_mbps


def _no_more(least: Amounts, asked: Amounts) -> bool:
    return all(map(le, least, asked))
