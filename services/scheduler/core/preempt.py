"""Who must leave so that a job can start: the fewest attempts, of these the cheapest, whole gangs only.

The search goes node by node: how many attempts each must lose for one member, for two, and so on (`gains`). For a
single member the sets of each promising node are tried by size and price; for a gang nodes are emptied, those that
lose least first, until all members fit, then every victim that is not needed stays, and where few come into question
smaller and cheaper sets are tried. All tiers are searched; of equal sets the one of the tier that the job likes best.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import Protocol

import numpy as np

from services.scheduler.core.arrays import TIERS, Bools, Demand
from services.scheduler.core.gains import Gains, Layer
from services.scheduler.core.packing import Found
from services.scheduler.core.places import Area, areas
from services.scheduler.core.reserve import found_without, only
from services.scheduler.core.scene import Scene
from services.scheduler.core.work import Work

AREAS = 16
NODES = 24
SETS = 400
TRIES = 16

Price = tuple[int, int, int, int, tuple[str, ...]]


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
    if len(there) > AREAS:
        there = _everywhere(scene, work, demand, there, rights.eligible).ranked(there, demand.members)[:AREAS]
    return hunt.best([hunt.in_area(area) for area in there])


def _everywhere(scene: Scene, work: Work, demand: Demand, there: list[Area], eligible: Bools) -> Gains:
    """The gains of all nodes of some areas."""
    nodes = np.unique(np.concatenate([area.nodes for area in there]))
    return Gains(scene, work, demand, Area(nodes, np.full(len(nodes), demand.members, dtype=np.int64)), eligible)


class _Hunt:
    def __init__(self, scene: Scene, work: Work, demand: Demand, allowed: Bools | None, rights: Right) -> None:
        self._scene, self._work, self._demand, self._rights = scene, work, demand, rights
        self._allowed = allowed

    def price(self, attempts: Sequence[int], tier: int = 0) -> Price:
        """Fewest, then fewest that are not preemptible, then least work lost; names make it the same for any order."""
        running = self._work.running
        lost = sum(int(self._work.lost[attempt]) for attempt in attempts)
        firm = sum(not running.preemptible[attempt] for attempt in attempts)
        return len(attempts), firm, lost, tier, tuple(sorted(running.job_ids[attempt] for attempt in attempts))

    def best(self, found: Sequence[Victims | None]) -> Victims | None:
        """The one with the least price."""
        return min(
            (victims for victims in found if victims is not None),
            key=lambda victims: self.price(victims.attempts, self._tier(victims.found)),
            default=None,
        )

    def _tier(self, found: Found) -> int:
        """How far down the tier of a place is among those that the job may use."""
        return self._demand.tiers.index(TIERS[int(self._scene.fleet.tier[found.spots[0].node])])

    def in_area(self, area: Area) -> Victims | None:
        """Victims on the nodes of one area."""
        gains = Gains(self._scene, self._work, self._demand, area, self._rights.eligible)
        places = gains.promising(NODES + 2 * self._demand.members)
        layers = [layer for place in places for layer in gains.layers(place, self._demand.members)]
        if self._demand.members == 1:
            return self._single(gains, layers)
        emptied = self._emptied(sorted(layers, key=lambda layer: (layer.price, layer.node, layer.depth)))
        pruned = None if emptied is None else self._pruned(emptied)
        return self.best([self._smaller(gains, pruned), pruned])

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
            for chosen in sorted(filter(self._rights.allow, sets), key=self.price):
                victims = self._try(chosen, layer.node)
                if victims is not None:
                    return victims
                tried += 1
                if tried >= TRIES:
                    break
        whole = self._try(layer.attempts, layer.node) or self._try(everybody, layer.node)
        return None if whole is None else self._pruned(whole)

    # ---- gangs -------------------------------------------------------------------------------------------------------

    def _smaller(self, gains: Gains, known: Victims | None) -> Victims | None:
        """The fewest and cheapest of those on the nodes, sets tried by size and price, up to the size of what is known.

        Where too many come into question, the largest attempts alone.
        """
        everybody, members = gains.everybody, self._demand.members
        most = len(everybody) if known is None else len(known.attempts)
        if len(everybody) > SETS:
            return self._alone(everybody)
        for size in range(1, most + 1):
            if comb(len(everybody), size) > SETS:
                break
            allowed = sorted(filter(self._rights.allow, combinations(everybody, size)), key=self.price)
            hopeful = (chosen for chosen in allowed if gains.enough_for(members, chosen))
            victims = self._first(islice(hopeful, TRIES))
            if victims is not None:
                return victims
        return None

    def _alone(self, everybody: list[int]) -> Victims | None:
        """The cheapest of the largest attempts, if the whole gang fits without it."""
        largest = sorted(everybody, key=lambda attempt: (-int(self._work.cards[attempt]), attempt))[:TRIES]
        return self._first(sorted(((attempt,) for attempt in largest), key=self.price))

    def _first(self, sets: Iterable[Sequence[int]]) -> Victims | None:
        """The first set that makes room."""
        tried = (self._try(chosen, None) for chosen in sets)
        return next((victims for victims in tried if victims is not None), None)

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
