"""Places for all members of a job: one at its best row, or a gang on few nodes that are near to each other."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from contracts.base import Tier
from services.scheduler.core.arrays import CARD, Bools, Demand, Fleet, Floats, Ints, Level
from services.scheduler.core.packing.held import Found, Spot
from services.scheduler.core.packing.layout import Layout
from services.scheduler.core.packing.ledger import Ledger
from services.scheduler.core.packing.needs import Need, members, need_of

WIDER = {Level.LINK: Level.NODE, Level.NODE: Level.RACK, Level.RACK: Level.ZONE, Level.ZONE: None, None: None}


def search(ledger: Ledger, demand: Demand, usable: Bools | None) -> Found | None:
    """Places in the first tier that has them; `usable` is a mask over rows."""
    linked = demand.level is Level.LINK and demand.cards > 1
    for tier in demand.tiers:
        if demand.members == 1 and not linked:
            found = _one(ledger, demand, tier, usable)
        else:
            found = _gang(ledger, demand, tier, usable)
        if found is not None:
            return found
    return None


def _one(ledger: Ledger, demand: Demand, tier: Tier, usable: Bools | None) -> Found | None:
    table = ledger.table(demand, tier)
    score = table.score if usable is None else np.where(usable, table.score, -np.inf)
    row = int(score.argmax()) if len(score) else 0
    if not len(score) or score[row] == -np.inf:
        return None
    return Found(demand, (_spot(ledger, table.need, row, int(table.column[row])),))


def _spot(ledger: Ledger, need: Need, row: int, column: int, group: int | None = None) -> Spot:
    """The place of one member within a row; of whole cards the first that share a link, as far as they go."""
    layout = ledger.layout
    node, share = int(layout.node[row]), int(need.shares[layout.kind[row]])
    if need.fraction:
        return Spot(node, (int(layout.cards[row, column]),), share)
    columns = _whole(ledger, row, need.cards, group)
    return Spot(node, tuple(layout.cards[row, columns].tolist()), share)


def _whole(ledger: Ledger, row: int, count: int, group: int | None) -> list[int]:
    if count == 0:
        return []
    free = [column for column, share in enumerate(ledger.state.free[row].tolist()) if share == CARD]
    links: list[int] = ledger.layout.links[row].tolist()
    if group is not None:
        return [column for column in free if links[column] == group][:count]
    if len({links[column] for column in free}) == 1:
        return free[:count]
    sizes = Counter(links[column] for column in free)

    def preference(column: int) -> tuple[bool, int, int, int]:
        size = sizes[links[column]]
        return size < count, size if size >= count else -size, links[column], column

    return sorted(sorted(free, key=preference)[:count])


# ---- gangs -----------------------------------------------------------------------------------------------------------


def _gang(ledger: Ledger, demand: Demand, tier: Tier, usable: Bools | None) -> Found | None:
    need = need_of(ledger.layout, demand, tier)
    rows = np.flatnonzero(need.kinds[ledger.layout.kind])
    if usable is not None:
        rows = rows[usable[rows]]
    counts = members(ledger.layout, ledger.state, need, rows)
    rows, counts = rows[counts > 0], counts[counts > 0]
    level: Level | None = demand.level
    while True:
        found = _at(ledger, need, level, rows, counts)
        if found is not None or level is None or demand.level_required:
            return found
        level = WIDER[level]


def _at(ledger: Ledger, need: Need, level: Level | None, rows: Ints, counts: Ints) -> Found | None:
    """Places on rows of one model within one group of `level`: on scarce nodes by choice or as a last resort."""
    scarce = ledger.layout.kind_scarce[ledger.layout.kind[rows]]
    fitting = scarce if need.demand.needs_bandwidth else ~scarce
    for within in _choices(fitting):
        for some in _models(ledger.layout, need, rows, within):
            found = _placed(ledger, need, level, rows[some], counts[some])
            if found is not None:
                return found
    return None


def _choices(fitting: Bools) -> Iterator[Bools]:
    if fitting.any():
        yield fitting
    if not fitting.all():
        yield np.ones_like(fitting)


def _models(layout: Layout, need: Need, rows: Ints, within: Bools) -> Iterator[Bools]:
    """Rows of one card model each, the models with the least memory first; all rows when no cards are asked."""
    if need.cards == 0:
        yield within
        return
    model, memory = layout.kind_model[layout.kind[rows]], layout.kind_memory[layout.kind[rows]]
    found = {int(m): int(memory[within & (model == m)].min()) for m in np.unique(model[within])}
    for chosen in sorted(found, key=lambda m: (found[m], m)):
        yield within & (model == chosen)


def _placed(ledger: Ledger, need: Need, level: Level | None, rows: Ints, counts: Ints) -> Found | None:
    rows, counts = _one_a_node(ledger.layout, rows, counts)
    if level is Level.LINK:
        return _linked(ledger, need, rows)
    left = ledger.state.free[rows].sum(axis=1)
    best: Ints | None = None
    for group in _groups(ledger.fleet, ledger.layout, level, rows):
        if int(counts[group].sum()) >= need.demand.members:
            chosen = _fewest(counts[group], left[group].astype(np.float64), need.demand.members)
            if best is None or len(chosen) < len(best):
                best = group[np.repeat(np.arange(len(group)), 1)][chosen]
    return None if best is None else _filled(ledger, need, rows[best], counts[best])


def _one_a_node(layout: Layout, rows: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Of the rows of one node the one that holds most: they share the rest."""
    order = np.lexsort((rows, -counts, layout.node[rows]))
    kept = np.sort(order[np.unique(layout.node[rows][order], return_index=True)[1]])
    return rows[kept], counts[kept]


