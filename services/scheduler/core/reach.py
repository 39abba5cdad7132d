"""What nodes would hold of a gang if nothing ran on them: what is short there, no end of a job brings.

Counts are of members, one for each row; a node counts with the row that holds most, as its rows share the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import CARD, NEVER, NO_RACK, Bools, Demand, Fleet, Ints, Level
from services.scheduler.core.packing.layout import Layout
from services.scheduler.core.packing.supply import Lack


@dataclass(frozen=True)
class Rows:
    """Rows of one card model: usable cards, and how many members their cards alone would hold; `share` of each card."""

    rows: Ints
    node: Ints
    cards: Ints
    total: Ints
    share: int


@dataclass(frozen=True)
class _Bound:
    """One resource: what a member takes, in parts of a `unit`, and how many units each row has."""

    resource: str
    each: int
    has: Ints
    unit: int = 1


def reached(fleet: Fleet, layout: Layout, demand: Demand, some: Rows) -> tuple[int, Lack | None]:
    """How many members find a place near enough to each other when nothing runs, and what keeps the others out.

    Where they must be near, what no member would find is told first, and then what one area holds.
    """
    near_by = demand.level_required and demand.level is not None
    least = 1 if near_by else demand.members
    held = np.minimum(some.total, demand.members)
    if int(held.sum()) < least:
        return int(held.sum()), _lack(_of_cards(demand, some), least, int(held.sum()))
    for bound in _bounds(fleet, demand, some):
        more = np.minimum(held, bound.has // bound.each)
        if int(more.sum()) < least:
            there = _Bound(bound.resource, bound.each, bound.has[held > 0])
            return int(more.sum()), _lack(there, least, int(more.sum()))
        held = more
    good = usable(fleet, layout)
    near = nearest(fleet, layout, demand, some.rows, held, _slots(demand, some, good))
    return near, None if near >= demand.members else _apart(fleet, layout, demand, some.rows[held > 0], near)


def _of_cards(demand: Demand, some: Rows) -> _Bound:
    if demand.cards == 1 and some.share < CARD:
        return _Bound("cards", some.share, some.cards, CARD)
    return _Bound("cards", demand.cards, some.cards)


def _bounds(fleet: Fleet, demand: Demand, some: Rows) -> Iterator[_Bound]:
    """All but the cards, what is asked of it only."""
    node = some.node
    yield _Bound("slots", 1, np.full(len(node), fleet.node_slots, dtype=np.int64))
    if demand.cpu_milli:
        yield _Bound("cpu_milli", demand.cpu_milli, fleet.cpu_milli[node])
    if demand.memory_bytes:
        yield _Bound("memory_bytes", demand.memory_bytes, fleet.memory_bytes[node])
    if demand.cards:
        yield _Bound("card_millionths", demand.cards * max(1, some.share), budget(fleet)[node])
    if demand.link_mbps:
        yield _Bound("link_mbps", demand.link_mbps, link_mbps(fleet)[node])


def _lack(bound: _Bound, members: int, held: int) -> Lack:
    """In the resource where that is short in all, else in members."""
    near = "limit" if bound.resource in {"card_millionths", "link_mbps"} else None
    if members == 1:
        return Lack(bound.resource, -(-bound.each // bound.unit), int(bound.has.max(initial=0)), near, each=True)
    asked, total = -(-members * bound.each // bound.unit), bounded_sum(bound.has)
    if asked > total:
        return Lack(bound.resource, asked, total, near)
    return Lack("members", members, held, near)


def _apart(fleet: Fleet, layout: Layout, demand: Demand, rows: Ints, near: int) -> Lack:
    """Enough, but not near enough to each other; `rows` would hold a member."""
    level = demand.level
    if level is None or not demand.level_required:
        return Lack("members", demand.members, near)
    if level is Level.LINK:
        good = usable(fleet, layout)[rows].astype(np.int64)
        most = int(_by_link(layout, rows, good).max(initial=0))
        unknown = most <= 1 < int(good.sum(axis=1).max(initial=0))
        if demand.members == 1:
            return Lack("cards_per_link", demand.cards, most, level, unknown=unknown)
        return Lack("members_per_link", demand.members, near, level, unknown=unknown)
    racks = np.unique(fleet.rack[layout.node[rows]]) if level is Level.RACK else ()
    unknown = len(racks) > 0 and all(NO_RACK in fleet.racks[rack] for rack in racks)
    return Lack(f"members_per_{level}", demand.members, near, level, unknown=unknown)


# ---- near to each other ----------------------------------------------------------------------------------------------


def nearest(fleet: Fleet, layout: Layout, demand: Demand, rows: Ints, held: Ints, slots: Ints) -> int:
    """The most members that one area holds of `held`; `slots` are how many each card of a row holds, for links."""
    if linked(demand):
        each = max(1, demand.cards)
        return int(np.minimum(held, _by_link(layout, rows, slots) // each).max(initial=0))
    most = np.zeros(len(fleet.nodes), dtype=np.int64)
    np.maximum.at(most, layout.node[rows], held)
    if not demand.level_required or demand.level is None:
        return int(most.sum())
    if demand.level is Level.NODE:
        return int(most.max(initial=0))
    label = fleet.rack if demand.level is Level.RACK else fleet.zone
    return int(np.bincount(label, weights=most).max(initial=0))


def linked(demand: Demand) -> bool:
    """Whether all its cards must share one card link."""
    several = demand.members > 1 or demand.cards > 1
    return demand.level is Level.LINK and demand.level_required and several


def usable(fleet: Fleet, layout: Layout) -> Bools:
    """R x W: the cards that take anything."""
    there = layout.cards >= 0
    if not len(fleet.card_bad) or not fleet.card_bad.any():
        return there
    return there & ~np.append(fleet.card_bad, [True])[layout.cards]


def _slots(demand: Demand, some: Rows, good: Bools) -> Ints:
    """R x W: members of a share, or whole cards, that each card holds when nothing runs."""
    if not linked(demand):
        return np.zeros((0, 0), dtype=np.int64)
    each = CARD // max(1, some.share) if demand.cards == 1 else 1
    return good[some.rows] * np.int64(each)


def _by_link(layout: Layout, rows: Ints, slots: Ints) -> Ints:
    """The most of `slots` that the cards of one link have, for each row."""
    links = layout.links[rows]
    same = (links[:, :, None] == links[:, None, :]) & (layout.cards[rows] >= 0)[:, None, :]
    return np.where(same, slots[:, None, :], 0).sum(axis=2).max(axis=1, initial=0)


# ---- limits ----------------------------------------------------------------------------------------------------------


def budget(fleet: Fleet) -> Ints:
    """What the assessed limits leave of cards when nothing runs."""
    return fleet.budget if len(fleet.budget) else fleet.free_budget


def link_mbps(fleet: Fleet) -> Ints:
    """What the links bear when nothing runs."""
    return fleet.link_mbps if len(fleet.link_mbps) else fleet.free_link_mbps


def bounded_sum(values: Ints) -> int:
    """Their sum, `NEVER` where one of them has no bound."""
    return NEVER if (values == NEVER).any() else int(values.sum())
