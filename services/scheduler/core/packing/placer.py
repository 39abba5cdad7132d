"""Where among the rows that fit: the policies."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from services.scheduler.core.arrays import CARD, Floats, Ints
from services.scheduler.core.packing.layout import Layout, State
from services.scheduler.core.packing.mix import Mix
from services.scheduler.core.packing.needs import Need

ANY_CARD = -1
HUNDREDTHS = 100


@dataclass(frozen=True)
class Scores:
    """How good each row is for one member, higher is better, and which of its cards a fraction takes."""

    score: Floats
    column: Ints


class Scorer(Protocol):
    """A policy that has looked at a fleet and a mix."""

    def refresh(self, state: State, rows: Ints) -> None:
        """Look again at rows that have changed; all of them come once before the first score."""
        ...

    def __call__(self, state: State, need: Need, rows: Ints) -> Scores:
        """Score rows that fit. Equal rows get equal scores, whatever the others are."""
        ...


class Placer(Protocol):
    """A policy. `name` tells policies apart."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether a score holds for as long as its row is the same."""
        ...

    def scorer(self, layout: Layout, mix: Mix) -> Scorer:
        """The policy for one fleet and one mix."""
        ...


class Plain:
    """A policy that keeps nothing of the rows."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def refresh(self, state: State, rows: Ints) -> None:
        """Nothing is kept."""


@dataclass(frozen=True)
class BestFit:
    """The row that is left with the least cards and processors, each as a part of the most that a node has."""

    name: str = "bestfit"
    lasting: bool = True

    def scorer(self, layout: Layout, mix: Mix) -> Scorer:
        """It learns nothing from the mix."""
        del mix
        return _BestFit(layout)


class _BestFit(Plain):
    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._most_cards = max(1, layout.cards.shape[1]) * CARD
        self._most_cpu = max(1, int(layout.cpu.max(initial=1)))

    def __call__(self, state: State, need: Need, rows: Ints) -> Scores:
        shares = need.shares[self.layout.kind[rows]]
        cards, cpu = state.free[rows].sum(axis=1) - need.cards * shares, state.cpu[rows] - need.demand.cpu_milli
        left = cards / self._most_cards / 2 + cpu / self._most_cpu / 2
        column = tightest(state, shares, rows) if need.fraction else np.full(len(rows), ANY_CARD, dtype=np.int64)
        return Scores(np.floor(HUNDREDTHS * (1 - left)), column)


@dataclass(frozen=True)
class Random:
    """Any row that fits, and any card: what the others are worth is seen beside it."""

    seed: int = 0
    name: str = "random"
    lasting: bool = False

    def scorer(self, layout: Layout, mix: Mix) -> Scorer:
        """One that draws anew for each search."""
        del mix
        return _Random(layout, self.seed)


class _Random(Plain):
    def __init__(self, layout: Layout, seed: int) -> None:
        super().__init__(layout)
        self._draw = np.random.default_rng(seed)

    def __call__(self, state: State, need: Need, rows: Ints) -> Scores:
        enough = state.free[rows] >= need.shares[self.layout.kind[rows]][:, None]
        return Scores(self._draw.random(len(rows)), (enough * (1 + self._draw.random(enough.shape))).argmax(axis=1))


def tightest(state: State, shares: Ints, rows: Ints) -> Ints:
    """The card of each row that has the least free of those that have enough."""
    free = state.free[rows]
    return np.where(free >= shares[:, None], free, 2 * CARD).argmin(axis=1)
