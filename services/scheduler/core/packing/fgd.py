"""Fragmentation gradient descent (Weng et al., USENIX ATC 2023), as the simulator of the paper scores it.

A node's fragmentation is the idle card capacity that a typical task could not use, weighted by how often each comes. A
task goes where fragmentation grows least; the score is the logistic function of its decrease in cards, in whole
hundredths, and the first node by name wins among equals.
"""

from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import CARD, Floats, Ints
from services.scheduler.core.packing.crowds import crowd
from services.scheduler.core.packing.layout import Layout, State
from services.scheduler.core.packing.mix import COVERED, Mix
from services.scheduler.core.packing.needs import Need
from services.scheduler.core.packing.placer import ANY_CARD, Plain, Scorer, Scores

HUNDREDTHS = 100


@dataclass(frozen=True)
class Fgd:
    """The policy that Farside's own is measured against."""

    name: str = "fgd"
    lasting: bool = True

    def scorer(self, layout: Layout, mix: Mix) -> Scorer:
        """Tables of how much of the mix could use a card that has so much free, beside so many processors."""
        return _Scorer(layout, mix)


class _Scorer(Plain):
    """Usable capacity is looked up: by free share and processors for one card, by whole cards for several."""

    def __init__(self, layout: Layout, mix: Mix) -> None:
        super().__init__(layout)
        seen = crowd(layout, mix)
        typical, weight = _typical(seen.demands, seen.weight, seen.cpu, seen.cards, seen.shares)
        self._width = layout.cards.shape[1]
        self._cpu = np.unique(seen.cpu[typical])
        self._shares = np.unique(seen.shares[typical]) if len(typical) else np.zeros(1, dtype=np.int64)
        kinds, cpus = len(layout.kind_tier), len(self._cpu) + 1
        self._one = np.zeros((kinds, cpus, len(self._shares) + 1))
        self._several = np.zeros((kinds, cpus, self._width + 1))
        for task, often in zip(typical.tolist(), weight.tolist(), strict=True):
            level = int((self._cpu < seen.cpu[task]).sum()) + 1
            for kind in np.flatnonzero(seen.able[task]).tolist():
                if seen.cards[task] == 1:
                    part = int((self._shares < seen.shares[task, kind]).sum()) + 1
                    self._one[kind, level:, part:] += often
                elif seen.cards[task] > 1:
                    self._several[kind, level:, seen.cards[task] :] += often

    def __call__(self, state: State, need: Need, rows: Ints) -> Scores:
        kind, demand = self.layout.kind[rows], need.demand
        free, whole, cpu = state.free[rows], state.whole[rows], state.cpu[rows]
        before = self._idle_use(kind, cpu, free, whole)
        idle, share = free.sum(axis=1), need.shares[kind]
        if not need.fraction:
            left = _without(free, need.cards)
            after = self._idle_use(kind, cpu - demand.cpu_milli, left, whole - need.cards)
            worse = (idle - before) - (idle - need.cards * CARD - after)
            return Scores(_hundredths(worse), np.full(len(rows), ANY_CARD))
        alone = self._each(kind, cpu - demand.cpu_milli, free)
        rest = np.maximum(free - share[:, None], 0)
        split = alone.sum(axis=1)[:, None] - alone + self._each(kind, cpu - demand.cpu_milli, rest)
        split += self._together(kind[:, None], (cpu - demand.cpu_milli)[:, None], whole[:, None] - (free == CARD))
        better = _hundredths((idle - before)[:, None] - (idle[:, None] - share[:, None] - split))
        better = np.where(free >= share[:, None], better, -np.inf)
        return Scores(better.max(axis=1), better.argmax(axis=1))

    def _idle_use(self, kind: Ints, cpu: Ints, free: Ints, whole: Ints) -> Floats:
        return self._each(kind, cpu, free).sum(axis=1) + self._together(kind, cpu, whole)

    def _each(self, kind: Ints, cpu: Ints, free: Ints) -> Floats:
        level = np.searchsorted(self._cpu, cpu, side="right")
        part = np.searchsorted(self._shares, free, side="right")
        return free * self._one[kind[:, None], level[:, None], part]

    def _together(self, kind: Ints, cpu: Ints, whole: Ints) -> Floats:
        level = np.searchsorted(self._cpu, cpu, side="right")
        return whole * CARD * self._several[kind, level, whole]


def _without(free: Ints, cards: int) -> Ints:
    """The free shares when the first `cards` whole ones are gone."""
    whole = free == CARD
    return np.where(whole & (whole.cumsum(axis=1) <= cards), 0, free)


def _hundredths(worse: Floats) -> Floats:
    return np.floor(HUNDREDTHS / (1 + np.exp(-worse / CARD)))


def _typical(demands: tuple[object, ...], weight: Floats, cpu: Ints, cards: Ints, shares: Ints) -> tuple[Ints, Floats]:
    """One of each (processors, cards, shares, models) that together make up most of the mix, and how often it comes."""
    told = [
        (int(cpu[task]), int(cards[task]), shares[task].tobytes(), getattr(demand, "models", ()))
        for task, demand in enumerate(demands)
    ]
    first: dict[object, int] = {}
    merged = np.zeros(len(told))
    for task, what in enumerate(told):
        merged[first.setdefault(what, task)] += weight[task]
    order = np.lexsort((np.arange(len(told)), -merged))
    order = order[merged[order] > 0]
    covered: Floats = np.cumsum(merged[order])
    enough = int((covered < COVERED * merged.sum()).sum()) + 1
    chosen = order[:enough]
    return chosen, merged[chosen] / max(merged[chosen].sum(), np.finfo(np.float64).tiny)
