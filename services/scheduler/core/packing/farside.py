"""Farside's own policy: a member goes where the node's remainder loses least of its worth to what is likely to come.

`worth` says what a remainder is worth to the mix, so that a place pays for the cards that it leaves without processors
as well as for those that it leaves in pieces; a fraction pays besides for what the rest of its card loses (`cutting`).
Losses that differ by less than `STEP` are alike: then cards with the least memory go first, then nodes in order of
name, which keeps others whole. Losses weigh more on kinds of cards that more of the mix depends on (`pressure`).
"""

from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import CARD, Bools, Floats, Ints
from services.scheduler.core.packing import worth
from services.scheduler.core.packing.crowds import Crowd, crowd, pressure
from services.scheduler.core.packing.cutting import NOTCH, rest_worth
from services.scheduler.core.packing.layout import Layout, State
from services.scheduler.core.packing.mix import Mix
from services.scheduler.core.packing.needs import Need
from services.scheduler.core.packing.placer import ANY_CARD, Scorer, Scores
from services.scheduler.core.packing.worth import LEVELS, PARTS, Tasks, as_parts, plain

STEP = 30.0
LEANING = 0.2
SCARCE = 2.0**50
RANKS = 64
PART = CARD // PARTS
FEW = 4
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
        self._width = int(layout.cards.shape[1])
        self._size = (self._width + 1) * (PARTS + 1)
        signature, self._table = self._tables(seen)
        self._cells: list[int] = self._table.tolist()
        self._first = signature[layout.kind] * ((LEVELS + 1) * self._size)
        weight = np.maximum(1 + LEANING * (pressure(layout, seen) - 1), LEANING) / STEP
        rank = np.minimum(np.unique(layout.kind_memory, return_inverse=True)[1], RANKS - 1)
        self._weight, self._rank = weight[layout.kind], rank[layout.kind]
        self._rest = _rests(seen)
        self._scarce = bool(layout.kind_scarce.any())
        self._seen = _Seen(self._width, layout.rows)

    def _tables(self, seen: Crowd) -> tuple[Ints, Ints]:
        """One signature for each kind, and their tables end to end."""
        asked = seen.memory if self._by_memory else seen.cpu
        self._each = _beside_cards(seen, asked)[self._layout.kind]
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
        cells: Ints = np.concatenate([table.reshape(-1) for table in tables or [plain(self._width)]])
        return signature, cells

    def _table_of(self, seen: Crowd, host: Ints, able: Bools, kind: int) -> Ints:
        if not len(seen.weight):
            return plain(self._width)
        shares = seen.shares[able, kind]
        cards = seen.cards[able]
        used = (cards * shares * worth.UNIT // CARD).astype(np.float64)
        often = seen.weight * np.maximum(seen.cards, 1)
        return worth.worth(Tasks(host[able], cards, as_parts(shares), used, often[able] / often.sum()), self._width)

    def refresh(self, state: State, rows: Ints) -> None:
        """Look again at what all needs have in common: cards along the first axis, rows along the second."""
        if len(rows) <= FEW:
            for row in rows.tolist():
                self._refresh_one(state, row)
            return
        free, whole = state.free[rows].T, state.whole[rows]
        parts = free // PART
        full = parts == PARTS
        parts[full] = 0
        first, which = parts.argmax(axis=0), np.arange(len(rows))
        most = parts[first, which]
        parts[first, which] = 0
        second = parts.max(axis=0)
        parts[first, which] = most
        seen = self._seen
        seen.free[:, rows], seen.parts[:, rows] = free, parts
        seen.most[rows], seen.whole[rows], seen.idle[rows] = most, whole, free.sum(axis=0)
        seen.others[:, rows] = np.where(np.arange(len(free))[:, None] == first, second, most)
        seen.kept[:, rows] = (whole - full) * (PARTS + 1)
        seen.host[rows] = (state.memory if self._by_memory else state.cpu)[rows]
        base, surplus = self._bases(rows, seen.host[rows], seen.idle[rows])
        seen.now[rows] = self._worth(base, surplus, whole, rows)

    def _refresh_one(self, state: State, row: int) -> None:
        """The same for one row, in plain numbers: arrays of one element take longer."""
        seen, table = self._seen, self._cells
        free: list[int] = state.free[row].tolist()
        whole, idle = free.count(CARD), sum(free)
        host = int((state.memory if self._by_memory else state.cpu)[row])
        parts = [0 if share == CARD else share // PART for share in free]
        most = max(parts)
        first = parts.index(most)
        second = max([*parts[:first], *parts[first + 1 :]], default=0)
        others = [most] * len(free)
        others[first] = second
        spare = max(0, host - idle * int(self._each[row]) // CARD)
        start, size = int(self._first[row]), self._size
        base = start + min(host // self._unit, LEVELS) * size
        surplus = start + min(spare // self._unit, LEVELS) * size
        apart: int = sum([table[surplus + part] for part in parts]) - table[surplus + most]
        seen.free[:, row], seen.parts[:, row], seen.others[:, row] = free, parts, others
        seen.kept[:, row] = [(whole - (share == CARD)) * (PARTS + 1) for share in free]
        seen.most[row], seen.whole[row], seen.idle[row], seen.host[row] = most, whole, idle, host
        seen.now[row] = table[base + whole * (PARTS + 1) + most] + OTHERS * apart

    def __call__(self, state: State, need: Need, rows: Ints) -> Scores:
        del state
        seen, demand = self._seen, need.demand
        host = seen.host[rows] - (demand.memory_bytes if self._by_memory else demand.cpu_milli)
        share = need.share_on(self._layout.kind[rows])
        base, surplus = self._bases(rows, host, seen.idle[rows] - need.cards * share)
        if need.fraction:
            lost, column = self._split(base, surplus, share, rows)
        else:
            left = self._worth(base, surplus, seen.whole[rows] - need.cards, rows)
            lost = np.floor((seen.now[rows] - left) * self._weight[rows])
            column = np.full(len(rows), ANY_CARD, dtype=np.int64)
        score = -(lost * RANKS + self._rank[rows])
        if self._scarce:
            score -= (self._layout.kind_scarce[self._layout.kind[rows]] != demand.needs_bandwidth) * SCARCE
        return Scores(score, column)

    def _bases(self, rows: Ints, host: Ints, idle: Ints) -> tuple[Ints, Ints]:
        """Where the cells of rows begin: by what they have free, and by what their idle cards would leave of it."""
        first, size = self._first[rows], self._size
        surplus = np.maximum(host - idle * self._each[rows] // CARD, 0)
        level, spare = np.minimum(host // self._unit, LEVELS), np.minimum(surplus // self._unit, LEVELS)
        return first + level * size, first + spare * size

    def _worth(self, base: Ints, surplus: Ints, whole: Ints, rows: Ints) -> Floats:
        """Of rows with so many whole cards, and the partly used ones that they have."""
        table, most = self._table, self._seen.most[rows]
        apart = table.take(surplus + self._seen.parts.take(rows, axis=1)).sum(axis=0) - table[surplus + most]
        return table[base + whole * (PARTS + 1) + most] + OTHERS * apart

    def _split(self, base: Ints, surplus: Ints, share: Ints | int, rows: Ints) -> tuple[Floats, Ints]:
        """Steps lost when the best of a row's cards gives a share, and that card: of equals the one with least free.

        Only cards that have enough are looked at: `place` is where each stands in W x rows, `at` which row it is in.
        """
        table, seen = self._table, self._seen
        free = seen.free.take(rows, axis=1)
        alone = table.take(surplus + seen.parts.take(rows, axis=1))
        place = np.flatnonzero(free >= share)
        at = place % len(rows)
        row = rows[at]
        cell = place // len(rows) * self._layout.rows + row
        before = free.reshape(-1)[place]
        after = before - (share if isinstance(share, int) else share[at])
        rest, cut = after // PART, self._rest[before // NOTCH] - self._rest[after // NOTCH]
        fullest = np.maximum(seen.others.reshape(-1)[cell], rest)
        start = surplus[at]
        apart = alone.sum(axis=0)[at] - alone.reshape(-1)[place] + table[start + rest] - table[start + fullest]
        left = table[base[at] + seen.kept.reshape(-1)[cell] + fullest] + OTHERS * apart
        ranked = np.full(free.shape, np.inf)
        steps = np.floor((seen.now[row] - left + cut) * self._weight[row])
        ranked.reshape(-1)[place] = steps * (2 * CARD) + before
        column = ranked.argmin(axis=0)
        return np.floor(ranked[column, np.arange(len(rows))] / (2 * CARD)), column


class _Seen:
    """What all needs have in common of each row; W x R or R."""

    def __init__(self, width: int, rows: int) -> None:
        wide, long = (width, rows), rows
        self.free, self.parts, self.others, self.kept = (np.zeros(wide, dtype=np.int64) for _ in range(4))
        self.most, self.whole, self.idle, self.host = (np.zeros(long, dtype=np.int64) for _ in range(4))
        self.now = np.zeros(long)


def _rests(seen: Crowd) -> Floats:
    """What the rest of a card is worth to the mix's fractions, in thousandths of a card, for each hundredth."""
    least = seen.shares.min(axis=1, initial=CARD)
    fraction = (seen.cards == 1) & (least < CARD)
    return worth.UNIT * rest_worth(least[fraction], seen.weight[fraction])


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
