"""When a job that does not fit would, by the longest runs of those before it, and where: its reservation."""

from dataclasses import dataclass, replace

import numpy as np

from services.scheduler.core.arrays import NEVER, Bools, Demand, Fleet, Ints
from services.scheduler.core.packing import Found, Room
from services.scheduler.core.places import Area, areas
from services.scheduler.core.scene import Scene
from services.scheduler.core.work import MAX_PLACED, Work

UNBOUNDED = "not known: no end by a longest run would make room enough"


@dataclass(frozen=True)
class Start:
    """Places from `at_us` on, and the attempts that must have ended by then."""

    at_us: int
    found: Found
    after: tuple[int, ...]


def first_start(room: Room, work: Work, demand: Demand, allowed: Bools | None, ends_us: Ints) -> Start | None:
    """The first time at which the job would fit if every attempt ran to its end; None if that is not known.

    `ends_us` is when each attempt is gone. What is placed in this plan counts as staying; only where no start would be
    known then, it counts until the last of it ends, unless that is too much to look at.
    """
    start = _first(room, work, demand, allowed, ends_us, ())
    if start is not None or not 0 < len(work.placed) <= MAX_PLACED:
        return start
    last_us, mark = max(ends_us for _, ends_us in work.placed), room.mark()
    for found, _ in work.placed:
        for spot in found.spots:
            room.give(room.held_at(found.demand, spot))
    later = _first(room, work, demand, allowed, ends_us, (last_us,))
    room.undo(mark)
    return None if later is None else replace(later, at_us=max(later.at_us, last_us))


def _first(
    room: Room, work: Work, demand: Demand, allowed: Bools | None, ends_us: Ints, others_us: tuple[int, ...]
) -> Start | None:
    times: list[int] = np.unique(np.append(ends_us[ends_us < NEVER], others_us).astype(np.int64)).tolist()
    low, high, best = 0, len(times) - 1, list[Area]()
    at = -1
    while low <= high:
        middle = (low + high) // 2
        there = areas(room, demand, work.without(room, ends_us <= times[middle]), allowed)
        if there:
            best, at, high = there, middle, middle - 1
        else:
            low = middle + 1
    return _start(room, work, demand, allowed, ends_us, times[at], best) if best else None


def _start(
    room: Room, work: Work, demand: Demand, allowed: Bools | None, ends_us: Ints, at_us: int, there: list[Area]
) -> Start | None:
    """The places themselves; few nodes are looked at first, as giving back takes time."""
    gone = ends_us <= at_us
    for area in there:
        order = np.argsort(-area.counts, kind="stable")
        enough = int(np.searchsorted(np.cumsum(area.counts[order]), demand.members)) + 1
        for nodes in (area.nodes[order[: 2 * enough]], area.nodes):
            attempts = work.on(nodes, gone)
            found = found_without(room, work, demand, only(room.fleet, nodes, allowed), attempts)
            if found is not None:
                touched = np.array([spot.node for spot in found.spots], dtype=np.int64)
                return Start(at_us, found, tuple(work.on(touched, gone)))
    return None


def found_without(room: Room, work: Work, demand: Demand, allowed: Bools | None, gone: list[int]) -> Found | None:
    """Places as they would be if the attempts `gone` were; the room stays as it is."""
    mark = room.mark()
    work.give(room, gone)
    found = room.find(demand, allowed)
    room.undo(mark)
    return found


def only(fleet: Fleet, nodes: Ints | list[int], allowed: Bools | None) -> Bools:
    """A mask of `nodes`, as far as they are allowed."""
    mask = np.zeros(len(fleet.nodes), dtype=np.bool_)
    mask[nodes] = True
    return mask if allowed is None else mask & allowed


def repaired(scene: Scene, demand: Demand, allowed: Bools | None) -> Ints | None:
    """The nodes that would hold the job if all that are out of sight came back, those that are there first."""
    ready, state = scene.fleet.ready, scene.room.state
    there = areas(scene.room, demand, replace(state, ready=np.ones_like(state.ready)), allowed)
    if not there:
        return None
    area = min(there, key=lambda area: int((~ready[area.nodes]).sum()))
    order = np.lexsort((area.nodes, -area.counts, ~ready[area.nodes]))
    enough = int(np.searchsorted(np.cumsum(area.counts[order]), demand.members)) + 1
    return area.nodes[order[:enough]]


def basis(work: Work, start: Start) -> str:
    """What the expected start rests on."""
    names = [work.running.job_ids[attempt] for attempt in start.after]
    if not names:
        return "nodes are free by then"
    last = max(start.after, key=lambda attempt: (int(work.ends_us[attempt]), work.running.job_ids[attempt]))
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"job {work.running.job_ids[last]}{others} there {'are' if others else 'is'} over by the longest run"
