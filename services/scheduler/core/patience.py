"""No job waits for ever: who has waited for `patience_s`, what is kept for it, and how long it may hold what it gets.

A reservation needs ends. Where work has no longest runs, or others always come first, a wide job would wait for ever
behind small ones that take whatever becomes free. So nodes are cleared for the first of each kind of cards that has
waited too long: what becomes free there goes to nobody else, what is there runs on. The nodes with the fewest attempts
are cleared. Nobody comes to them, so that the most attempts on one of them never grows from plan to plan, and each end
there brings the job nearer: it starts after a bounded number of ends.

Whose tenant has had less than its guarantee of late, or is inside it, has the first word besides, the oldest of each
kind of cards; others would go before it inside their guarantees all the time. If such a job is wider than its tenant's
guarantee could ever cover, then it holds its cards for a turn.
"""

from collections.abc import Iterator
from math import log

import numpy as np

from services.scheduler.core.arrays import CARD, Bools, Demand, Ints, Queue
from services.scheduler.core.places import areas
from services.scheduler.core.policy import Order
from services.scheduler.core.reserve import found_without, only
from services.scheduler.core.scene import Scene, nodes_of
from services.scheduler.core.work import Work

LOOKS = 8
S_US = 1_000_000


def patient(scene: Scene) -> Bools:
    """Waiting jobs that have waited for `patience_s`, and that no gate keeps out."""
    queue, policy = scene.queue, scene.policy
    patience_us = policy.patience_s * S_US
    if patience_us <= 0 or policy.strict or policy.order is not Order.FAIR:
        return np.zeros(len(queue.job_ids), dtype=np.bool_)
    return (scene.now_us - _since_us(queue) >= patience_us) & (queue.gate < 0)


def _since_us(queue: Queue) -> Ints:
    return queue.since_us if len(queue.since_us) else queue.submitted_us


def first_words(scene: Scene, work: Work, asked: list[int], pools: list[int]) -> Iterator[tuple[int, Ints]]:
    """Of each kind of cards the oldest job that has waited too long and would fit the empty fleet; its nodes there."""
    old = np.flatnonzero(patient(scene))
    if not len(old):
        return
    queue, since_us, amount = scene.queue, _since_us(scene.queue), np.array(asked, dtype=np.int64)
    left = np.array(scene.accounts.guarantee, dtype=np.int64) - np.array(scene.accounts.used, dtype=np.int64)
    inside = amount <= left[queue.tenant]
    old = old[(amount[old] > 0) & (inside | owed(scene)[queue.tenant])[old]]
    pool = np.array(pools, dtype=np.int64)[queue.shape[old]]
    failed: set[tuple[int, int]] = set()
    for one in np.unique(pool).tolist():
        for job in _oldest(queue, since_us, old[pool == one]):
            tenant, shape = int(queue.tenant[job]), int(queue.shape[job])
            key = shape, scene.keeping.group(tenant)
            if key in failed or not _may(scene, tenant, int(amount[job])):
                continue
            nodes = cleared(scene, work, queue.shapes[shape], scene.keeping.usable(key[1]))
            if nodes is not None:
                yield job, nodes
                break
            failed.add(key)


def _oldest(queue: Queue, since_us: Ints, jobs: Ints) -> list[int]:
    """The first few by time, then by id."""
    last = np.partition(since_us[jobs], min(LOOKS, len(jobs)) - 1)[min(LOOKS, len(jobs)) - 1]
    first: list[int] = jobs[since_us[jobs] <= last].tolist()
    return sorted(first, key=lambda job: (int(since_us[job]), queue.job_ids[job]))[:LOOKS]


def _may(scene: Scene, tenant: int, asked: int) -> bool:
    """Whether no bound of the tenant is in the way."""
    return bool(scene.tenants.known[tenant]) and scene.accounts.short(tenant, asked) is None


def owed(scene: Scene) -> Bools:
    """Tenants that have had less than their guarantee of late: less than holding it all the time adds up to."""
    tenants, policy = scene.tenants, scene.policy
    guarantee = tenants.guarantee / CARD
    if policy.half_life_s <= 0:
        return tenants.used / CARD < guarantee
    return tenants.usage < guarantee * (policy.half_life_s * 1000 / log(2))


def cleared(scene: Scene, work: Work, demand: Demand, allowed: Bools | None) -> Ints | None:
    """The nodes that would hold the job if all that runs there were gone: those with the fewest attempts; or None."""
    everybody = np.ones(work.count, dtype=np.bool_)
    there = areas(scene.room, demand, work.without(scene.room, everybody), allowed)
    if not there:
        return None
    runs = work.attempts_on(len(scene.fleet.nodes))
    chosen: list[tuple[int, int, Ints]] = []
    for at, area in enumerate(there):
        order = np.lexsort((area.nodes, -area.counts, runs[area.nodes]))
        enough = int(np.searchsorted(np.cumsum(area.counts[order]), demand.members)) + 1
        nodes = area.nodes[order[:enough]]
        chosen.append((int(runs[nodes].max()), at, nodes))
    for _, _, nodes in sorted(chosen, key=lambda one: one[:2])[:LOOKS]:
        gone = work.on(nodes, everybody)
        found = found_without(scene.room, work, demand, only(scene.fleet, nodes, allowed), gone)
        if found is not None:
            return nodes_of(found)
    return None


def holding(scene: Scene, work: Work) -> Bools:
    """Attempts that nobody else's right ends before their turn is over.

    They waited too long, are wider than their tenant's guarantee, and their tenant has had less than that of late.
    """
    running, policy = work.running, scene.policy
    if not len(running.waited_us) or policy.patience_s <= 0:
        return np.zeros(work.count, dtype=np.bool_)
    waited = running.waited_us >= policy.patience_s * S_US
    young = scene.now_us - running.placed_us < policy.turn_s * S_US
    wide = work.cards > scene.tenants.guarantee[running.tenant]
    return waited & young & wide & owed(scene)[running.tenant]
