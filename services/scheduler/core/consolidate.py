"""Moving preemptible work elsewhere so that a fragmented gang can start: when that costs less than waiting."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.scheduler.core.arrays import NEVER, Bools, Demand
from services.scheduler.core.packing import Found
from services.scheduler.core.preempt import Victims, find_victims
from services.scheduler.core.scene import Scene
from services.scheduler.core.work import Work


@dataclass(frozen=True)
class Movable:
    """Preemptible work of the same class or a lower one, at most `most` attempts at a time."""

    eligible: Bools
    most: int

    def allow(self, attempts: Sequence[int]) -> bool:
        """Whether that many may move together."""
        return len(attempts) <= self.most


@dataclass(frozen=True)
class Moves:
    """Who moves, the places that the gang gets, and those that the moved would find now."""

    victims: Victims
    into: tuple[Found, ...]


def find_moves(
    scene: Scene, work: Work, demand: Demand, allowed: Bools | None, rank: int, wait_us: int
) -> Moves | None:
    """Moves that cost less than the gang loses in `wait_us` (`NEVER`: it would wait without an end)."""
    running, policy = work.running, scene.policy
    eligible = running.preemptible & (running.rank >= rank) & work.stoppable
    victims = find_victims(scene, work, demand, allowed, Movable(eligible, policy.max_moves))
    if victims is None or not _pays(scene, work, demand, victims, wait_us):
        return None
    into = elsewhere(scene, work, victims.attempts, victims.attempts, victims.found)
    return Moves(victims, into) if len(into) == len(victims.attempts) else None


def _pays(scene: Scene, work: Work, demand: Demand, victims: Victims, wait_us: int) -> bool:
    """Card-seconds lost by moving, restarts included, against those lost by waiting."""
    if wait_us == NEVER:
        return True
    restart = scene.policy.restart_s
    lost = sum(int(work.lost[at]) + restart * max(1, int(work.cards[at])) for at in victims.attempts)
    held = sum(max(1, len(spot.cards) * spot.share) for spot in victims.found.spots)
    assert demand.members == len(victims.found.spots)
    return lost < wait_us // 1_000_000 * held


def elsewhere(scene: Scene, work: Work, moving: Sequence[int], gone: Sequence[int], gang: Found) -> tuple[Found, ...]:
    """Places for those that move beside the gang, the largest first, up to the first that finds none.

    `gone` are all that leave the places of the gang.
    """
    room, running = scene.room, work.running
    mark = room.mark()
    work.give(room, list(gone))
    room.take(gang)
    into: list[Found] = []
    for attempt in sorted(moving, key=lambda at: (-int(work.cards[at]), running.job_ids[at])):
        usable = scene.keeping.open(scene.keeping.group(int(running.tenant[attempt])), NEVER)
        found = room.find(running.shapes[int(running.shape[attempt])], usable)
        if found is None:
            break
        room.take(found)
        into.append(found)
    room.undo(mark)
    return tuple(into)
