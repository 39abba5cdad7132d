"""Where among the rows that fit: the policies."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from services.scheduler.core.arrays import CARD, Floats, Ints
from services.scheduler.core.packing.layout import Layout, State
from services.scheduler.core.packing.mix import Mix
from services.scheduler.core.packing.needs import Need

ANY_CARD = -1


@dataclass(frozen=True)
class Scores:
    """How good each row is for one member, higher is better, and which of its cards a fraction takes."""

    score: Floats
    column: Ints


class Scorer(Protocol):
    """A policy that has looked at a fleet and a mix."""

    def __call__(self, state: State, need: Need, rows: Ints) -> Scores:
        """Score rows that fit. Equal rows get equal scores, whatever the others are."""
        ...


class Placer(Protocol):
    """A policy. `name` tells policies apart."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def scorer(self, layout: Layout, mix: Mix) -> Scorer:
        """The policy for one fleet and one mix."""
        ...


@dataclass(frozen=True)
class BestFit:
    """The row that is left with the least, of cards with the least memory."""

    name: str = "bestfit"

    def scorer(self, layout: Layout, mix: Mix) -> Scorer:
        """It learns nothing from the mix."""
        del mix
        rank = np.unique(layout.kind_memory, return_inverse=True)[1].astype(np.float64)

        def score(state: State, need: Need, rows: Ints) -> Scores:
            kind = layout.kind[rows]
            left = state.free[rows].sum(axis=1) / CARD
            column = tightest(state, need.shares[kind], rows) if need.fraction else np.full(len(rows), ANY_CARD)
            return Scores(-(rank[kind] * layout.cards.shape[1] * 2 + left), column)

        return score


def tightest(state: State, shares: Ints, rows: Ints) -> Ints:
    """The card of each row that has the least free of those that have enough."""
    free = state.free[rows]
    return np.where(free >= shares[:, None], free, 2 * CARD).argmin(axis=1)
