"""Scores kept from one search to the next, and from one plan to the next. They save time and change no outcome."""

from dataclasses import dataclass, field

import numpy as np

from contracts.base import Tier
from services.scheduler.core.arrays import Bools, Demand, Fleet, Floats, Ints
from services.scheduler.core.packing.layout import Layout, State, laid_out
from services.scheduler.core.packing.mix import Mix
from services.scheduler.core.packing.needs import Need, fits, need_of
from services.scheduler.core.packing.placer import Placer, Scorer

CELLS = 16_000_000
LOG = 1_000_000


@dataclass
class Table:
    """Scores of all rows for one member of one shape, `-inf` where it does not fit, as of `seen` in the log."""

    need: Need
    score: Floats
    column: Ints
    seen: int


@dataclass
class Memo:
    """Belongs to one caller; `tables` hold for `state`, but for the rows in the log since each was made."""

    fleet: Fleet | None = None
    layout: Layout | None = None
    state: State | None = None
    key: tuple[Mix, Placer] | None = None
    scorer: Scorer | None = None
    lasting: bool = True
    tables: dict[tuple[Demand, Tier], Table] = field(default_factory=dict[tuple[Demand, Tier], Table])
    log: list[int] = field(default_factory=list[int])

    def layout_of(self, fleet: Fleet) -> Layout:
        """The rows of `fleet`, those at hand where they are the same."""
        if self.layout is None or self.fleet is None or not _same(self.fleet, fleet):
            self._forget()
            self.layout = laid_out(fleet)
        self.fleet = fleet
        return self.layout

    def turn_to(self, layout: Layout, state: State, mix: Mix, placer: Placer) -> None:
        """From now on tables are asked for `state`."""
        if self.state is state and self.key == (mix, placer) and self.layout is layout:
            return
        if self.layout is not layout or self.key != (mix, placer) or self.state is None or len(self.log) > LOG:
            self._forget()
            self.layout, self.key, self.lasting = layout, (mix, placer), placer.lasting
            self.scorer = placer.scorer(layout, mix)
        else:
            self.log.extend(state.differing(self.state).tolist())
        self.state = state

    def table(self, demand: Demand, tier: Tier) -> Table:
        """The scores as of now."""
        assert self.layout is not None
        assert self.state is not None
        table = self.tables.pop((demand, tier), None)
        if table is None or not self.lasting or len(self.log) - table.seen > self.layout.rows:
            table = self._fresh(demand, tier)
        elif table.seen < len(self.log):
            self._score(table, np.array(self.log[table.seen :], dtype=np.int64))
        table.seen = len(self.log)
        self.tables[demand, tier] = table
        while len(self.tables) > max(1, CELLS // max(1, self.layout.rows)):
            del self.tables[next(iter(self.tables))]
        return table

    def _fresh(self, demand: Demand, tier: Tier) -> Table:
        assert self.layout is not None
        rows = self.layout.rows
        need = need_of(self.layout, demand, tier)
        table = Table(need, np.full(rows, -np.inf), np.full(rows, -1, dtype=np.int64), 0)
        self._score(table, np.arange(rows))
        return table

    def _score(self, table: Table, rows: Ints) -> None:
        assert self.layout is not None
        assert self.state is not None
        assert self.scorer is not None
        there: Bools = fits(self.layout, self.state, table.need, rows)
        table.score[rows[~there]] = -np.inf
        fitting = rows[there]
        if len(fitting):
            found = self.scorer(self.state, table.need, fitting)
            table.score[fitting] = found.score
            table.column[fitting] = found.column

    def _forget(self) -> None:
        self.tables.clear()
        self.log.clear()
        self.state = self.key = self.scorer = None


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
