"""Farside's own policy: a member goes where the node's remainder loses least of its worth to what is likely to come.

`worth` says what a remainder is worth to the mix, so that a place pays for the cards that it leaves without processors
as well as for those that it leaves in pieces. Losses that differ by less than `STEP` are alike: then cards with the
least memory go first, and nodes that have the least left, which keeps others whole. Losses weigh more on kinds of
cards that more of the mix depends on (`pressure`).
"""

from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import CARD, Floats, Ints
from services.scheduler.core.packing import worth
from services.scheduler.core.packing.crowds import Crowd, crowd, pressure
from services.scheduler.core.packing.layout import Layout, State
from services.scheduler.core.packing.mix import Mix
from services.scheduler.core.packing.needs import Need
from services.scheduler.core.packing.placer import ANY_CARD, Scorer, Scores
from services.scheduler.core.packing.worth import LEVELS, PARTS, Tasks, as_parts, plain

STEP = 20.0
LEANING = 0.2
SCARCE = 2.0**50
WORTH_BITS, RANK_BITS = 2**16, 2**6
OTHERS = 0.8


@dataclass(frozen=True)
class Farside:
    """Least loss of worth."""

    name: str = "farside"
    lasting: bool = True

    def scorer(self, layout: Layout, mix: Mix) -> Scorer:
        """The worth of every remainder, for one fleet and one mix."""
        return _Scorer(layout, mix)


