"""What the rest of a card is worth to the fractions of a mix: the prices of the cutting-stock problem.

Cards are cut into the shares that the mix asks for. The linear program

    minimise the cards that are cut, over patterns of shares that fit one card, so that all of the mix's are covered

has a price for each share: how much of a card the last such task costs. The worth of a rest is the most that shares cut
from it would fetch, and a whole card's is 1. So the 0.19 beside a 0.81 is worth nothing where hardly any task asks that
little, and 0.53 is worth half a card where two of 0.47 share one. Patterns are made as they are needed, by the knapsack
of the prices so far (column generation: Gilmore and Gomory, Operations Research 9, 1961).
"""

from collections.abc import Callable, Iterator
from typing import Protocol, cast

import numpy as np

from services.scheduler.core.arrays import CARD, Floats, Ints

NOTCHES = 100
NOTCH = CARD // NOTCHES
SIZES = 48
ROUNDS = 64
SLACK = 1e-6


class _Solved(Protocol):
    """What is read of a solution."""

    x: Floats


def warm_up() -> None:
    """Load the solver, which takes a second, before time matters."""
    _prices(np.ones((1, 1), dtype=np.int64), np.ones(1))


def rest_worth(shares: Ints, weight: Floats) -> Floats:
    """In cards, for rests of 0 to `NOTCHES` hundredths of one.

    `shares` (millionths, below `CARD`) come `weight` often; shares are rounded up to a hundredth, and only the `SIZES`
    most frequent are looked at. Without any, a rest is worth what it is.
    """
    sizes, often = _sizes(shares, weight)
    if not len(sizes):
        return np.arange(NOTCHES + 1) / NOTCHES
    patterns = [_filled(sizes, first) for first in range(len(sizes))]
    worth = np.zeros(NOTCHES + 1)
    for _ in range(ROUNDS):
        worth, cut = _knapsack(sizes, _prices(np.array(patterns), often))
        if worth[-1] <= 1 + SLACK:
            break
        patterns.append(cut)
    return np.minimum(worth / worth[-1], 1.0)


def _sizes(shares: Ints, weight: Floats) -> tuple[Ints, Floats]:
    """The most frequent sizes in hundredths, largest first, and how often each comes beside the others."""
    sizes, where = np.unique(-(-shares // NOTCH), return_inverse=True)
    often = np.zeros(len(sizes))
    np.add.at(often, where.reshape(-1), weight)
    kept = np.lexsort((sizes, -often))[:SIZES]
    kept = kept[(sizes[kept] < NOTCHES) & (often[kept] > 0)]
    kept = kept[np.argsort(-sizes[kept])]
    return sizes[kept], often[kept] / often[kept].sum() if len(kept) else often[kept]


def _filled(sizes: Ints, first: int) -> Ints:
    """A pattern to begin with: one of `first`, and what fits beside it, the largest before the smaller."""
    pattern = np.zeros(len(sizes), dtype=np.int64)
    pattern[first] = 1
    left = NOTCHES - int(sizes[first])
    for size in range(len(sizes)):
        count = left // int(sizes[size])
        pattern[size] += count
        left -= count * int(sizes[size])
    return pattern


def _prices(patterns: Ints, often: Floats) -> Floats:
    """Of each size, in cards, when only these patterns are cut: the dual of covering, which has fewer columns."""
    from scipy import optimize  # noqa: PLC0415 - heavy, and wanted only where a mix is learnt

    solve = cast("Callable[..., _Solved]", optimize.linprog)
    return np.maximum(solve(-often, A_ub=patterns, b_ub=np.ones(len(patterns)), method="highs-ds").x, 0.0)


def _knapsack(sizes: Ints, prices: Floats) -> tuple[Floats, Ints]:
    """The most that each rest fetches, and the pattern that a whole card is best cut to."""
    worth = np.zeros(NOTCHES + 1)
    choice = np.full(NOTCHES + 1, -1, dtype=np.int64)
    for rest in range(1, NOTCHES + 1):
        gain = np.where(sizes <= rest, worth[np.maximum(rest - sizes, 0)] + prices, 0.0)
        best = int(gain.argmax())
        worth[rest] = max(worth[rest - 1], gain[best])
        choice[rest] = best if gain[best] > worth[rest - 1] + SLACK else -1
    pattern = np.zeros(len(sizes), dtype=np.int64)
    for size in _cuts(sizes, choice):
        pattern[size] += 1
    return worth, pattern


def _cuts(sizes: Ints, choice: Ints) -> Iterator[int]:
    rest = NOTCHES
    while rest > 0:
        size = int(choice[rest])
        if size >= 0:
            yield size
        rest -= int(sizes[size]) if size >= 0 else 1
