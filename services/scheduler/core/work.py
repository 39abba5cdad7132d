"""Live attempts in arrays: what each holds, what stopping it would lose, what would be free without some of them."""

from dataclasses import replace

import numpy as np

from services.scheduler.core.arrays import CARD, NEVER, Bools, Fleet, Ints, Running
from services.scheduler.core.packing import Found, Held, Room
from services.scheduler.core.packing.layout import State

SOON_US = 1_000_000
MAX_PLACED = 256


class Work:
    """A attempts, M members, H held cards, as in `Running`. `leaving` grows while a plan is made."""

    def __init__(self, fleet: Fleet, running: Running, now_us: int) -> None:
        self.running = running = in_order(running)
        self.count = len(running.job_ids)
        shape = running.shape[running.member_attempt]
        self._cpu = _of_shapes(running, "cpu_milli")[shape]
        self._memory = _of_shapes(running, "memory_bytes")[shape]
        self._link = _of_shapes(running, "link_mbps")[shape]
        self._share = _shares(fleet, running)
        self._node = running.member_node
        self._held_attempt = running.member_attempt[running.held_member]
        self.cards: Ints = _summed(self._held_attempt, self._share, self.count)
        lost_us = np.maximum(0, now_us - np.maximum(running.saved_us, running.placed_us))
        self.lost: Ints = lost_us // 1_000_000 * np.maximum(self.cards, 1)
        self.ends_us: Ints = np.maximum(running.ends_us, now_us + SOON_US)
        self.leaving: Bools = running.stopping.copy()
        self._stuck: Bools = np.zeros(self.count, dtype=np.bool_)
        self._stuck[running.member_attempt[~fleet.ready[running.member_node]]] = True
        self.placed: list[tuple[Found, int]] = []
        self._first_member = np.searchsorted(running.member_attempt, np.arange(self.count + 1))
        self._first_held = np.searchsorted(running.held_member, np.arange(len(self._node) + 1))

    @property
    def stoppable(self) -> Bools:
        """Attempts that may be told to leave at all.

        Not those that leave already, nor those of jobs that were preempted since anything else changed, nor those with
        a member on a node that is out of sight or takes nothing: who cannot be told does not leave.
        """
        free = ~self.leaving & ~self._stuck
        if not len(self.running.preempted_us):
            return free
        return free & ((self.running.preempted_us < 0) | (self.running.preempted_us < self.running.changed_us))

    def gone_us(self, now_us: int, grace_s: int) -> Ints:
        """When each attempt is gone at the latest: those that leave within their grace."""
        return np.where(self.leaving, now_us + grace_s * 1_000_000, self.ends_us)

    def held(self, attempt: int) -> list[Held]:
        """What the members of an attempt hold."""
        return [self._held(member) for member in range(self._first_member[attempt], self._first_member[attempt + 1])]

    def _held(self, member: int) -> Held:
        cards = slice(self._first_held[member], self._first_held[member + 1])
        held = tuple(self.running.held_card[cards].tolist())
        share = int(self._share[cards.start]) if held else 0
        host = int(self._cpu[member]), int(self._memory[member]), int(self._link[member])
        return Held(int(self._node[member]), held, share, *host)

    def give(self, room: Room, attempts: list[int]) -> None:
        """Put back into the room what some attempts hold."""
        for attempt in attempts:
            for held in self.held(attempt):
                room.give(held)

    def on(self, nodes: Ints, among: Bools) -> list[int]:
        """The attempts with a member on one of `nodes`, in order."""
        here = np.isin(self._node, nodes) & among[self.running.member_attempt]
        attempts: list[int] = np.unique(self.running.member_attempt[here]).tolist()
        return attempts

    def place(self, found: Found, ends_us: int) -> None:
        """What this plan places, if it is known when that ends; no more than `MAX_PLACED` are remembered."""
        if ends_us < NEVER and len(self.placed) <= MAX_PLACED:
            self.placed.append((found, ends_us))

    def attempts_on(self, nodes: int) -> Ints:
        """How many attempts each of the first `nodes` nodes has."""
        pairs = np.unique(np.stack((self._node, self.running.member_attempt)), axis=1)
        return np.bincount(pairs[0], minlength=nodes).astype(np.int64)

    def per_member(self, among: Bools) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """For each member of `among`: attempt, node, millionths held, cards touched, processors, memory."""
        held = _summed(self.running.held_member, self._share, len(self._node))
        touched = np.bincount(self.running.held_member, minlength=len(self._node)).astype(np.int64)
        mine = np.flatnonzero(among[self.running.member_attempt])
        attempt = self.running.member_attempt[mine]
        return attempt, self._node[mine], held[mine], touched[mine], self._cpu[mine], self._memory[mine]

    def without(self, room: Room, gone: Bools) -> State:
        """What would be free if the attempts `gone` were."""
        layout, state = room.layout, room.state
        members = np.flatnonzero(gone[self.running.member_attempt])
        nodes, count = self._node[members], len(room.fleet.nodes)
        row = layout.node
        cards = np.flatnonzero(gone[self._held_attempt])
        free = state.free.copy()
        where = self.running.held_card[cards]
        np.add.at(free, (layout.card_row[where], layout.card_column[where]), self._share[cards])
        budget = _summed(self._node[self.running.held_member[cards]], self._share[cards], count)[row]
        link = _summed(nodes, self._link[members], count)[row]
        return replace(
            state,
            cpu=state.cpu + _summed(nodes, self._cpu[members], count)[row],
            memory=state.memory + _summed(nodes, self._memory[members], count)[row],
            slots=state.slots + np.bincount(nodes, minlength=count)[row],
            budget=np.where(state.budget == NEVER, NEVER, state.budget + budget),
            link=np.where(state.link == NEVER, NEVER, state.link + link),
            free=free,
            whole=(free == CARD).sum(axis=1),
            most=free.max(axis=1, initial=0),
        )


