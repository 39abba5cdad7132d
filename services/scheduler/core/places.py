"""How many members nodes would hold in a state that is not the room's own: a quick answer before a place is sought."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from contracts.base import Tier
from services.scheduler.core.arrays import Bools, Demand, Fleet, Ints, Level
from services.scheduler.core.packing import Room
from services.scheduler.core.packing.layout import State
from services.scheduler.core.packing.needs import members, need_of


@dataclass(frozen=True)
class Area:
    """Nodes near enough to each other, of one tier and card model, and how many members each would hold."""

    nodes: Ints
    counts: Ints


def areas(room: Room, demand: Demand, state: State, allowed: Bools | None) -> list[Area]:
    """The areas that would hold all members, those of the first tier first."""
    return [area for tier in demand.tiers for area in _in_tier(room, demand, tier, state, allowed)]


def _in_tier(room: Room, demand: Demand, tier: Tier, state: State, allowed: Bools | None) -> Iterator[Area]:
    need = need_of(room.layout, demand, tier)
    rows = np.flatnonzero(need.kinds[room.layout.kind])
    if allowed is not None:
        rows = rows[allowed[room.layout.node[rows]]]
    counts = members(room.layout, state, need, rows)
    rows, counts = rows[counts > 0], counts[counts > 0]
    for some in _models(room, demand, rows):
        yield from _near(room.fleet, demand, _by_node(room, rows[some], counts[some]))


def _models(room: Room, demand: Demand, rows: Ints) -> Iterator[Bools]:
    if not demand.cards:
        yield np.ones(len(rows), dtype=np.bool_)
        return
    model = room.layout.kind_model[room.layout.kind[rows]]
    for one in np.unique(model):
        yield model == one


def _by_node(room: Room, rows: Ints, counts: Ints) -> Area:
    """Rows of one node share the rest: the one that holds most counts."""
    most = np.zeros(len(room.fleet.nodes), dtype=np.int64)
    np.maximum.at(most, room.layout.node[rows], counts)
    nodes = np.flatnonzero(most)
    return Area(nodes, most[nodes])


def _near(fleet: Fleet, demand: Demand, area: Area) -> Iterator[Area]:
    label = _label(fleet, demand)
    if label is None:
        if int(area.counts.sum()) >= demand.members:
            yield area
        return
    labels, sums = np.unique(label[area.nodes], return_inverse=True)
    enough = np.bincount(sums, weights=area.counts, minlength=len(labels)) >= demand.members
    for one in labels[enough]:
        here = label[area.nodes] == one
        yield Area(area.nodes[here], area.counts[here])


def _label(fleet: Fleet, demand: Demand) -> Ints | None:
    """What nodes must have in common for the gang."""
    if not demand.level_required or demand.level is None or demand.members == 1:
        return None
    if demand.level is Level.RACK:
        return fleet.rack
    return fleet.zone if demand.level is Level.ZONE else np.arange(len(fleet.nodes))
