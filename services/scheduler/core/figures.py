"""The figures that reasons are made of, for thousands of shapes at once.

Figures hold for a room as it is when they are first asked for. What depends on cards alone is kept for all shapes that
ask the same of cards; a shape adds its processors and memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from contracts.base import Tier
from services.scheduler.core.arrays import CARD, NEVER, TIERS, Bools, Demand, Ints
from services.scheduler.core.packing import Room, Supply
from services.scheduler.core.packing.needs import Need, members, need_of


@dataclass(frozen=True)
class _Host:
    """What the nodes of one tier have, whatever their cards."""

    nodes_known: int
    nodes_ready: int
    cpu_milli_total: int
    cpu_milli_free: int
    memory_bytes_total: int
    memory_bytes_free: int
    budget_free: int
    link_mbps_free: int


@dataclass(frozen=True)
class _Cards:
    """Rows of one card model, and how many members each holds by its cards: when empty, and now."""

    model: str | None
    rows: Ints
    node: Ints
    total: Ints
    free: Ints
    share: int
    cards_total: int
    cards_free: int
    share_free: int


class Figures:
    """`supply` for any demand, over the nodes of a group of tenants (`usable`: a mask over nodes, None for all)."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._hosts: dict[tuple[Tier, int], _Host] = {}
        self._cards: dict[tuple[Demand, Tier, int], list[_Cards]] = {}
        first = np.array(room.layout.first[:-1], dtype=np.int64)
        self._slots: Ints = room.state.slots[first] if len(first) else first
        self._budgets = bool((room.fleet.free_budget != NEVER).any())

    def supply(self, demand: Demand, group: int, usable: Bools | None) -> Supply:
        """What the tier and card model hold that come closest to holding the gang."""
        return max(
            self._supplies(demand, group, usable),
            key=lambda s: (s.nodes_ready > 0, min(s.slots_bounded, demand.members), s.closeness),
        )

    def _supplies(self, demand: Demand, group: int, usable: Bools | None) -> Iterator[Supply]:
        by_cards = replace(
            demand, cpu_milli=0, memory_bytes=0, link_mbps=0, members=1, level=None, level_required=False
        )
        for tier in demand.tiers:
            if (tier, group) not in self._hosts:
                self._hosts[tier, group] = self._host(tier, usable)
            key = by_cards, tier, group
            if key not in self._cards:
                self._cards[key] = list(self._of_cards(need_of(self._room.layout, by_cards, tier), usable))
            for cards in self._cards[key]:
                yield self._supply(demand, tier, self._hosts[tier, group], cards)

    def _host(self, tier: Tier, usable: Bools | None) -> _Host:
        fleet, state = self._room.fleet, self._room.state
        mine = fleet.tier == TIERS.index(tier)
        mine = mine if usable is None else mine & usable
        ready = np.flatnonzero(mine & fleet.ready)
        heads = np.array(self._room.layout.first[:-1], dtype=np.int64)[ready]
        return _Host(
            nodes_known=int(mine.sum()),
            nodes_ready=len(ready),
            cpu_milli_total=int(fleet.cpu_milli[ready].sum()),
            cpu_milli_free=int(state.cpu[heads].sum()),
            memory_bytes_total=int(fleet.memory_bytes[ready].sum()),
            memory_bytes_free=int(state.memory[heads].sum()),
            budget_free=_bounded_sum(state.budget[heads]),
            link_mbps_free=_bounded_sum(state.link[heads]),
        )

    def _of_cards(self, need: Need, usable: Bools | None) -> Iterator[_Cards]:
        """One for each card model, those with the least memory first; one in all when no cards are asked."""
        layout, ready = self._room.layout, self._room.fleet.ready
        suitable = need.kinds[layout.kind] & ready[layout.node]
        suitable = suitable if usable is None else suitable & usable[layout.node]
        kinds = np.flatnonzero(need.kinds)
        order = kinds[np.lexsort((layout.kind_model[kinds], layout.kind_memory[kinds]))]
        models: list[int] = list(dict.fromkeys(layout.kind_model[order].tolist())) if need.cards else []
        for model in models:
            rows = np.flatnonzero(suitable & (layout.kind_model[layout.kind] == model))
            yield self._of_rows(need, layout.models[model], rows)
        if not models:
            rows = np.flatnonzero(suitable)
            yield self._of_rows(need, None, rows[np.unique(layout.node[rows], return_index=True)[1]])

    def _of_rows(self, need: Need, model: str | None, rows: Ints) -> _Cards:
        layout, state = self._room.layout, self._room.state
        count = (layout.cards[rows] >= 0).sum(axis=1) if need.cards else np.zeros(len(rows), dtype=np.int64)
        shares = np.clip(need.shares[layout.kind[rows]], 1, CARD)
        if need.cards == 0:
            total = free = np.full(len(rows), NEVER, dtype=np.int64)
        elif need.fraction:
            total, free = count * (CARD // shares), (state.free[rows] // shares[:, None]).sum(axis=1)
        else:
            total, free = count // need.cards, state.whole[rows] // need.cards
        return _Cards(
            model=model,
            rows=rows,
            node=layout.node[rows],
            total=total,
            free=free,
            share=int(shares.max(initial=0)) if need.cards else 0,
            cards_total=int(count.sum()),
            cards_free=int(state.whole[rows].sum()) if need.cards else 0,
            share_free=int(state.free[rows].sum()) if need.cards else 0,
        )

    def _supply(self, demand: Demand, tier: Tier, host: _Host, cards: _Cards) -> Supply:
        fleet, state = self._room.fleet, self._room.state
        node, rows, total, free = cards.node, cards.rows, cards.total, cards.free
        big = (fleet.cpu_milli[node] >= demand.cpu_milli) & (fleet.memory_bytes[node] >= demand.memory_bytes)
        if not big.all():
            node, rows, total, free = node[big], rows[big], total[big], free[big]
        total, free = np.minimum(total, demand.members), np.minimum(free, demand.members)
        alone = demand.members == 1 and demand.level is None
        need = None if alone else need_of(self._room.layout, demand, tier)
        bounded = np.minimum(free, state.slots[rows])
        linked = self._linked(bounded, rows, demand)
        limited = self._limited(linked, rows, demand.cards * cards.share)
        return Supply(
            tier=tier,
            model=cards.model,
            share=cards.share,
            nodes_known=host.nodes_known,
            nodes_ready=host.nodes_ready,
            cards_total=cards.cards_total,
            cards_free=cards.cards_free,
            share_free=cards.share_free,
            slots_total=int(total.sum()),
            slots_free_by_cards=int(free.sum()),
            node_slots=fleet.node_slots,
            slots_bounded=int(np.minimum(total, fleet.node_slots).sum()),
            slots_free_bounded=int(bounded.sum()),
            slots_free_by_link=int(linked.sum()),
            slots_free_by_limits=int(limited.sum()),
            slots_free=0 if need is None else int(members(self._room.layout, state, need, rows).sum()),
            node_slots_total=len(node) * fleet.node_slots,
            node_slots_free=int(self._slots[node].sum()),
            cpu_milli_total=host.cpu_milli_total,
            cpu_milli_free=host.cpu_milli_free,
            memory_bytes_total=host.memory_bytes_total,
            memory_bytes_free=host.memory_bytes_free,
            budget_free=host.budget_free,
            link_mbps_free=host.link_mbps_free,
        )

    def _linked(self, slots: Ints, rows: Ints, demand: Demand) -> Ints:
        """Those of `slots` that the links bear."""
        if not demand.link_mbps:
            return slots
        return np.minimum(slots, np.maximum(self._room.state.link[rows], 0) // demand.link_mbps)

    def _limited(self, slots: Ints, rows: Ints, share: int) -> Ints:
        """Those of `slots` that the assessed limits bear, where a member takes so many millionths of cards."""
        if not share or not self._budgets:
            return slots
        return np.minimum(slots, np.maximum(self._room.state.budget[rows], 0) // share)


def _bounded_sum(values: Ints) -> int:
    """Their sum, `NEVER` where one of them has no bound."""
    return NEVER if (values == NEVER).any() else int(values.sum())
