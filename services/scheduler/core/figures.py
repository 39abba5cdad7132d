"""The figures that reasons are made of, for thousands of shapes at once.

Figures hold for a room as it is when they are first asked for. What depends on cards alone is kept for all shapes that
ask the same of cards; a shape adds its processors and memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from contracts.base import Tier
from services.scheduler.core.arrays import CARD, NEVER, TIERS, Bools, Demand, Ints
from services.scheduler.core.packing import Room, Supply
from services.scheduler.core.packing.needs import Need, members, need_of
from services.scheduler.core.packing.supply import Lack
from services.scheduler.core.reach import Rows, bounded_sum, budget, link_mbps, linked, nearest, reached, usable


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
    budget_total: int
    link_mbps_total: int


@dataclass(frozen=True)
class _Cards(Rows):
    """Rows of one card model, and how many members each holds by its cards now: `free`.

    Each of their nodes has `least_cpu_milli` and `least_memory_bytes`; shapes of single jobs that ask no more of them
    differ in nothing that is `known` here by what they ask of links.
    """

    model: str | None
    free: Ints
    cards_total: int
    cards_free: int
    share_free: int
    least_cpu_milli: int
    least_memory_bytes: int
    known: dict[int, Supply] = field(default_factory=dict[int, Supply])


class Figures:
    """`supply` for any demand, over the nodes of a group of tenants (`usable`: a mask over nodes, None for all)."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._hosts: dict[tuple[Tier, int], _Host] = {}
        self._cards: dict[tuple[Demand, Tier, int], list[_Cards]] = {}
        first = np.array(room.layout.first[:-1], dtype=np.int64)
        self._slots: Ints = room.state.slots[first] if len(first) else first
        self._limits = any(bool((limit(room.fleet) != NEVER).any()) for limit in (budget, link_mbps))
        self._good = usable(room.fleet, room.layout)

    def supply(self, demand: Demand, group: int, allowed: Bools | None) -> Supply:
        """What the tier and card model hold that come closest to holding the gang. `allowed`: a mask of the group."""
        found = max(
            self._supplies(demand, group, allowed),
            key=lambda s: (s.nodes_ready > 0, s.near_empty, min(s.slots_bounded, demand.members), s.closeness),
        )
        if found.nodes_ready and found.lack is None:
            return found
        nodes = sum(self._hosts[tier, group].nodes_known for tier in demand.tiers)
        lack = found.lack if found.cards_total or not demand.cards else self._no_such_cards(demand, found, allowed)
        everywhere = np.ones(len(self._room.fleet.nodes), dtype=np.bool_) if allowed is None else allowed
        return replace(found, lack=lack, nodes_known=nodes, known=self._held(demand, everywhere))

    def with_pools(self, supply: Supply, demand: Demand, group: Bools | None) -> Supply:
        """The same with the pools that are not the group's, where all ready nodes together would hold the gang.

        Told are those that hold a member. `group`: the nodes that the group may use.
        """
        fleet = self._room.fleet
        if group is None or not supply.never or self._held(demand, fleet.ready) < demand.members:
            return supply
        one = replace(demand, members=1)
        others: list[int] = np.unique(fleet.pool[fleet.ready & ~group]).tolist()
        some = (pool for pool in others if self._held(one, fleet.ready & (fleet.pool == pool)))
        return replace(supply, pools=tuple(fleet.pools[pool] for pool in some))

    def _supplies(self, demand: Demand, group: int, allowed: Bools | None) -> Iterator[Supply]:
        by_cards = _cards_alone(demand)
        for tier in demand.tiers:
            if (tier, group) not in self._hosts:
                self._hosts[tier, group] = self._host(tier, allowed)
            key = by_cards, tier, group
            if key not in self._cards:
                there = self._room.fleet.ready if allowed is None else self._room.fleet.ready & allowed
                self._cards[key] = list(self._of_cards(need_of(self._room.layout, by_cards, tier), there))
            for cards in self._cards[key]:
                yield self._known(demand, tier, self._hosts[tier, group], cards)

    def _held(self, demand: Demand, there: Bools) -> int:
        """How many members would find a place near enough to each other if those nodes were ready and empty."""
        fleet, layout = self._room.fleet, self._room.layout
        needs = (need_of(layout, _cards_alone(demand), tier) for tier in demand.tiers)
        found = (reached(fleet, layout, demand, cards)[0] for need in needs for cards in self._of_cards(need, there))
        return max(found, default=0)

    def _no_such_cards(self, demand: Demand, found: Supply, allowed: Bools | None) -> Lack:
        """No card that is ready suits: by its model, or by its memory."""
        fleet = self._room.fleet
        there = (fleet.ready & (fleet.tier == TIERS.index(found.tier)))[fleet.card_node]
        there = there if allowed is None else there & allowed[fleet.card_node]
        if demand.models:
            there &= np.isin(fleet.card_model, [at for at, name in enumerate(fleet.models) if name in demand.models])
        most = int(fleet.card_memory_bytes[there].max(initial=-1))
        least = max(demand.card_memory_bytes, demand.share_memory_bytes)
        if 0 <= most < least:
            return Lack("card_memory_bytes", least, most)
        return Lack("cards", demand.members * demand.cards, 0)

    def _host(self, tier: Tier, allowed: Bools | None) -> _Host:
        fleet, state = self._room.fleet, self._room.state
        mine = fleet.tier == TIERS.index(tier)
        mine = mine if allowed is None else mine & allowed
        ready = np.flatnonzero(mine & fleet.ready)
        heads = np.array(self._room.layout.first[:-1], dtype=np.int64)[ready]
        return _Host(
            nodes_known=int(mine.sum()),
            nodes_ready=len(ready),
            cpu_milli_total=int(fleet.cpu_milli[ready].sum()),
            cpu_milli_free=int(state.cpu[heads].sum()),
            memory_bytes_total=int(fleet.memory_bytes[ready].sum()),
            memory_bytes_free=int(state.memory[heads].sum()),
            budget_free=bounded_sum(state.budget[heads]),
            link_mbps_free=bounded_sum(state.link[heads]),
            budget_total=bounded_sum(budget(fleet)[ready]),
            link_mbps_total=bounded_sum(link_mbps(fleet)[ready]),
        )

    def _of_cards(self, need: Need, there: Bools) -> Iterator[_Cards]:
        """One for each card model, those with the least memory first; one in all when no cards are asked.

        `there`: the nodes that count.
        """
        layout = self._room.layout
        suitable = need.kinds[layout.kind] & there[layout.node]
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
        layout, state, fleet = self._room.layout, self._room.state, self._room.fleet
        count = self._good[rows].sum(axis=1) if need.cards else np.zeros(len(rows), dtype=np.int64)
        shares = np.clip(need.shares[layout.kind[rows]], 1, CARD)
        if need.cards == 0:
            total = free = np.full(len(rows), NEVER, dtype=np.int64)
        elif need.fraction:
            total, free = count * (CARD // shares), (state.free[rows] // shares[:, None]).sum(axis=1)
        else:
            total, free = count // need.cards, state.whole[rows] // need.cards
        node = layout.node[rows]
        return _Cards(
            model=model,
            rows=rows,
            node=node,
            cards=count,
            total=total,
            free=free,
            share=int(shares.max(initial=0)) if need.cards else 0,
            cards_total=int(count.sum()),
            cards_free=int(state.whole[rows].sum()) if need.cards else 0,
            share_free=int(state.free[rows].sum()) if need.cards else 0,
            least_cpu_milli=int(fleet.cpu_milli[node].min(initial=NEVER)),
            least_memory_bytes=int(fleet.memory_bytes[node].min(initial=NEVER)),
        )

    def _known(self, demand: Demand, tier: Tier, host: _Host, cards: _Cards) -> Supply:
        """One that is at hand, where nothing else of the shape matters."""
        small = demand.cpu_milli <= cards.least_cpu_milli and demand.memory_bytes <= cards.least_memory_bytes
        if not small or demand.members > 1 or demand.level is not None:
            return self._supply(demand, tier, host, cards)
        if demand.link_mbps not in cards.known:
            cards.known[demand.link_mbps] = self._supply(demand, tier, host, cards)
        return cards.known[demand.link_mbps]

    def _supply(self, demand: Demand, tier: Tier, host: _Host, cards: _Cards) -> Supply:
        fleet, state = self._room.fleet, self._room.state
        node, rows, total, free = cards.node, cards.rows, cards.total, cards.free
        big = (fleet.cpu_milli[node] >= demand.cpu_milli) & (fleet.memory_bytes[node] >= demand.memory_bytes)
        if not big.all():
            node, rows, total, free = node[big], rows[big], total[big], free[big]
        total, free = np.minimum(total, demand.members), np.minimum(free, demand.members)
        alone = demand.members == 1 and not linked(demand)
        slots_bounded = int(np.minimum(total, fleet.node_slots).sum())
        near_empty, lack = 1, None
        if not alone or self._limits or not slots_bounded:
            near_empty, lack = reached(fleet, self._room.layout, demand, cards)
        now = np.zeros(0, dtype=np.int64) if alone else self._now(demand, tier, rows)
        bounded = np.minimum(free, state.slots[rows])
        by_link = self._linked(bounded, rows, demand)
        limited = self._limited(by_link, rows, demand.cards * cards.share)
        return Supply(
            **vars(host),
            tier=tier,
            model=cards.model,
            share=cards.share,
            cards_total=cards.cards_total,
            cards_free=cards.cards_free,
            share_free=cards.share_free,
            slots_total=int(total.sum()),
            slots_free_by_cards=int(free.sum()),
            node_slots=fleet.node_slots,
            slots_bounded=slots_bounded,
            slots_free_bounded=int(bounded.sum()),
            slots_free_by_link=int(by_link.sum()),
            slots_free_by_limits=int(limited.sum()),
            slots_free=int(now.sum()),
            node_slots_total=len(node) * fleet.node_slots,
            node_slots_free=int(self._slots[node].sum()),
            near_free=0 if alone else self._near(demand, rows, now, cards.share),
            near_empty=near_empty,
            lack=lack,
            cpu_milli_most=self._most(rows[limited > 0], state.cpu, fleet.cpu_milli),
            memory_bytes_most=self._most(rows[limited > 0], state.memory, fleet.memory_bytes),
        )

    def _most(self, rows: Ints, left: Ints, total: Ints) -> tuple[int, int]:
        """What is left where most is left of it, and what that node has; `left` of each row, `total` of each node."""
        if not len(rows):
            return 0, 0
        row = rows[np.argmax(left[rows])]
        return int(left[row]), int(total[self._room.layout.node[row]])

    def _now(self, demand: Demand, tier: Tier, rows: Ints) -> Ints:
        """How many members each row holds as it is."""
        layout = self._room.layout
        return members(layout, self._room.state, need_of(layout, demand, tier), rows)

    def _near(self, demand: Demand, rows: Ints, now: Ints, share: int) -> int:
        """The most of `now` in one area."""
        fleet, layout, slots = self._room.fleet, self._room.layout, self._room.state.free[rows]
        if linked(demand):
            slots = slots // max(1, share) if demand.cards == 1 else (slots == CARD).astype(np.int64)
        return nearest(fleet, layout, demand, rows, now, slots)

    def _linked(self, slots: Ints, rows: Ints, demand: Demand) -> Ints:
        """Those of `slots` that the links bear."""
        if not demand.link_mbps:
            return slots
        return np.minimum(slots, np.maximum(self._room.state.link[rows], 0) // demand.link_mbps)

    def _limited(self, slots: Ints, rows: Ints, share: int) -> Ints:
        """Those of `slots` that the assessed limits bear, where a member takes so many millionths of cards."""
        if not share or not self._limits:
            return slots
        return np.minimum(slots, np.maximum(self._room.state.budget[rows], 0) // share)


def _cards_alone(demand: Demand) -> Demand:
    """What one member asks of cards."""
    return replace(demand, cpu_milli=0, memory_bytes=0, link_mbps=0, members=1, level=None, level_required=False)