class _Scorer:
    """Tables of worth by signature: kinds of rows to which the mix is the same share one."""

    def __init__(self, layout: Layout, mix: Mix) -> None:
        seen = crowd(layout, mix)
        self._layout = layout
        self._by_memory = _memory_binds(layout, seen)
        most = layout.memory if self._by_memory else layout.cpu
        self._unit = max(1, -(-int(most.max(initial=1)) // LEVELS))
        self._width = layout.cards.shape[1]
        self._signature, self._table = self._tables(seen)
        self._weight = np.maximum(1 + LEANING * (pressure(layout, seen) - 1), LEANING) / STEP
        self._rank = np.minimum(np.unique(layout.kind_memory, return_inverse=True)[1], RANK_BITS - 1)

    def _tables(self, seen: Crowd) -> tuple[Ints, Ints]:
        """One signature for each kind, and their tables end to end."""
        asked = seen.memory if self._by_memory else seen.cpu
        self._each = _beside_cards(seen, asked)
        host = np.maximum(1, -(-asked // self._unit))
        known: dict[bytes, int] = {}
        tables: list[Ints] = []
        signature = np.zeros(len(self._layout.kind_tier), dtype=np.int64)
        for kind in range(len(signature)):
            able = seen.able[:, kind] & (seen.cards > 0)
            key = able.tobytes() + seen.shares[able, kind].tobytes()
            if key not in known:
                known[key] = len(tables)
                tables.append(self._table_of(seen, host, able, kind))
            signature[kind] = known[key]
        return signature, np.concatenate([table.reshape(-1) for table in tables]) if tables else plain(self._width)

    def _table_of(self, seen: Crowd, host: Ints, able: np.ndarray, kind: int) -> Ints:
        if not len(seen.weight):
            return plain(self._width)
        shares = seen.shares[able, kind]
        cards = seen.cards[able]
        used = (cards * shares * worth.UNIT // CARD).astype(np.float64)
        return worth.worth(Tasks(host[able], cards, as_parts(shares), used, seen.weight[able]), self._width)

    def __call__(self, state: State, need: Need, rows: Ints) -> Scores:
        kind = self._layout.kind[rows]
        host = (state.memory if self._by_memory else state.cpu)[rows]
        asked = need.demand.memory_bytes if self._by_memory else need.demand.cpu_milli
        free, whole, share = state.free[rows], state.whole[rows], need.shares[kind]
        idle = free.sum(axis=1)
        parts = np.where(free == CARD, 0, free * PARTS // CARD)
        now = self._worth(self._bases(kind, host, idle), whole, parts)
        bases = self._bases(kind, host - asked, idle - need.cards * share)
        weight = self._weight[kind]
        if need.fraction:
            left = self._split(bases, whole, free, parts, share)
            steps = np.floor((now[:, None] - left) * weight[:, None])
            ranked = np.where(free >= share[:, None], steps * (2 * CARD) + free, np.inf)
            column = ranked.argmin(axis=1)
            lost = np.take_along_axis(steps, column[:, None], axis=1)[:, 0]
        else:
            lost = np.floor((now - self._worth(bases, whole - need.cards, parts)) * weight)
            column = np.full(len(rows), ANY_CARD, dtype=np.int64)
        return Scores(self._score(need, kind, lost, now), column)

    def _score(self, need: Need, kind: Ints, lost: Floats, now: Floats) -> Floats:
        unwanted = self._layout.kind_scarce[kind] != need.demand.needs_bandwidth
        ties = self._rank[kind] * float(WORTH_BITS) + np.clip(now, 0, WORTH_BITS - 1)
        return -(lost * float(RANK_BITS * WORTH_BITS) + ties) - unwanted * SCARCE

    def _bases(self, kind: Ints, host: Ints, idle: Ints) -> tuple[Ints, Ints]:
        """Where the cells of rows begin: by what they have free, and by what their idle cards would leave of it."""
        signature = self._signature[kind] * (LEVELS + 1)
        size = (self._width + 1) * (PARTS + 1)
        surplus = host - idle * self._each[kind] // CARD
        return tuple((signature + np.clip(free // self._unit, 0, LEVELS)) * size for free in (host, surplus))

    def _worth(self, bases: tuple[Ints, Ints], whole: Ints, parts: Ints) -> Floats:
        """Of rows with so many whole cards and `parts` of the others (R x W)."""
        table, (base, surplus) = self._table, bases
        most = parts.max(axis=1)
        apart = table[surplus[:, None] + parts].sum(axis=1) - table[surplus + most]
        return table[base + whole * (PARTS + 1) + most] + np.floor(OTHERS * apart)

    def _split(self, bases: tuple[Ints, Ints], whole: Ints, free: Ints, parts: Ints, shares: Ints) -> Floats:
        """The worth of each row when one of its cards gives a share, for each card (R x W)."""
        table, rows, base, surplus = self._table, np.arange(len(whole)), bases[0][:, None], bases[1][:, None]
        first = parts.argmax(axis=1)
        others = parts.copy()
        others[rows, first] = 0
        fullest = np.repeat(parts[rows, first][:, None], parts.shape[1], axis=1)
        fullest[rows, first] = others.max(axis=1)
        rest = np.maximum(free - shares[:, None], 0) * PARTS // CARD
        fullest = np.maximum(fullest, rest)
        alone = table[surplus + parts]
        apart = alone.sum(axis=1)[:, None] - alone + table[surplus + rest] - table[surplus + fullest]
        still_whole = whole[:, None] - (free == CARD)
        return table[base + still_whole * (PARTS + 1) + fullest] + np.floor(OTHERS * apart)


def _memory_binds(layout: Layout, seen: Crowd) -> bool:
    """Whether the mix asks more of the fleet's memory than of its processors."""
    ones = np.diff(layout.node, prepend=-1) != 0
    cpu, memory = float(layout.cpu[ones].sum()), float(layout.memory[ones].sum())
    return bool((seen.weight @ seen.memory) * cpu > (seen.weight @ seen.cpu) * memory)


def _beside_cards(seen: Crowd, asked: Ints) -> Ints:
    """What the mix takes of processors, or memory, beside a whole card of each kind."""
    with_cards = seen.able * (seen.weight * (seen.cards > 0))[:, None]
    used = (with_cards * seen.used).sum(axis=0)
    return np.rint((with_cards * asked[:, None]).sum(axis=0) / np.maximum(used, 1e-9)).astype(np.int64)
