"""What a node's remainder will be worth: the card capacity that the tasks of a mix may still use of it.

A node is seen as `c` levels of free processors (or memory, whichever is scarcer in the fleet), `k` whole free cards and
`r` levels of the fullest partly used card. Tasks come at random as the mix has them. The node takes those that gain
most and lets the others pass, of which `FORCED` come in all the same because nothing else takes them; waiting costs
`IMPATIENCE` a task. So

    V(c, k, r) = max over sets A of tasks:  sum of a_t (m_t + V(what is left after t))  /  (sum of a_t + IMPATIENCE)

where m_t is the capacity that t uses, p_t how often it comes (counted by the cards it asks, so that few tasks with many
cards are not overlooked), a_t = p_t in A, FORCED * p_t outside, over the tasks that
fit. V is a policy iteration away from V of fewer levels: each task takes at least one.
"""

from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import CARD, Floats, Ints

LEVELS = 128
PARTS = 20
IMPATIENCE = 0.001
FORCED = 0.1
CLASSES = 128
ROUNDS = 12
UNIT = 1000
NOWHERE = -1e12


@dataclass(frozen=True)
class Tasks:
    """Tasks of a mix as one kind of rows sees them; T tasks. `used` is in thousandths of a card."""

    host: Ints  # T, levels of processors, at least 1
    cards: Ints  # T
    parts: Ints  # T, parts of one card, PARTS when whole cards are asked
    used: Floats  # T
    weight: Floats  # T, sums to 1 over the whole mix

    def merged(self) -> "Tasks":
        """Those that a node cannot tell apart put together, the most frequent `CLASSES` of them."""
        keys, where = np.unique(np.stack((self.host, self.cards, self.parts), axis=1), axis=0, return_inverse=True)
        where = where.reshape(-1)
        weight: Floats = np.zeros(len(keys))
        used: Floats = np.zeros(len(keys))
        np.add.at(weight, where, self.weight)
        np.add.at(used, where, self.weight * self.used)
        kept = np.sort(np.lexsort((np.arange(len(keys)), -weight))[:CLASSES])
        return Tasks(keys[kept, 0], keys[kept, 1], keys[kept, 2], used[kept] / weight[kept], weight[kept])


def worth(tasks: Tasks, width: int) -> Ints:
    """V in thousandths of a card, as (LEVELS + 1) x (width + 1) x (PARTS + 1)."""
    tasks = tasks.merged()
    cells = (width + 1) * (PARTS + 1)
    value = np.zeros((LEVELS + 1, cells + 1))
    value[:, -1] = NOWHERE
    if len(tasks.host):
        left = _left(tasks, width)
        for level in range(1, LEVELS + 1):
            some = tasks.host <= level
            before = value[(level - tasks.host[some])[:, None, None], left[some]].max(axis=1)
            gain = before + tasks.used[some, None]
            value[level, :-1] = _chosen(gain, tasks.weight[some, None], value[level - 1, :-1])
    return np.rint(value[:, :-1]).astype(np.int64).reshape(LEVELS + 1, width + 1, PARTS + 1)


def _left(tasks: Tasks, width: int) -> Ints:
    """For each task the cell that every cell becomes (T x 2 x cells), on the open card or on a whole one."""
    whole, part = (grid.reshape(-1) for grid in np.mgrid[0 : width + 1, 0 : PARTS + 1])
    nowhere = len(whole)
    cards, parts = tasks.cards[:, None], tasks.parts[:, None]
    fraction = parts < PARTS
    opened = np.where(fraction & (part >= parts), whole * (PARTS + 1) + part - parts, nowhere)
    rest = np.where(fraction, np.maximum(PARTS - parts, part), part)
    fresh = np.where(whole >= cards, (whole - cards) * (PARTS + 1) + rest, nowhere)
    return np.stack((opened, fresh), axis=1)


def _chosen(gain: Floats, weight: Floats, start: Floats) -> Floats:
    """The best that each cell can expect of tasks that gain so much (T x cells); `start` is near to it."""
    rate = (gain >= 0) * weight
    earned = rate * gain
    forced, certain = FORCED * earned.sum(axis=0), FORCED * rate.sum(axis=0) + IMPATIENCE
    earned *= 1 - FORCED
    rate *= 1 - FORCED
    best = start
    for turn in range(ROUNDS):
        taken = gain > best
        better = (forced + (taken * earned).sum(axis=0)) / (certain + (taken * rate).sum(axis=0))
        if turn and (better <= best).all():
            break
        best = better
    return best


def as_parts(shares: Ints) -> Ints:
    """Parts of a card that a share takes, rounded up; a whole card has `PARTS`."""
    return -(-shares * PARTS // CARD)


def plain(width: int) -> Ints:
    """V where no mix is known: all that is free will be used."""
    whole, part = np.mgrid[0 : width + 1, 0 : PARTS + 1]
    cells = whole * UNIT + part * (UNIT // PARTS)
    return np.broadcast_to(cells, (LEVELS + 1, width + 1, PARTS + 1)).astype(np.int64)