def _groups(fleet: Fleet, layout: Layout, level: Level | None, rows: Ints) -> Iterator[Ints]:
    """Positions in `rows` that are near to each other; the tightest group is for the caller to choose."""
    node = layout.node[rows]
    if level is None:
        yield np.arange(len(rows))
        return
    label = {Level.NODE: np.arange(len(fleet.nodes)), Level.RACK: fleet.rack, Level.ZONE: fleet.zone}[level][node]
    for group in np.unique(label):
        yield np.flatnonzero(label == group)


def _fewest(counts: Ints, left: Floats, wanted: int) -> Ints:
    """Positions of the fewest rows that hold `wanted` members: the largest, and a last one left with the least."""
    order = np.lexsort((np.arange(len(counts)), left, -counts))
    filled = np.cumsum(counts[order])
    whole = int(np.searchsorted(filled, wanted))
    rest = wanted - (int(filled[whole - 1]) if whole else 0)
    others = order[whole:]
    enough = others[counts[others] >= rest]
    last = enough[np.lexsort((enough, left[enough]))[0]]
    return np.append(order[:whole], last)


def _filled(ledger: Ledger, need: Need, rows: Ints, counts: Ints) -> Found:
    """Each row takes as many as it can, one after another, as if they came one by one."""
    wanted, mark, spots = need.demand.members, ledger.mark(), list[Spot]()
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        for _ in range(min(count, wanted - len(spots))):
            spot = _spot(ledger, need, row, _column(ledger, need, row))
            ledger.take_spot(need.demand, spot)
            spots.append(spot)
    ledger.undo(mark)
    assert len(spots) == wanted, f"{len(spots)} of {wanted} members found a place in rows that hold {counts.tolist()}"
    return Found(need.demand, tuple(spots))


def _column(ledger: Ledger, need: Need, row: int) -> int:
    """The card that has the least free of those that have enough."""
    free, share = ledger.state.free[row], int(need.shares[ledger.layout.kind[row]])
    return int(np.where(free >= share, free, 2 * CARD).argmin()) if need.fraction else -1


def _linked(ledger: Ledger, need: Need, rows: Ints) -> Found | None:
    """All members on one node, on cards that share one link: the group that is left with the least."""
    layout, state, demand = ledger.layout, ledger.state, need.demand
    best: tuple[int, int, int] | None = None
    held = members(layout, state, need, rows)
    for row, count in zip(rows.tolist(), held.tolist(), strict=True):
        if count < demand.members:
            continue
        free, links, share = state.free[row], layout.links[row], int(need.shares[layout.kind[row]])
        for link in np.unique(links[layout.cards[row] >= 0]).tolist():
            mine = free[links == link]
            fit = int((mine // share).sum()) if need.fraction else int((mine == CARD).sum()) // max(1, demand.cards)
            if fit >= demand.members:
                best = min(best or (np.iinfo(np.int64).max, 0, 0), (int(mine.sum()), row, link))
    return None if best is None else _filled_link(ledger, need, best[1], best[2])


def _filled_link(ledger: Ledger, need: Need, row: int, link: int) -> Found:
    mark, spots = ledger.mark(), list[Spot]()
    for _ in range(need.demand.members):
        columns = ledger.layout.links[row] == link
        free, share = ledger.state.free[row], int(need.shares[ledger.layout.kind[row]])
        column = int(np.where(columns & (free >= share), free, 2 * CARD).argmin())
        spot = _spot(ledger, need, row, column, link)
        ledger.take_spot(need.demand, spot)
        spots.append(spot)
    ledger.undo(mark)
    return Found(need.demand, tuple(spots))
