"""Who holds what a job waits for, and when each leaves at the latest."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from contracts.queue import MAX_LEAVING, Leaving
from contracts.registry import NO_KEY
from services.scheduler.core.arrays import TIERS, Bools, Demand, Fleet, Ints, Running
from services.scheduler.core.model import SHARE_PER_MILLI
from services.scheduler.memory.attempts import Attempts
from services.scheduler.memory.rows import JobRow, moment

US_PER_S = 1_000_000
HOST = frozenset({"cpu_milli", "memory_bytes", "link_mbps"})


@dataclass(frozen=True)
class Bound:
    """A limit on what `tenants` hold together: cards, or jobs whatever they hold."""

    tenants: tuple[str, ...]
    cards: bool


def leaving(
    attempts: Attempts,
    fleet: Fleet,
    demand: Demand,
    resource: str,
    bound: Bound | None,
    *,
    key: str,
    now_us: int,
    grace_s: int,
) -> list[Leaving]:
    """The first to leave of those who hold the `resource` on what would do; `bound`: of those who count against it.

    Jobs are named to their own tenant `key`, to `_` all of them.
    """
    running = attempts.running(0)
    concerned = _concerned(fleet, running, demand, resource) if bound is None else _counted(attempts, running, bound)
    leaves = np.where(running.stopping, now_us + grace_s * US_PER_S, running.ends_us)
    chosen = np.flatnonzero(concerned)
    chosen = chosen[np.argsort(leaves[chosen], kind="stable")][:MAX_LEAVING]
    found = (one for at in chosen.tolist() for one in _told(attempts.jobs[running.job_ids[at]], int(leaves[at]), key))
    return [one for _, one in zip(range(MAX_LEAVING), found, strict=False)]


def _counted(attempts: Attempts, running: Running, bound: Bound) -> Bools:
    """Attempts that count against a limit."""
    numbers = np.array([attempts.tenants.number(tenant) for tenant in bound.tenants], dtype=np.int64)
    mine: Bools = np.isin(running.tenant, numbers)
    if bound.cards:
        holds = np.zeros(len(mine), dtype=np.bool_)
        holds[running.member_attempt[running.held_member]] = True
        mine &= holds
    return mine


def _concerned(fleet: Fleet, running: Running, demand: Demand, resource: str) -> Bools:
    """Attempts with a member on a card, or without cards a node, of the kind that is asked and ready."""
    in_tier = fleet.ready & np.isin(fleet.tier, [TIERS.index(tier) for tier in demand.tiers])
    found = np.zeros(len(running.job_ids), dtype=np.bool_)
    if resource in HOST or not demand.cards:
        found[running.member_attempt[in_tier[running.member_node]]] = True
        if resource in HOST:
            takes = np.array([getattr(shape, resource) > 0 for shape in running.shapes], dtype=np.bool_)
            found &= takes[running.shape]
        return found
    least = max(demand.card_memory_bytes, demand.share_memory_bytes)
    suits: Bools = in_tier[fleet.card_node] & (fleet.card_memory_bytes >= least)
    if demand.models:
        suits &= np.isin(fleet.card_model, _codes(fleet, demand))
    holds = running.held_member[suits[running.held_card]]
    found[running.member_attempt[holds]] = True
    return found


def _codes(fleet: Fleet, demand: Demand) -> Ints:
    return np.array([at for at, model in enumerate(fleet.models) if model in demand.models], dtype=np.int64)


def _told(job: JobRow, leaves_us: int, key: str) -> Iterator[Leaving]:
    """One for each node."""
    assert job.live is not None
    own = key in {NO_KEY, job.tenant}
    held: dict[str, int] = {}
    for seat in job.live.seats:
        held[seat.node] = held.get(seat.node, 0) + len(seat.cards) * seat.share
    for node, share in sorted(held.items()):
        yield Leaving(
            node=node,
            card_milli=share // SHARE_PER_MILLI,
            leaves_at=moment(leaves_us),
            stopping=job.live.stopping,
            job_id=job.job_id if own else None,
            tenant=job.tenant if own else None,
        )
