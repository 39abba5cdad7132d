"""What each node would gain if attempts on it left: which nodes lose the fewest for a member, and how many at least."""

from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import CARD, Bools, Demand, Ints
from services.scheduler.core.packing.needs import need_of
from services.scheduler.core.places import Area
from services.scheduler.core.scene import Scene
from services.scheduler.core.work import Work

FIRM = 1 << 50
DIMENSIONS = 3


@dataclass(frozen=True)
class Layer:
    """The attempts that leave `node` so that it holds `depth` members, as far as sums tell; they may be too few."""

    node: int
    depth: int
    attempts: tuple[int, ...]
    price: tuple[float, float]


class Gains:
    """Members of eligible attempts on the nodes of one area, and what each node lacks; cards, processors, memory.

    Sums are hopeful: an attempt that holds a part of a card counts as if the whole card would be free without it.
    """

    def __init__(self, scene: Scene, work: Work, demand: Demand, area: Area, eligible: Bools) -> None:
        attempt, node, _, touched, cpu, memory = work.per_member(eligible)
        place = np.full(len(scene.fleet.nodes), -1, dtype=np.int64)
        place[area.nodes] = np.arange(len(area.nodes))
        mine = place[node] >= 0
        self._nodes, self._counts = area.nodes, area.counts
        pairs, pair = np.unique(place[node[mine]] * max(1, work.count) + attempt[mine], return_inverse=True)
        self._attempt, self._place = pairs % max(1, work.count), pairs // max(1, work.count)
        self._freed = np.zeros((DIMENSIONS, len(pairs)), dtype=np.int64)
        for freed, amounts in zip(self._freed, (touched * CARD, cpu, memory), strict=True):
            np.add.at(freed, pair, amounts[mine])
        self._cost = work.lost[self._attempt] + np.where(work.running.preemptible[self._attempt], 0, FIRM)
        self._each, self._free = _each(demand), _free(scene, demand, area)

    def promising(self, many: int) -> list[int]:
        """Places of the nodes that lose the fewest attempts for one member, then the cheapest."""
        fewest = np.maximum(1, self._least(np.ones(len(self._nodes), dtype=np.int64)))
        there = np.flatnonzero(np.bincount(self._place, minlength=len(self._nodes)))
        cost = self._cheapest(fewest)
        chosen: list[int] = there[np.lexsort((there, cost[there], fewest[there]))][:many].tolist()
        return chosen

    def layers(self, place: int, most: int) -> list[Layer]:
        """What leaves a node for one member, for two, and so on; who frees most leaves first, then the cheapest.

        Sums may be too hopeful, so that last of all everybody leaves.
        """
        mine = np.flatnonzero(self._place == place)
        lacking = np.clip(self._each - self._free[:, place], 0, None)
        main = 0 if lacking[0] > 0 or self._each[0] else 1
        order = mine[np.lexsort((self._attempt[mine], self._cost[mine], -self._freed[main][mine]))]
        sums, costs = np.cumsum(self._freed[:, order], axis=1), np.cumsum(self._cost[order])
        found: list[Layer] = []
        for depth in range(1, min(most, int(self._counts[place])) + 1):
            short = depth * self._each - self._free[:, place]
            many = min(max(_reached(sums, short), 1), len(order))
            price = many / depth, float(costs[many - 1]) / depth
            found.append(Layer(int(self._nodes[place]), depth, tuple(self._attempt[order[:many]].tolist()), price))
        everybody = tuple(self._attempt[order].tolist())
        if found and found[-1].attempts != everybody:
            price = len(everybody) / found[-1].depth, float(costs[-1]) / found[-1].depth
            found.append(Layer(int(self._nodes[place]), found[-1].depth, everybody, price))
        return found

    @property
    def everybody(self) -> list[int]:
        """The eligible attempts on any of the nodes."""
        attempts: list[int] = np.unique(self._attempt).tolist()
        return attempts

    def on(self, node: int) -> list[int]:
        """The eligible attempts on a node."""
        attempts: list[int] = np.unique(self._attempt[self._nodes[self._place] == node]).tolist()
        return attempts

    def enough(self, node: int, attempts: tuple[int, ...]) -> bool:
        """Whether sums do not rule out that one member fits when these have left the node."""
        place = int(np.flatnonzero(self._nodes == node)[0])
        leave = (self._place == place) & np.isin(self._attempt, attempts)
        return bool((self._freed[:, leave].sum(axis=1) + self._free[:, place] >= self._each).all())

    def enough_for(self, members: int, attempts: tuple[int, ...]) -> bool:
        """Whether sums do not rule out that so many members fit on the nodes when these have left them all."""
        leave = np.isin(self._attempt, attempts)
        free = self._free.copy()
        for amounts, freed in zip(free, self._freed, strict=True):
            np.add.at(amounts, self._place[leave], freed[leave])
        asked = self._each > 0
        held = (free[asked] // self._each[asked, None]).min(axis=0, initial=members)
        return int(np.clip(held, 0, self._counts).sum()) >= members

    def ranked(self, areas: list[Area], members: int) -> list[Area]:
        """Areas among the nodes by how many attempts they lose at least, then by what those lose, as sums tell."""
        area = np.repeat(np.arange(len(areas)), [len(one.nodes) for one in areas])
        places = np.searchsorted(self._nodes, np.concatenate([one.nodes for one in areas]))
        counts = np.minimum(np.concatenate([one.counts for one in areas]), members)
        most = np.zeros(len(self._nodes), dtype=np.int64)
        np.maximum.at(most, places, counts)
        least = self._least(most)
        cost = self._cheapest(least)
        order = np.lexsort((cost[places], least[places] / np.maximum(counts, 1), area))
        sums = np.cumsum(counts[order]) - counts[order]
        before = sums - sums[np.searchsorted(area[order], area[order])]
        taken = order[before < members]
        fewest, cheapest = np.zeros((2, len(areas)), dtype=np.int64)
        np.add.at(fewest, area[taken], least[places[taken]])
        np.add.at(cheapest, area[taken], cost[places[taken]])
        return [areas[at] for at in np.lexsort((np.arange(len(areas)), cheapest, fewest)).tolist()]

    def _least(self, many: Ints) -> Ints:
        """How many attempts each node loses at least so that it holds so many members."""
        least = np.zeros(len(self._nodes), dtype=np.int64)
        for dimension in range(DIMENSIONS):
            short = many * self._each[dimension] - self._free[dimension]
            least = np.maximum(least, self._fewest(self._freed[dimension], short))
        return least

    def _fewest(self, freed: Ints, short: Ints) -> Ints:
        """How many attempts each node loses at least, by one dimension."""
        order = np.lexsort((-freed, self._place))
        place = self._place[order]
        sums = np.cumsum(freed[order])
        first = np.searchsorted(place, np.arange(len(self._nodes)))
        before = np.append(0, sums)[first]
        below = sums - before[place] < short[place]
        return np.where(short > 0, np.bincount(place[below], minlength=len(self._nodes)) + 1, 0)

    def _cheapest(self, many: Ints) -> Ints:
        """What the cheapest `many` attempts of each node lose."""
        order = np.lexsort((self._cost, self._place))
        place = self._place[order]
        position = np.arange(len(place)) - np.searchsorted(place, place)
        counted = position < many[place]
        cost = np.zeros(len(self._nodes), dtype=np.int64)
        np.add.at(cost, place[counted], self._cost[order][counted])
        return cost


def _reached(sums: Ints, short: Ints) -> int:
    """How many it takes until the running sums reach what is short, in all dimensions."""
    return max(
        int((total < lacking).sum()) + 1 if lacking > 0 else 0 for total, lacking in zip(sums, short, strict=True)
    )


def _each(demand: Demand) -> Ints:
    """What one member asks; a part of a card that depends on the card's memory counts as the least of parts."""
    share = CARD if demand.cards != 1 else (1 if demand.share_memory_bytes else demand.share)
    return np.array([demand.cards * share, demand.cpu_milli, demand.memory_bytes], dtype=np.int64)


def _free(scene: Scene, demand: Demand, area: Area) -> Ints:
    """What is free on each node of the area; of cards only what members can use."""
    layout, state = scene.room.layout, scene.room.state
    cards = np.zeros(len(scene.fleet.nodes), dtype=np.int64)
    for tier in demand.tiers if demand.cards else ():
        need = need_of(layout, demand, tier)
        rows = np.flatnonzero(need.kinds[layout.kind])
        shares = np.clip(need.shares[layout.kind[rows]], 1, CARD)
        usable = (state.free[rows] // shares[:, None] * shares[:, None]).sum(axis=1)
        np.maximum.at(cards, layout.node[rows], usable)
    first = np.array(layout.first[:-1], dtype=np.int64)[area.nodes]
    return np.stack((cards[area.nodes], state.cpu[first], state.memory[first]))
