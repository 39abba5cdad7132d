"""What a tier holds of one card model, free and in all: the figures that reasons are made of."""

from dataclasses import dataclass

import numpy as np

from contracts.base import Tier
from services.scheduler.core.arrays import CARD, NEVER, TIERS, Bools, Demand, Fleet, Ints
from services.scheduler.core.packing.layout import Layout, State
from services.scheduler.core.packing.needs import Need, members, need_of


@dataclass(frozen=True)
class Supply:
    """Slots count members. `could` nodes would hold a member when empty; `share` is what it takes of each card.

    `slots_total` and `slots_free_by_cards` look at cards alone, the bounded ones also at the `node_slots` of each node.
    `slots_free` look at everything: how many members would find a place now, on any nodes. `share_free` is what cards
    have free together, partly used ones included (millionths).
    """

    tier: Tier
    model: str | None
    share: int
    nodes_known: int
    nodes_ready: int
    cards_total: int
    cards_free: int
    share_free: int
    slots_total: int
    slots_free_by_cards: int
    node_slots: int
    slots_bounded: int
    slots_free_bounded: int
    slots_free: int
    node_slots_total: int
    node_slots_free: int
    cpu_milli_total: int
    cpu_milli_free: int
    memory_bytes_total: int
    memory_bytes_free: int
    budget_free: int
    link_mbps_free: int

    @property
    def closeness(self) -> tuple[int, int, int]:
        """Larger where less is missing."""
        return self.slots_free_bounded, self.cards_free, self.nodes_known


def best_supply(fleet: Fleet, layout: Layout, state: State, demand: Demand, usable: Bools | None) -> Supply:
    """The supply of the tier and card model that come closest to holding the gang; `usable` is a mask over rows."""
    supplies = [
        _supply(fleet, layout, state, need, model, usable)
        for need in (need_of(layout, demand, tier) for tier in demand.tiers)
        for model in _models(layout, need)
    ]
    return max(supplies, key=lambda s: (s.nodes_ready > 0, min(s.slots_bounded, demand.members), s.closeness))


def _models(layout: Layout, need: Need) -> list[int | None]:
    """Card models that would do, those with the least memory first; None when no cards are asked or none are known."""
    if need.cards == 0:
        return [None]
    kinds = np.flatnonzero(need.kinds)
    order = kinds[np.lexsort((layout.kind_model[kinds], layout.kind_memory[kinds]))]
    return list(dict.fromkeys(layout.kind_model[order].tolist())) or [None]


def _supply(fleet: Fleet, layout: Layout, state: State, need: Need, model: int | None, usable: Bools | None) -> Supply:
    demand, tier = need.demand, TIERS.index(need.tier)
    mine = np.ones(layout.rows, dtype=np.bool_) if usable is None else usable
    in_tier = np.unique(layout.node[mine & (layout.kind_tier[layout.kind] == tier)])
    ready = in_tier[fleet.ready[in_tier]]
    suitable = mine & need.kinds[layout.kind] & fleet.ready[layout.node]
    if model is not None:
        suitable &= layout.kind_model[layout.kind] == model
    big = (fleet.cpu_milli >= demand.cpu_milli) & (fleet.memory_bytes >= demand.memory_bytes)
    rows = np.flatnonzero(suitable & big[layout.node])
    heads = np.array([layout.first[node] for node in ready.tolist()], dtype=np.int64)
    could = np.unique(layout.node[rows])
    total, free = _held_by_cards(layout, state, need, rows)
    slots = state.slots[rows]
    return Supply(
        tier=need.tier,
        model=None if model is None else layout.models[model],
        share=int(need.shares[layout.kind[rows]].max(initial=0)),
        nodes_known=len(in_tier),
        nodes_ready=len(ready),
        cards_total=int((layout.cards[suitable] >= 0).sum()) if demand.cards else 0,
        cards_free=int(state.whole[suitable].sum()) if demand.cards else 0,
        share_free=int(state.free[suitable].sum()) if demand.cards else 0,
        slots_total=int(total.sum()),
        slots_free_by_cards=int(free.sum()),
        node_slots=fleet.node_slots,
        slots_bounded=int(np.minimum(total, fleet.node_slots).sum()),
        slots_free_bounded=int(np.minimum(free, slots).sum()),
        slots_free=int(members(layout, state, need, rows).sum()),
        node_slots_total=len(could) * fleet.node_slots,
        node_slots_free=int(fleet.free_slots[could].sum()),
        cpu_milli_total=int(fleet.cpu_milli[ready].sum()),
        cpu_milli_free=int(state.cpu[heads].sum()),
        memory_bytes_total=int(fleet.memory_bytes[ready].sum()),
        memory_bytes_free=int(state.memory[heads].sum()),
        budget_free=bounded_sum(state.budget[heads]),
        link_mbps_free=bounded_sum(state.link[heads]),
    )


def _held_by_cards(layout: Layout, state: State, need: Need, rows: Ints) -> tuple[Ints, Ints]:
    """Members that each row holds by its cards alone: when empty, and now."""
    if need.cards == 0:
        many = np.full(len(rows), need.demand.members, dtype=np.int64)
        return many, many
    cards = (layout.cards[rows] >= 0).sum(axis=1)
    if not need.fraction:
        return cards // need.cards, state.whole[rows] // need.cards
    shares = np.clip(need.shares[layout.kind[rows]], 1, CARD)
    return cards * (CARD // shares), (state.free[rows] // shares[:, None]).sum(axis=1)


def bounded_sum(values: Ints) -> int:
    """Their sum, `NEVER` where one of them has no bound."""
    return NEVER if (values == NEVER).any() else int(values.sum())
