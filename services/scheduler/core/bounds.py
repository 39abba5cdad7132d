"""Work that its tenant's bounds no longer cover: a limit that was lowered, a pool that was divided anew.

What is preemptible is stopped with its grace, the fewest attempts and of these the cheapest, until the tenant is at its
limit; the rest runs to its end, and nothing new starts before. No balance is ever below zero. Work of a tenant whose
file is gone runs on, as of one that is suspended: a file that is written anew may be away for a moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import ANYONE, Bools, PreemptWhy
from services.scheduler.core.policy import OverLimit
from services.scheduler.core.scene import Scene
from services.scheduler.core.work import Work


@dataclass(frozen=True)
class Uncovered:
    """An attempt that has to leave, and why."""

    attempt: int
    why: PreemptWhy


def uncovered(scene: Scene, work: Work) -> list[Uncovered]:
    """What is stopped for nobody's sake."""
    if scene.policy.over_limit is OverLimit.DRAIN or not scene.policy.preempt:
        return []
    free = work.running.preemptible & work.stoppable & scene.tenants.known[work.running.tenant]
    drained: list[int] = np.flatnonzero(free & _outside(scene, work)).tolist()
    free[drained] = False
    gone = np.zeros(len(scene.tenants.names), dtype=np.int64)
    np.add.at(gone, work.running.tenant[drained], work.cards[drained])
    found = [Uncovered(attempt, PreemptWhy.DRAIN) for attempt in drained]
    for tenant in range(len(scene.tenants.names)):
        over = scene.accounts.staying(tenant) - int(gone[tenant]) - scene.accounts.limit(tenant)
        own: list[int] = np.flatnonzero(free & (work.running.tenant == tenant)).tolist() if over > 0 else []
        found.extend(Uncovered(attempt, PreemptWhy.QUOTA) for attempt in cover(work, own, over, partly=True))
    return found


def _outside(scene: Scene, work: Work) -> Bools:
    """Attempts with a member on a node whose pool their tenant may not use."""
    running = work.running
    pool = scene.fleet.pool[running.member_node]
    tenant = running.tenant[running.member_attempt]
    bad = pool != ANYONE
    bad[bad] = ~scene.tenants.pools[tenant[bad], pool[bad]]
    outside = np.zeros(work.count, dtype=np.bool_)
    outside[running.member_attempt[bad]] = True
    return outside


def cover(work: Work, attempts: Sequence[int], amount: int, *, partly: bool = False) -> list[int]:
    """The fewest attempts that hold `amount` together, made cheaper one by one; all there are if `partly`."""
    cards = work.cards
    if sum(int(cards[attempt]) for attempt in attempts) < amount and not partly:
        return []
    chosen: list[int] = []
    left = amount
    for attempt in sorted(attempts, key=lambda at: (-int(cards[at]), int(work.lost[at]), at)):
        if left <= 0:
            break
        if cards[attempt] > 0:
            chosen.append(attempt)
            left -= int(cards[attempt])
    others = [attempt for attempt in attempts if attempt not in chosen]
    for at, dear in enumerate(chosen):
        cheaper = [
            other for other in others if cards[other] - cards[dear] >= left and work.lost[other] < work.lost[dear]
        ]
        if cheaper and left <= 0:
            best = min(cheaper, key=lambda other: (int(work.lost[other]), other))
            left += int(cards[dear] - cards[best])
            chosen[at] = best
            others[others.index(best)] = dear
    return chosen
