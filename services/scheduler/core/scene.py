"""What all parts of one plan look at."""

from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import CARD, NEVER, Demand, Fleet, Ints, Queue, Running, Tenants
from services.scheduler.core.fairness import Accounts
from services.scheduler.core.keeping import Keeping
from services.scheduler.core.packing import Found, Room
from services.scheduler.core.policy import Policy


@dataclass(frozen=True)
class Scene:
    """The input of a plan, and what changes while it is made: the room, the accounts, what is kept."""

    fleet: Fleet
    queue: Queue
    running: Running
    tenants: Tenants
    policy: Policy
    now_us: int
    room: Room
    accounts: Accounts
    keeping: Keeping


def asked_of(fleet: Fleet, demand: Demand) -> int:
    """Millionths of cards that a job of this shape holds at most, whichever cards it gets."""
    share = CARD
    if demand.cards == 1 and demand.share_memory_bytes:
        suitable = fleet.card_memory_bytes >= max(1, demand.share_memory_bytes)
        if demand.models:
            suitable &= np.isin(fleet.card_model, [at for at, name in enumerate(fleet.models) if name in demand.models])
        least = int(fleet.card_memory_bytes[suitable].min(initial=NEVER))
        share = -(-demand.share_memory_bytes * CARD // least)
    elif demand.cards == 1:
        share = demand.share
    return demand.members * demand.cards * share


def pools_of(shapes: tuple[Demand, ...]) -> list[int]:
    """For each shape a number for its kind of cards: shapes of one kind compete for the same."""
    numbers: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    return [numbers.setdefault((shape.tiers, shape.models), len(numbers)) for shape in shapes]


def held_by(found: Found) -> int:
    """Millionths of cards that the places hold."""
    return sum(len(spot.cards) * spot.share for spot in found.spots)


def nodes_of(found: Found) -> Ints:
    """The nodes of the places, each once."""
    if len(found.spots) == 1:
        return np.array([found.spots[0].node], dtype=np.int64)
    return np.unique(np.array([spot.node for spot in found.spots], dtype=np.int64))


def end_us(start_us: int, longest_us: int) -> int:
    """When a run of at most `longest_us` is over; `NEVER` without a bound."""
    return NEVER if longest_us >= NEVER - max(0, start_us) else start_us + longest_us
