"""What one member of a job asks of a row, and which rows give it."""

from dataclasses import dataclass

import numpy as np

from contracts.base import Tier
from services.scheduler.core.arrays import CARD, TIERS, Bools, Demand, Ints
from services.scheduler.core.packing.layout import NO_MODEL, Layout, State


@dataclass(frozen=True)
class Need:
    """One member's demand in one tier, with what follows from the kinds of rows. `shares` are what it takes of a card.

    `fraction`: it takes a part of one card; otherwise `cards` whole ones.
    """

    demand: Demand
    tier: Tier
    fraction: bool
    kinds: Bools  # K, which kinds of rows may hold it at all
    shares: Ints  # K, millionths of each card
    everywhere: bool  # whether all kinds may hold it
    share: int | None  # millionths of each card where they are the same for all kinds

    @property
    def cards(self) -> int:
        """How many cards each member takes."""
        return self.demand.cards

    def share_on(self, kind: Ints) -> Ints | int:
        """Millionths of each card on rows of these kinds; one number where it is the same on all."""
        return self.shares[kind] if self.share is None else self.share


def need_of(layout: Layout, demand: Demand, tier: Tier) -> Need:
    """What `demand` asks of the rows in `tier`."""
    fraction = demand.cards == 1 and (demand.share < CARD or demand.share_memory_bytes > 0)
    shares = _shares(layout.kind_memory, demand)
    kinds = (layout.kind_tier == TIERS.index(tier)) & (shares <= CARD)
    if demand.cards:
        kinds &= (layout.kind_model != NO_MODEL) & (layout.kind_memory >= demand.card_memory_bytes)
    if demand.cards and demand.models:
        wanted = [layout.models.index(model) for model in demand.models if model in layout.models]
        kinds &= np.isin(layout.kind_model, wanted)
    same = len(shares) > 0 and bool((shares == shares[0]).all())
    return Need(demand, tier, fraction, kinds, shares, bool(kinds.all()), int(shares[0]) if same else None)


def _shares(memory: Ints, demand: Demand) -> Ints:
    """Millionths of one card that a member takes, by the memory of the cards; more than `CARD` where none will do."""
    if demand.cards == 0:
        return np.zeros_like(memory)
    if demand.cards > 1 or demand.share_memory_bytes == 0:
        return np.full_like(memory, CARD if demand.cards > 1 else demand.share)
    enough = np.maximum(memory, 1) >= demand.share_memory_bytes
    part = np.minimum(memory, demand.share_memory_bytes)
    return np.where(enough & (memory > 0), -(-part * CARD // np.maximum(memory, 1)), CARD + 1)


def share_of(demand: Demand, card_memory_bytes: int) -> int:
    """Millionths of each of its cards that a member holds."""
    return int(_shares(np.array([card_memory_bytes], dtype=np.int64), demand)[0])


def hopeful(state: State, need: Need) -> Ints:
    """Rows that have what is scarcest as a rule, in order; the others need not be looked at."""
    if need.cards == 0:
        return np.flatnonzero(state.cpu >= need.demand.cpu_milli)
    if need.fraction:
        return np.flatnonzero(state.most >= int(need.shares.min(initial=CARD)))
    return np.flatnonzero(state.whole >= need.cards)


def fits(layout: Layout, state: State, need: Need, rows: Ints) -> Bools:
    """Which of `rows` hold one more member."""
    demand = need.demand
    there = state.ready[rows] & (state.slots[rows] > 0)
    if not need.everywhere:
        there &= need.kinds[layout.kind[rows]]
    if demand.cpu_milli:
        there &= state.cpu[rows] >= demand.cpu_milli
    if demand.memory_bytes:
        there &= state.memory[rows] >= demand.memory_bytes
    if demand.link_mbps:
        there &= state.link[rows] >= demand.link_mbps
    if demand.cards == 0:
        return there
    share = need.share_on(layout.kind[rows])
    there &= state.most[rows] >= share if need.fraction else state.whole[rows] >= demand.cards
    return there & (state.budget[rows] >= demand.cards * share)


def members(layout: Layout, state: State, need: Need, rows: Ints) -> Ints:
    """How many members each of `rows` holds besides what is there."""
    demand = need.demand
    kind = layout.kind[rows]
    count = np.where(need.kinds[kind] & state.ready[rows], state.slots[rows], 0)
    for asked, free in (
        (demand.cpu_milli, state.cpu),
        (demand.memory_bytes, state.memory),
        (demand.link_mbps, state.link),
    ):
        if asked:
            count = np.minimum(count, free[rows] // asked)
    if demand.cards:
        shares = np.clip(need.shares[kind], 1, CARD)
        on_cards = (
            (state.free[rows] // shares[:, None]).sum(axis=1) if need.fraction else state.whole[rows] // demand.cards
        )
        count = np.minimum(np.minimum(count, on_cards), state.budget[rows] // (demand.cards * shares))
    return np.maximum(count, 0)
