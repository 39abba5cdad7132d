"""Scores kept from one search to the next, and from one plan to the next. They save time and change no outcome."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.base import Tier
from services.scheduler.core.arrays import Demand, Fleet, Floats, Ints
from services.scheduler.core.packing.layout import Layout, State, laid_out
from services.scheduler.core.packing.mix import Mix
from services.scheduler.core.packing.needs import Need, fits, hopeful, need_of
from services.scheduler.core.packing.placer import Placer, Scorer

CELLS = 32_000_000
LOG = 1_000_000


@dataclass
class Table:
    """Scores of all rows for one member of one shape, `-inf` where it does not fit, as of `seen` in the log."""

    need: Need
    score: Floats
    column: NDArray[np.int16]
    seen: int


class Log:
    """Rows that have changed, in order."""

    def __init__(self) -> None:
        self._rows: Ints = np.zeros(1024, dtype=np.int64)
        self.end = 0

    def add(self, rows: Sequence[int] | Ints) -> None:
        """These have changed."""
        end = self.end + len(rows)
        if end > len(self._rows):
            self._rows = np.concatenate((self._rows[: self.end], np.zeros(end + len(self._rows), dtype=np.int64)))
        self._rows[self.end : end] = rows
        self.end = end

    def since(self, position: int) -> Ints:
        """What has changed since; rows may come more than once."""
        return self._rows[position : self.end]


class Memo:
    """Belongs to one caller; its tables hold for `state`, but for the rows in the log since each was made."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.log = Log()
        self._fleet: Fleet | None = None
        self._layout: Layout | None = None
        self._key: tuple[Mix, Placer] | None = None
        self._scorer: Scorer | None = None
        self._lasting = True
        self._refreshed = 0
        self._tables: dict[tuple[Demand, Tier], Table] = {}

    def layout_of(self, fleet: Fleet) -> Layout:
        """The rows of `fleet`, those at hand where they are the same."""
        if self._layout is None or self._fleet is None or not _same(self._fleet, fleet):
            self._forget()
            self._layout = laid_out(fleet)
        self._fleet = fleet
        return self._layout

    def turn_to(self, layout: Layout, state: State, mix: Mix, placer: Placer) -> None:
        """From now on tables are asked for `state`."""
        if self.state is state and self._layout is layout and self._key == (mix, placer):
            return
        if self._layout is not layout or self.state is None or self._key != (mix, placer) or self.log.end > LOG:
            self._forget()
            self._layout, self._key, self._lasting = layout, (mix, placer), placer.lasting
            self._scorer = placer.scorer(layout, mix)
            self._scorer.refresh(state, np.arange(layout.rows))
        else:
            self.log.add(state.differing(self.state))
        self.state = state

    def table(self, demand: Demand, tier: Tier) -> Table:
        """The scores as of now."""
        assert self._layout is not None
        log, tables, key = self.log, self._tables, (demand, tier)
        table = tables.get(key)
        if table is None or not self._lasting or log.end - table.seen > self._layout.rows:
            table = tables[key] = self._fresh(self._layout, demand, tier)
            while len(tables) > max(1, CELLS // max(1, self._layout.rows)):
                del tables[next(iter(tables))]
        elif table.seen < log.end:
            self._score(self._layout, table, log.since(table.seen))
        table.seen = log.end
        return table

    def _fresh(self, layout: Layout, demand: Demand, tier: Tier) -> Table:
        need = need_of(layout, demand, tier)
        table = Table(need, np.full(layout.rows, -np.inf), np.zeros(layout.rows, dtype=np.int16), 0)
        assert self.state is not None
        self._score(layout, table, hopeful(self.state, need))
        return table

    def _score(self, layout: Layout, table: Table, rows: Ints) -> None:
        state, scorer, log = self.state, self._scorer, self.log
        assert state is not None
        assert scorer is not None
        if self._refreshed < log.end:
            changed = log.since(self._refreshed)
            scorer.refresh(state, np.unique(changed) if len(changed) > 1 else changed)
            self._refreshed = log.end
        table.score[rows] = -np.inf
        fitting = rows[fits(layout, state, table.need, rows)]
        if len(fitting):
            found = scorer(state, table.need, fitting)
            table.score[fitting] = found.score
            table.column[fitting] = found.column

    def _forget(self) -> None:
        self._tables.clear()
        self.log, self._refreshed = Log(), 0
        self.state = self._key = self._scorer = None


def _same(left: Fleet, right: Fleet) -> bool:
    """Whether both have the same nodes and cards, whatever is free."""
    if left is right:
        return True
    named = ("nodes", "models")
    fixed = (
        "tier",
        "scarce",
        "cpu_milli",
        "memory_bytes",
        "card_node",
        "card_index",
        "card_model",
        "card_memory_bytes",
        "card_link",
    )
    return all(getattr(left, name) == getattr(right, name) for name in named) and all(
        np.array_equal(getattr(left, name), getattr(right, name)) for name in fixed
    )
