"""SQL of nodes and of what members of attempts hold on them: allocations, cards and their shares, holdings.

Functions take the connection of the caller's transaction. Rows are locked in one order everywhere: nodes, then jobs.
"""

import json
from dataclasses import dataclass
from datetime import datetime

from contracts.base import Tier
from contracts.nodes import NodeState
from libs.db import Connection
from services.scheduler.core.admission import CardGroup, NodeShape
from services.scheduler.core.model import Job, MemberRun
from services.scheduler.store import note_change

MAX_SHAPES = 10_000

_SAVE_NODE = """
    INSERT INTO nodes (node, version, state, incarnation, tier, cpu_milli, memory_bytes, cards, shape, requeue_held,
      since)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (node) DO UPDATE SET version = excluded.version, state = excluded.state,
      incarnation = excluded.incarnation, tier = excluded.tier, cpu_milli = excluded.cpu_milli,
      memory_bytes = excluded.memory_bytes, cards = excluded.cards, shape = excluded.shape,
      requeue_held = excluded.requeue_held, since = excluded.since
    WHERE nodes.version < excluded.version
    RETURNING true
"""
_ALLOCATE = """
    INSERT INTO allocations (job_id, attempt, member, node, cpu_milli, memory_bytes) VALUES ($1, $2, $3, $4, $5, $6)
"""
_ALLOCATE_CARDS = """
    INSERT INTO allocated_cards (node, card, job_id, attempt, member)
    SELECT $1, card, $3, $4, $5 FROM unnest($2::bigint[]) AS card
    ON CONFLICT (node, card) DO NOTHING RETURNING card
"""
_OVERCOMMITTED = """
    SELECT count(a.node) > $2
      OR $3 AND (coalesce(sum(a.cpu_milli), 0) > n.cpu_milli OR coalesce(sum(a.memory_bytes), 0) > n.memory_bytes)
    FROM nodes n LEFT JOIN allocations a ON a.node = n.node WHERE n.node = $1 GROUP BY n.node
"""
_FREE = "DELETE FROM allocations WHERE job_id = $1 AND attempt = $2 AND member = $3"
_END_HOLDING = """
    UPDATE holdings SET held_to = greatest(held_from, $4)
    WHERE job_id = $1 AND attempt = $2 AND member = $3 AND held_to IS NULL
"""


# ---- nodes -----------------------------------------------------------------------------------------------------------


async def load_shapes(conn: Connection) -> tuple[NodeShape, ...]:
    """The different shapes of all nodes ever announced."""
    query = "SELECT DISTINCT tier, cpu_milli, memory_bytes, shape FROM nodes LIMIT $1"
    return tuple(
        NodeShape(
            Tier(row["tier"]),
            row["cpu_milli"],
            row["memory_bytes"],
            tuple(CardGroup(model, memory, count) for model, memory, count in json.loads(row["shape"])),
        )
        for row in await conn.fetch(query, MAX_SHAPES)
    )


async def save_node(conn: Connection, state: NodeState) -> bool:
    """Keep the newest state of a node; False when a newer one is there."""
    facts = state.facts
    counts: dict[tuple[str, int], int] = {}
    for card in facts.cards:
        counts[card.model, card.memory_bytes] = counts.get((card.model, card.memory_bytes), 0) + 1
    newest = await conn.fetchval(
        _SAVE_NODE,
        state.node,
        state.version,
        str(state.state),
        state.incarnation,
        facts.tier.value,
        facts.cpu_milli,
        facts.memory_bytes,
        json.dumps([[card.index, card.model, card.memory_bytes] for card in facts.cards]),
        json.dumps([[*kind, count] for kind, count in sorted(counts.items())]),
        state.requeue_held,
        state.since,
    )
    if newest:
        await note_change(conn, "node", state.node)
    return bool(newest)


@dataclass(frozen=True)
class NodeHead:
    """What a placement is checked against."""

    version: int
    state: str


async def lock_node(conn: Connection, node: str) -> NodeHead | None:
    """A node, locked until the transaction ends: no other state of it and no other allocation comes between."""
    row = await conn.fetchrow("SELECT version, state FROM nodes WHERE node = $1 FOR UPDATE", node)
    return None if row is None else NodeHead(row["version"], row["state"])


async def overcommitted(conn: Connection, node: str, slots: int, *, host: bool) -> bool:
    """Whether a node has more than `slots` allocations, or, if `host`, too few processors or too little memory."""
    return bool(await conn.fetchval(_OVERCOMMITTED, node, slots, host))


async def jobs_on_node(conn: Connection, node: str) -> list[str]:
    """Jobs with a member on the node, in order of id."""
    rows = await conn.fetch("SELECT DISTINCT job_id FROM allocations WHERE node = $1 ORDER BY job_id", node)
    return [str(row["job_id"]) for row in rows]


# ---- allocations and holdings ----------------------------------------------------------------------------------------


async def allocate(conn: Connection, job: Job, attempt: int, member: MemberRun) -> bool:
    """Give the member its cards; False when one of them is taken."""
    asked = job.spec.resources
    await conn.execute(
        _ALLOCATE,
        job.spec.job_id,
        attempt,
        member.index,
        member.seat.node,
        asked.cpu_milli,
        asked.memory_bytes + asked.huge_pages_bytes,
    )
    rows = await conn.fetch(
        _ALLOCATE_CARDS,
        member.seat.node,
        list(member.seat.cards),
        job.spec.job_id,
        attempt,
        member.index,
    )
    await note_change(conn, "node", member.seat.node)
    return len(rows) == len(member.seat.cards)


async def free(conn: Connection, job_id: str, attempt: int, member: MemberRun, at: datetime) -> None:
    """Take the cards back and close the holding."""
    await conn.execute(_FREE, job_id, attempt, member.index)
    await conn.execute(_END_HOLDING, job_id, attempt, member.index, at)
    await note_change(conn, "node", member.seat.node)


async def charge(conn: Connection, job: Job, attempt: int, member: MemberRun, at: datetime) -> None:
    """Open the holding of a member."""
    await conn.execute(
        "INSERT INTO holdings (job_id, attempt, member, tenant, cards, held_from) VALUES ($1, $2, $3, $4, $5, $6)",
        job.spec.job_id,
        attempt,
        member.index,
        job.spec.tenant,
        len(member.seat.cards),
        at,
    )
