"""What was planned is checked once more against the rows as they are, and carried out in the caller's transaction.

In: parts of a plan, some at a time. Out: rows and messages of what still fits, and why the rest does not.
Rows are locked in one order, nodes before jobs; what is left on the nodes is read after that, and shrinks in memory.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from datetime import datetime

from libs.bus import Tx
from libs.db import Connection
from services.scheduler import allotments, store
from services.scheduler.allotments import NodeHead
from services.scheduler.core.arrays import Placement, Preemption, PreemptWhy, Stay
from services.scheduler.core.headroom import Headroom
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import Decision, Limits, Place, Preempt, Wait
from services.scheduler.effects import carry_out_all
from services.scheduler.store import Stored

ACTOR = "scheduler"


class StaleError(Exception):
    """A placement no longer fits what it was planned for."""


async def commit_placements(
    tx: Tx[Connection], placements: Sequence[Placement], now: datetime, limits: Limits
) -> dict[str, str]:
    """Carry out those that fit; why the others are stale, by job. Earlier ones come first where room is short.

    Raises ConstraintError when the database knows of a holder that was not seen: then none is carried out.
    """
    heads = await allotments.lock_nodes(tx.conn, {node for one in placements for node, _ in one.node_versions})
    jobs = await store.load_jobs(tx.conn, [one.job_id for one in placements])
    seats = [seat for one in placements for seat in one.seats]
    rooms = await allotments.headroom(tx.conn, heads, seats, limits.node_slots)
    stale = dict[str, str]()
    decided = list[tuple[Stored, Decision]]()
    for one in placements:
        try:
            stored = _fresh(one, heads, jobs)
            rooms |= _less(one, stored, rooms)
        except StaleError as error:
            stale[one.job_id] = str(error)
        else:
            decided.append((stored, decide(stored.job, Place(one.seats), now, limits)))
    await carry_out_all(tx, decided, actor=ACTOR, limits=limits, step="place job")
    return stale


def _fresh(planned: Placement, heads: Mapping[str, NodeHead], jobs: MutableMapping[str, Stored]) -> Stored:
    """The job, taken out of `jobs`, if it and the nodes are as they were seen. Raises StaleError."""
    for node, version in planned.node_versions:
        head = heads.get(node)
        if head is None or head.version != version or not head.ready:
            msg = f"node {node} has changed since version {version}"
            raise StaleError(msg)
    stored = jobs.pop(planned.job_id, None)
    if stored is None or stored.job.version != planned.version or not stored.job.placeable:
        msg = f"job {planned.job_id} has changed since version {planned.version}"
        raise StaleError(msg)
    return stored


def _less(planned: Placement, stored: Stored, rooms: Mapping[str, Headroom]) -> dict[str, Headroom]:
    """What is left on the nodes of a placement once it is carried out. Raises StaleError."""
    asked, left = stored.job.spec.resources, dict[str, Headroom]()
    for node, _ in planned.node_versions:
        left[node] = rooms[node].less([seat for seat in planned.seats if seat.node == node], asked)
        short = left[node].short(asked)
        if short is not None:
            msg = f"node {node} has no {short} left for job {planned.job_id}"
            raise StaleError(msg)
    return left


async def commit_preemptions(
    tx: Tx[Connection], preemptions: Sequence[tuple[Preemption, int]], now: datetime, limits: Limits
) -> dict[str, str]:
    """Stop the attempts with these numbers, with their grace; why those are stale that are over, or stop already."""
    jobs = await store.load_jobs(tx.conn, [one.job_id for one, _ in preemptions])
    stale = dict[str, str]()
    decided = list[tuple[Stored, Decision]]()
    for one, number in preemptions:
        stored = jobs.pop(one.job_id, None)
        live = None if stored is None else stored.job.attempt
        if stored is None or live is None or live.number != number or live.stop is not None:
            stale[one.job_id] = f"attempt {number} of job {one.job_id} is over or being stopped"
            continue
        asked = Preempt(one.reason, one.for_job, first=one.why is PreemptWhy.CONSOLIDATION)
        decided.append((stored, decide(stored.job, asked, now, limits)))
    await carry_out_all(tx, decided, actor=ACTOR, limits=limits, step="preempt")
    return stale


async def commit_stays(tx: Tx[Connection], stays: Sequence[Stay], now: datetime, limits: Limits) -> None:
    """Keep the reasons of jobs that stay; those whose reason is another one make a transition."""
    jobs = await store.load_jobs(tx.conn, [stay.job_id for stay in stays])
    decided = [
        (stored, decide(stored.job, Wait(stay.reason), now, limits))
        for stay in stays
        if (stored := jobs.pop(stay.job_id, None)) is not None and stored.job.version == stay.version
    ]
    await carry_out_all(tx, decided, actor=ACTOR, limits=limits, step="keep waiting")
