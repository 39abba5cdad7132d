"""What is free while one plan is made, and every change of it, so that changes can be undone."""

from collections.abc import Sequence
from dataclasses import dataclass

from contracts.base import Tier
from services.scheduler.core.arrays import CARD, NEVER, Demand, Fleet
from services.scheduler.core.packing.held import Change, Found, Held, Spot
from services.scheduler.core.packing.layout import Layout, State, free_in
from services.scheduler.core.packing.memo import Memo, Table
from services.scheduler.core.packing.mix import Mix
from services.scheduler.core.packing.needs import share_of
from services.scheduler.core.packing.placer import Placer


@dataclass(frozen=True)
class Mark:
    """A point that a ledger can go back to."""

    changes: int


class Ledger:
    """A copy of what `fleet` has free, with what was taken and given since."""

    def __init__(self, fleet: Fleet, mix: Mix, placer: Placer, memo: Memo | None = None) -> None:
        self.fleet = fleet
        self.memo = Memo() if memo is None else memo
        self.layout: Layout = self.memo.layout_of(fleet)
        self.state: State = free_in(fleet, self.layout)
        self._mix, self._placer = mix, placer
        self._changes: list[Change] = []

    def table(self, demand: Demand, tier: Tier) -> Table:
        """The scores of all rows for one member of `demand` in a tier."""
        self.memo.turn_to(self.layout, self.state, self._mix, self._placer)
        return self.memo.table(demand, tier)

    def take(self, found: Found) -> None:
        """Take what was found. It must still be free: nothing was taken since, or it was undone."""
        for spot in found.spots:
            self.take_spot(found.demand, spot)

    def take_spot(self, demand: Demand, spot: Spot) -> None:
        """Take one member's place."""
        self._enter(Change(self.held_at(demand, spot), -1))

    @staticmethod
    def held_at(demand: Demand, spot: Spot) -> Held:
        """What a member holds at its place."""
        return Held(spot.node, spot.cards, spot.share, demand.cpu_milli, demand.memory_bytes, demand.link_mbps)

    def held(self, demand: Demand, node: int, cards: Sequence[int]) -> Held:
        """What a member of a running attempt holds; `cards` are indexes into the fleet's cards."""
        share = share_of(demand, int(self.fleet.card_memory_bytes[cards[0]])) if cards else 0
        return Held(node, tuple(cards), share, demand.cpu_milli, demand.memory_bytes, demand.link_mbps)

    def give(self, held: Held) -> None:
        """Take back what a member holds."""
        self._enter(Change(held, 1))

    def mark(self) -> Mark:
        """A point to go back to."""
        return Mark(len(self._changes))

    def undo(self, mark: Mark) -> None:
        """Go back to `mark`: all that was taken and given since is as before."""
        while len(self._changes) > mark.changes:
            change = self._changes.pop()
            self._apply(Change(change.held, -change.sign))

    def _enter(self, change: Change) -> None:
        self._apply(change)
        self._changes.append(change)

    def _apply(self, change: Change) -> None:
        held, sign, state, layout = change.held, change.sign, self.state, self.layout
        rows = slice(layout.first[held.node], layout.first[held.node + 1])
        state.cpu[rows] += sign * held.cpu_milli
        state.memory[rows] += sign * held.memory_bytes
        state.slots[rows] += sign
        if held.link_mbps and state.link[rows.start] != NEVER:
            state.link[rows] += sign * held.link_mbps
        if held.cards and state.budget[rows.start] != NEVER:
            state.budget[rows] += sign * held.share * len(held.cards)
        for card in held.cards:
            row = int(layout.card_row[card])
            state.free[row, layout.card_column[card]] += sign * held.share
            _counted(state, row)
        if self.memo.state is state:
            self.memo.log.add(range(rows.start, rows.stop))


def _counted(state: State, row: int) -> None:
    free = state.free[row].tolist()
    state.whole[row], state.most[row] = free.count(CARD), max(free)
    assert min(free) >= 0, f"row {row}: a card would give more than it has: {free}"
    assert state.most[row] <= CARD, f"row {row}: a card would have more than a whole one free: {free}"
