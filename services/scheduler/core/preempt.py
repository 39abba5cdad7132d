"""Who must leave so that a job can start: the fewest attempts, of these the cheapest, whole gangs only.

The search goes node by node: how many attempts each must lose for one member, for two, and so on (`gains`). For a
single member the sets of each promising node are tried by size and price; for a gang nodes are emptied, those that
lose least first, until all members fit. Then every victim that is not needed stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Protocol

from services.scheduler.core.arrays import Bools, Demand
from services.scheduler.core.gains import Gains, Layer
from services.scheduler.core.packing import Found
from services.scheduler.core.places import Area, areas
from services.scheduler.core.reserve import found_without, only
from services.scheduler.core.scene import Scene
from services.scheduler.core.work import Work

AREAS = 8
NODES = 24
SETS = 400
TRIES = 16

Price = tuple[int, int, int, tuple[str, ...]]


class Right(Protocol):
    """Who may leave at all, and whether some may leave together."""

    @property
    def eligible(self) -> Bools:
        """A mask over the attempts."""
        ...

    def allow(self, attempts: Sequence[int]) -> bool:
        """Whether all of these may leave."""
        ...


@dataclass(frozen=True)
class Victims:
    """Attempts that leave, and the places they make room for."""

    attempts: tuple[int, ...]
    found: Found


def find_victims(scene: Scene, work: Work, demand: Demand, allowed: Bools | None, rights: Right) -> Victims | None:
    """The smallest and cheapest victims that are found within bounds; None where there are none."""
    if not rights.eligible.any():
        return None
    hunt = _Hunt(scene, work, demand, allowed, rights)
    there = areas(scene.room, demand, work.without(scene.room, rights.eligible), allowed)
    return hunt.best([hunt.in_area(area) for area in there[:AREAS]])


class _Hunt:
    def __init__(self, scene: Scene, work: Work, demand: Demand, allowed: Bools | None, rights: Right) -> None:
        self._scene, self._work, self._demand, self._rights = scene, work, demand, rights
        self._allowed = allowed

    def price(self, attempts: Sequence[int]) -> Price:
        """Fewest, then fewest that are not preemptible, then least work lost; names make it the same for any order."""
        running = self._work.running
        lost = sum(int(self._work.lost[attempt]) for attempt in attempts)
        firm = sum(not running.preemptible[attempt] for attempt in attempts)
        return len(attempts), firm, lost, tuple(sorted(running.job_ids[attempt] for attempt in attempts))

    def best(self, found: Sequence[Victims | None]) -> Victims | None:
        """The one with the least price."""
        return min(
            (victims for victims in found if victims is not None),
            key=lambda victims: self.price(victims.attempts),
            default=None,
        )

    def in_area(self, area: Area) -> Victims | None:
        """Victims on the nodes of one area."""
        gains = Gains(self._scene, self._work, self._demand, area, self._rights.eligible)
        places = gains.promising(NODES + 2 * self._demand.members)
        layers = [layer for place in places for layer in gains.layers(place, self._demand.members)]
        few = self._single(gains, layers) if self._demand.members == 1 else self._alone(gains)
        if few is not None:
            return few
        emptied = self._emptied(sorted(layers, key=lambda layer: (layer.price, layer.node, layer.depth)))
        return None if emptied is None else self._pruned(emptied)

    # ---- one member --------------------------------------------------------------------------------------------------

    def _single(self, gains: Gains, layers: list[Layer]) -> Victims | None:
        """The best set of each node, as far as it can beat the best so far; nodes that lose fewest come first."""
        best: Victims | None = None
        for layer in layers:
            if best is None or len(layer.attempts) <= len(best.attempts):
                best = self.best([best, self._on_node(gains, layer, best)])
        return best

    def _on_node(self, gains: Gains, layer: Layer, best: Victims | None) -> Victims | None:
        """The fewest and cheapest of one node, sets tried by size and price; beyond bounds all less the unneeded."""
        everybody = gains.on(layer.node)
        most = len(everybody) if best is None else min(len(everybody), len(best.attempts))
        tried = 0
        for size in range(1, most + 1):
            if comb(len(everybody), size) > SETS:
                break
            sets = (chosen for chosen in combinations(everybody, size) if gains.enough(layer.node, chosen))
            for chosen in sorted(sets, key=self.price):
                victims = self._try(chosen, layer.node)
                if victims is not None:
                    return victims
                tried += 1
                if tried >= TRIES:
                    break
        whole = self._try(layer.attempts, layer.node) or self._try(everybody, layer.node)
        return None if whole is None else self._pruned(whole)

    def _alone(self, gains: Gains) -> Victims | None:
        """The cheapest of the largest attempts, if the whole gang fits without it."""
        largest = sorted(gains.everybody, key=lambda attempt: (-int(self._work.cards[attempt]), attempt))[:TRIES]
        tried = (self._try([attempt], None) for attempt in sorted(largest, key=lambda attempt: self.price([attempt])))
        return next((victims for victims in tried if victims is not None), None)

    # ---- gangs -------------------------------------------------------------------------------------------------------

    def _emptied(self, layers: list[Layer]) -> Victims | None:
        """Add layer upon layer, as few as will do."""
        steps: list[tuple[int, ...]] = []
        chosen: dict[int, None] = {}
        for layer in layers:
            more = [attempt for attempt in layer.attempts if attempt not in chosen]
            if more and self._rights.allow([*chosen, *more]):
                chosen.update(dict.fromkeys(more))
                steps.append(tuple(chosen))
        low, high, best = 0, len(steps) - 1, None
        while low <= high:
            middle = (low + high) // 2
            victims = self._try(steps[middle], None)
            if victims is None:
                low = middle + 1
            else:
                best, high = victims, middle - 1
        return best

    def _pruned(self, victims: Victims) -> Victims | None:
        """Let stay whoever is not needed, the dearest first."""
        kept = victims
        for attempt in sorted(victims.attempts, key=lambda attempt: self.price([attempt]), reverse=True):
            fewer = self._try([other for other in kept.attempts if other != attempt], None)
            kept = fewer or kept
        return kept if len(kept.attempts) <= self._scene.policy.max_victims else None

    def _try(self, attempts: Sequence[int], node: int | None) -> Victims | None:
        """Whether the job fits when these have left, on one node if it is told."""
        if not attempts or not self._rights.allow(attempts):
            return None
        allowed = self._allowed if node is None else only(self._scene.fleet, [node], self._allowed)
        found = found_without(self._scene.room, self._work, self._demand, allowed, list(attempts))
        return None if found is None else Victims(tuple(attempts), found)
