"""The fleet as rows: one for each node and card model, one for each node without cards.

What a member takes always lies within one row. The rows of a node share its processors, memory, slots, assessed
limit and link, so that each of them shows the same of those. Cards of one model whose memory differs by more than a
tenth are in rows of their own: a row's cards count as if each had the least memory among them.
"""

from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import CARD, Bools, Fleet, Ints

NO_MODEL = -1
MEMORY_SPREAD = 1.1
NONE = -1


@dataclass(frozen=True)
class Layout:
    """What does not change while a plan is made; R rows, W the most cards of a row, K kinds.

    Rows are in order of node, then model, then card memory. A kind is what rows have in common for good: tier, model,
    card memory and whether they are scarce.
    """

    node: Ints  # R
    first: tuple[int, ...]  # N + 1, the rows of node n are first[n] to first[n + 1]
    kind: Ints  # R, index into the kinds
    cpu: Ints  # R, of the whole node
    memory: Ints  # R, of the whole node
    cards: Ints  # R x W, index into the fleet's cards, NONE where there is none
    links: Ints  # R x W, the group of cards that share a link
    card_row: Ints  # C
    card_column: Ints  # C
    kind_tier: Ints  # K
    kind_model: Ints  # K
    kind_memory: Ints  # K
    kind_scarce: Bools  # K
    models: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.node)


def laid_out(fleet: Fleet) -> Layout:
    """The rows of a fleet."""
    order = np.lexsort((fleet.card_index, fleet.card_memory_bytes, fleet.card_model, fleet.card_node))
    starts = _starts(fleet, order)
    group = np.cumsum(starts) - 1
    bare = np.setdiff1d(np.arange(len(fleet.nodes)), fleet.card_node)
    heads = order[starts]
    node = np.concatenate((fleet.card_node[heads], bare)).astype(np.int64)
    model = np.concatenate((fleet.card_model[heads], np.full(len(bare), NO_MODEL))).astype(np.int64)
    memory = np.concatenate((fleet.card_memory_bytes[heads], np.zeros(len(bare)))).astype(np.int64)
    by_node = np.lexsort((memory, model, node))
    place = np.empty(len(node), dtype=np.int64)
    place[by_node] = np.arange(len(node))
    card_row, card_column = np.empty_like(fleet.card_node), np.empty_like(fleet.card_node)
    card_row[order] = place[group]
    card_column[order] = np.arange(len(order)) - np.flatnonzero(starts)[group]
    width = int(card_column.max(initial=0)) + 1
    cards = np.full((len(node), width), NONE, dtype=np.int64)
    cards[card_row, card_column] = np.arange(len(fleet.card_node))
    node, model, memory = node[by_node], model[by_node], memory[by_node]
    kinds, kind = _kinds(fleet, node, model, memory)
    return Layout(
        node=node,
        first=tuple(np.searchsorted(node, np.arange(len(fleet.nodes) + 1)).tolist()),
        kind=kind,
        cpu=fleet.cpu_milli[node],
        memory=fleet.memory_bytes[node],
        cards=cards,
        links=np.where(cards >= 0, fleet.card_link[cards] if len(fleet.card_link) else NONE, NONE),
        card_row=card_row,
        card_column=card_column,
        kind_tier=kinds[:, 0],
        kind_model=kinds[:, 1],
        kind_memory=kinds[:, 2],
        kind_scarce=kinds[:, 3] > 0,
        models=fleet.models,
    )


def _starts(fleet: Fleet, order: Ints) -> Bools:
    """Where a new row begins among the cards in `order`."""
    node, model, memory = fleet.card_node[order], fleet.card_model[order], fleet.card_memory_bytes[order]
    starts = np.ones(len(order), dtype=np.bool_)
    starts[1:] = (np.diff(node) != 0) | (np.diff(model) != 0) | (memory[1:] > memory[:-1] * MEMORY_SPREAD)
    return starts


def _kinds(fleet: Fleet, node: Ints, model: Ints, memory: Ints) -> tuple[Ints, Ints]:
    told = np.stack((fleet.tier[node], model, memory, fleet.scarce[node].astype(np.int64)), axis=1)
    kinds, kind = np.unique(told, axis=0, return_inverse=True)
    return kinds.astype(np.int64), kind.reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class State:
    """What is free, row by row; the arrays change while a plan is made. `whole` and `most` follow from `free`."""

    ready: Bools  # R
    cpu: Ints  # R
    memory: Ints  # R
    slots: Ints  # R
    budget: Ints  # R
    link: Ints  # R
    free: Ints  # R x W, millionths, 0 where there is no card
    whole: Ints  # R, how many cards are wholly free
    most: Ints  # R, the most that one card has free

    def differing(self, other: "State") -> Ints:
        """The rows that are not the same in both."""
        same = (self.free == other.free).all(axis=1) & (self.ready == other.ready)
        for name in ("cpu", "memory", "slots", "budget", "link"):
            same &= getattr(self, name) == getattr(other, name)
        return np.flatnonzero(~same)


def free_in(fleet: Fleet, layout: Layout) -> State:
    """What a fleet has free, in arrays of their own."""
    free = np.zeros(layout.cards.shape, dtype=np.int64)
    free[layout.card_row, layout.card_column] = fleet.card_free
    node = layout.node
    return State(
        ready=fleet.ready[node],
        cpu=fleet.free_cpu_milli[node],
        memory=fleet.free_memory_bytes[node],
        slots=fleet.free_slots[node],
        budget=fleet.free_budget[node],
        link=fleet.free_link_mbps[node],
        free=free,
        whole=(free == CARD).sum(axis=1),
        most=free.max(axis=1, initial=0),
    )
