"""Nodes and cards in columns, with what is in use: the fleet of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from services.scheduler.core.arrays import ANYONE, CARD, NEVER, NO_RACK, TIERS, Demand, Fleet, Ints
from services.scheduler.core.model import Seat
from services.scheduler.memory.rows import NodeRow
from services.scheduler.memory.table import Table, Words, positions


@dataclass(frozen=True)
class _Fixed:
    """What stays as it is while no node comes, goes or changes its cards: rows in the order of the fleet, and codes."""

    nodes: Ints
    cards: Ints
    node_at: Ints
    card_at: Ints
    names: tuple[str, ...]
    columns: dict[str, Ints]
    zones: tuple[str, ...]
    racks: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where a member sits, as row numbers."""

    node: int
    cards: tuple[int, ...]


@dataclass
class Nodes:
    """All known nodes. `pool_of` tells the pool of a node by its name."""

    rows: dict[str, NodeRow] = field(default_factory=dict[str, NodeRow])
    _node: Table = field(
        default_factory=lambda: Table(
            "version", "ready", "tier", "scarce", "cpu", "memory", "limit", "link", "used_cpu", "used_memory",
            "used_link", "used_cards", "members",
        )
    )  # fmt: skip
    _card: Table = field(default_factory=lambda: Table("node", "index", "model", "memory", "link", "bad", "used"))
    _row_of: dict[str, int] = field(default_factory=dict[str, int])
    _cards_of: dict[str, dict[int, int]] = field(default_factory=dict[str, dict[int, int]])
    _models: Words = field(default_factory=Words)
    _fixed: _Fixed | None = None
    _pools: tuple[Mapping[str, str], tuple[str, ...], Ints] | None = None

    def fits(self, row: NodeRow) -> bool:
        """Whether `row` can be put without changing which cards there are."""
        known = self.rows.get(row.node)
        return known is not None and known.shape == row.shape

    def put(self, row: NodeRow) -> None:
        """Take in a node. Unless it `fits`, nothing may be held there."""
        if not self.fits(row):
            self._build(row)
        self.rows[row.node] = row
        self._node.put(
            self._row_of[row.node],
            version=row.version,
            ready=int(row.ready),
            cpu=row.cpu_milli,
            memory=row.memory_bytes,
            limit=row.limit,
            link=row.link_mbps,
        )

    def _build(self, row: NodeRow) -> None:
        self._fixed = self._pools = None
        for card in self._cards_of.pop(row.node, {}).values():
            self._card.drop(card)
        if row.node in self._row_of:
            self._node.drop(self._row_of[row.node])
        node = self._row_of[row.node] = self._node.add(
            version=0, ready=0, tier=TIERS.index(row.tier), scarce=int(row.scarce), cpu=0, memory=0, limit=0, link=0,
            used_cpu=0, used_memory=0, used_link=0, used_cards=0, members=0,
        )  # fmt: skip
        self._cards_of[row.node] = {
            card.index: self._card.add(
                node=node,
                index=card.index,
                model=self._models.number(card.model),
                memory=card.memory_bytes,
                link=0 if row.linked else card.index,
                bad=int(card.bad),
                used=0,
            )
            for card in row.cards
        }

    def hold(self, seat: Seat, demand: Demand) -> Place | None:
        """A member sits down; None where its node or a card of it is not known."""
        return self._sit(seat, demand, 1)

    def leave(self, seat: Seat, demand: Demand) -> None:
        """A member that was held is gone."""
        self._sit(seat, demand, -1)

    def _sit(self, seat: Seat, demand: Demand, sign: int) -> Place | None:
        node, known = self._row_of.get(seat.node), self._cards_of.get(seat.node, {})
        if node is None:
            return None
        cards = tuple(known[card] for card in seat.cards if card in known)
        for card in cards:
            self._card.raise_(card, "used", sign * seat.share)
        self._node.raise_(node, "used_cards", sign * seat.share * len(cards))
        self._node.raise_(node, "used_cpu", sign * demand.cpu_milli)
        self._node.raise_(node, "used_memory", sign * demand.memory_bytes)
        self._node.raise_(node, "used_link", sign * demand.link_mbps)
        self._node.raise_(node, "members", sign)
        return Place(node, cards)

    def fleet(self, node_slots: int, pools: Mapping[str, str]) -> Fleet:
        """The nodes in order of name, the cards in order of node and index. `pools`: node to pool, where it has one."""
        fixed = self._fixed = self._fixed or self._fix()
        node = {name: self._node.column(name)[fixed.nodes] for name in _CHANGING}
        names, pool = self._pools_as(fixed, pools)
        bad = self._card.column("bad")[fixed.cards] > 0
        card_free = np.where(bad, 0, np.maximum(0, CARD - self._card.column("used")[fixed.cards]))
        return Fleet(
            nodes=fixed.names,
            versions=node["version"],
            tier=fixed.columns["tier"],
            pool=pool,
            zone=fixed.columns["zone"],
            rack=fixed.columns["rack"],
            ready=node["ready"] > 0,
            scarce=fixed.columns["scarce"] > 0,
            cpu_milli=node["cpu"],
            memory_bytes=node["memory"],
            free_cpu_milli=node["cpu"] - node["used_cpu"],
            free_memory_bytes=node["memory"] - node["used_memory"],
            free_budget=_left(node["limit"], node["used_cards"]),
            free_link_mbps=_left(node["link"], node["used_link"]),
            node_slots=node_slots,
            free_slots=np.maximum(0, node_slots - node["members"]),
            pools=names,
            zones=fixed.zones,
            racks=fixed.racks,
            models=tuple(sorted(self._models.words)),
            card_node=fixed.columns["card_node"],
            card_index=fixed.columns["card_index"],
            card_model=fixed.columns["card_model"],
            card_memory_bytes=fixed.columns["card_memory"],
            card_link=fixed.columns["card_link"],
            card_free=card_free,
            budget=node["limit"],
            link_mbps=node["link"],
            card_bad=bad,
        )

    def node_at(self) -> Ints:
        """Where each row of a node stands in the fleet."""
        assert self._fixed is not None
        return self._fixed.node_at

    def card_at(self) -> Ints:
        """Where each row of a card stands in the fleet."""
        assert self._fixed is not None
        return self._fixed.card_at

    def _fix(self) -> _Fixed:
        names = tuple(sorted(self._row_of))
        nodes = np.array([self._row_of[name] for name in names], dtype=np.int64)
        node_at = positions(nodes, self._node.size)
        cards = self._card.rows()
        cards = cards[np.lexsort((self._card.column("index")[cards], node_at[self._card.column("node")[cards]]))]
        zones, zone = _codes([self.rows[name].zone for name in names])
        racks, rack = _codes([_rack(self.rows[name]) for name in names])
        card = {f"card_{name}": self._card.column(name)[cards] for name in ("index", "memory", "link")}
        codes = np.argsort(np.argsort(np.array(self._models.words))) if len(self._models) else np.zeros(0, np.int64)
        return _Fixed(
            nodes=nodes,
            cards=cards,
            node_at=node_at,
            card_at=positions(cards, self._card.size),
            names=names,
            columns={
                **card,
                "tier": self._node.column("tier")[nodes],
                "scarce": self._node.column("scarce")[nodes],
                "zone": zone,
                "rack": rack,
                "card_node": node_at[self._card.column("node")[cards]],
                "card_model": codes.astype(np.int64)[self._card.column("model")[cards]],
            },
            zones=zones,
            racks=racks,
        )

    def _pools_as(self, fixed: _Fixed, pools: Mapping[str, str]) -> tuple[tuple[str, ...], Ints]:
        if self._pools is not None and self._pools[0] is pools:
            return self._pools[1:]
        names = tuple(sorted(set(pools.values())))
        at = {name: number for number, name in enumerate(names)}
        codes = [at[pools[node]] if node in pools else ANYONE for node in fixed.names]
        self._pools = pools, names, np.array(codes, dtype=np.int64)
        return self._pools[1:]


_CHANGING = (
    "version", "ready", "cpu", "memory", "limit", "link", "used_cpu", "used_memory", "used_link", "used_cards",
    "members",
)  # fmt: skip


def _left(limit: Ints, used: Ints) -> Ints:
    return np.where(limit == NEVER, NEVER, np.maximum(0, limit - used))


def _rack(row: NodeRow) -> str:
    """A rack within its zone; a node that tells none is nobody's neighbour."""
    return f"{row.zone}/{row.rack}" if row.rack else f"{row.zone}{NO_RACK}{row.node}"


def _codes(words: list[str]) -> tuple[tuple[str, ...], Ints]:
    known = tuple(sorted(set(words)))
    at = {word: number for number, word in enumerate(known)}
    return known, np.array([at[word] for word in words], dtype=np.int64)