def in_order(running: Running) -> Running:
    """The attempts in order of their jobs' ids, and their members with them."""
    ids = running.job_ids
    listed = sorted(range(len(ids)), key=ids.__getitem__)
    order = np.array(listed, dtype=np.int64)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    attempt = place[running.member_attempt]
    members = np.lexsort((running.member_node, attempt))
    member = np.empty_like(members)
    member[members] = np.arange(len(members))
    held = np.lexsort((running.held_card, member[running.held_member]))
    by_attempt = ("tenant", "rank", "placed_us", "ends_us", "saved_us", "preemptible", "stopping", "shape")
    return replace(
        running,
        job_ids=tuple(ids[at] for at in listed),
        member_attempt=attempt[members],
        member_node=running.member_node[members],
        held_member=member[running.held_member][held],
        held_card=running.held_card[held],
        leaving_for=tuple(running.leaving_for[at] for at in listed) if running.leaving_for else (),
        preempted_us=running.preempted_us[order] if len(running.preempted_us) else running.preempted_us,
        waited_us=running.waited_us[order] if len(running.waited_us) else running.waited_us,
        moving=running.moving[order] if len(running.moving) else running.moving,
        **{name: getattr(running, name)[order] for name in by_attempt},
    )


def _of_shapes(running: Running, name: str) -> Ints:
    return np.array([getattr(shape, name) for shape in running.shapes], dtype=np.int64)


def _shares(fleet: Fleet, running: Running) -> Ints:
    """Millionths of each held card."""
    whole = np.array([shape.cards != 1 for shape in running.shapes], dtype=np.bool_)
    share = np.where(whole, CARD, _of_shapes(running, "share"))
    asked = np.where(whole, 0, _of_shapes(running, "share_memory_bytes"))
    shape = running.shape[running.member_attempt[running.held_member]]
    memory = np.maximum(fleet.card_memory_bytes[running.held_card], 1)
    by_memory = np.minimum(-(-asked[shape] * CARD // memory), CARD)
    return np.where(asked[shape] > 0, by_memory, share[shape]).astype(np.int64)


def _summed(at: Ints, amounts: Ints, size: int) -> Ints:
    """Sums of whole numbers by index."""
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, at, amounts)
    return sums
