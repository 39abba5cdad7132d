"""SQL of nodes and of what members of attempts hold on them: allocations, cards and their shares, holdings.

Functions take the connection of the caller's transaction. Rows are locked in one order everywhere: nodes, then jobs.
"""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from contracts.jobs import Resources
from contracts.nodes import LinkKind, NodeFacts, NodeLimits, NodePhase, NodeState
from libs.db import Connection
from services.scheduler.core.demands import host_memory_bytes
from services.scheduler.core.model import CARD, Job, MemberRun
from services.scheduler.memory.rows import NodeRow, node_row
from services.scheduler.store import note_change

MAX_NODES = 100_000
JOINING = frozenset({LinkKind.NVLINK, LinkKind.NVSWITCH})  # cards so linked are one group

_SAVE_NODE = """
    INSERT INTO nodes (node, version, state, incarnation, tier, cpu_milli, memory_bytes, cards, shape, requeue_held,
      since, zone, rack, cordoned, scarce, linked, bad_cards, limit_cards, link_mbps)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
    ON CONFLICT (node) DO UPDATE SET version = excluded.version, state = excluded.state,
      incarnation = excluded.incarnation, tier = excluded.tier, cpu_milli = excluded.cpu_milli,
      memory_bytes = excluded.memory_bytes, cards = excluded.cards, shape = excluded.shape,
      requeue_held = excluded.requeue_held, since = excluded.since, zone = excluded.zone, rack = excluded.rack,
      cordoned = excluded.cordoned, scarce = excluded.scarce, linked = excluded.linked, bad_cards = excluded.bad_cards,
      limit_cards = excluded.limit_cards, link_mbps = excluded.link_mbps
    WHERE nodes.version < excluded.version
    RETURNING true
"""
_ALLOCATE = """
    INSERT INTO allocations (job_id, attempt, member, node, cpu_milli, memory_bytes, link_mbps)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_ALLOCATE_CARDS = """
    INSERT INTO allocated_cards (node, card, job_id, attempt, member)
    SELECT $1, card, $3, $4, $5 FROM unnest($2::bigint[]) AS card
    ON CONFLICT (node, card) DO NOTHING RETURNING card
"""
_ALLOCATE_SHARE = """
    INSERT INTO allocated_shares (node, card, job_id, attempt, member, share) VALUES ($1, $2, $3, $4, $5, $6)
"""
# The row of the node is locked by whoever allocates there, so the sums cannot grow behind the back of this statement.
_OVERCOMMITTED = """
    WITH held AS (SELECT count(*) AS members, sum(cpu_milli) AS cpu_milli, sum(memory_bytes) AS memory_bytes,
        sum(link_mbps) AS link_mbps FROM allocations WHERE node = $1),
      cards AS (SELECT card, sum(share) AS share FROM held_cards WHERE node = $1 GROUP BY card)
    SELECT CASE
      WHEN held.members > $2 THEN 'slots'
      WHEN $3 AND held.cpu_milli > n.cpu_milli THEN 'processors'
      WHEN $3 AND held.memory_bytes > n.memory_bytes THEN 'memory'
      WHEN $4 AND held.link_mbps > n.link_mbps THEN 'link'
      WHEN $5 AND (SELECT max(share) FROM cards) > 1000000 THEN 'room on a card'
      WHEN $5 AND (SELECT sum(share) FROM cards) > n.limit_cards * 1000000 THEN 'room below its assessed limit'
      END
    FROM nodes n, held WHERE n.node = $1
"""
_FREE = "DELETE FROM allocations WHERE job_id = $1 AND attempt = $2 AND member = $3"
_CHARGE = """
    INSERT INTO holdings (job_id, attempt, member, tenant, cards, held_from, share_milli)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_END_HOLDING = """
    UPDATE holdings SET held_to = greatest(held_from, $4)
    WHERE job_id = $1 AND attempt = $2 AND member = $3 AND held_to IS NULL
"""


# ---- nodes -----------------------------------------------------------------------------------------------------------


async def nodes_of(conn: Connection, *, changed: bool) -> list[NodeRow]:
    """All nodes, or those that have changed since the cycle looked last."""
    only = "WHERE node IN (SELECT id FROM changes WHERE kind = 'node')" if changed else ""
    return [node_row(row) for row in await conn.fetch(f"SELECT * FROM nodes {only} LIMIT $1", MAX_NODES)]  # noqa: S608


async def save_node(conn: Connection, state: NodeState) -> bool:
    """Keep the newest state of a node; False when a newer one is there."""
    facts, limits = state.facts, state.limits or NodeLimits()
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
        _shape(facts),
        state.requeue_held,
        state.since,
        facts.zone,
        facts.rack or "",
        state.cordoned,
        state.scarce,
        facts.card_link is not None and facts.card_link.kind in JOINING,
        state.bad_cards,
        limits.cards,
        limits.link_mbps if limits.link_mbps is not None else facts.link_mbps,
    )
    if newest:
        await note_change(conn, "node", state.node)
    return bool(newest)


def _shape(facts: NodeFacts) -> str:
    """Kinds of cards with their number, in one order."""
    counts = Counter((card.model, card.memory_bytes) for card in facts.cards)
    return json.dumps([[*kind, count] for kind, count in sorted(counts.items())])


@dataclass(frozen=True)
class NodeHead:
    """What a placement is checked against."""

    version: int
    state: str
    incarnation: str
    cordoned: bool

    @property
    def ready(self) -> bool:
        """Whether new work may be placed there."""
        return self.state == NodePhase.READY and not self.cordoned


async def lock_node(conn: Connection, node: str) -> NodeHead | None:
    """A node, locked until the transaction ends: no other state of it and no other allocation comes between."""
    query = "SELECT version, state, incarnation, cordoned FROM nodes WHERE node = $1 FOR UPDATE"
    row = await conn.fetchrow(query, node)
    return None if row is None else NodeHead(row["version"], row["state"], row["incarnation"], row["cordoned"])


async def overcommitted(conn: Connection, node: str, slots: int, asked: Resources) -> str | None:
    """What a node has too little of now that somebody who asks this has been put there; None: nothing."""
    host = asked.cpu_milli > 0 or host_memory_bytes(asked) > 0
    short = await conn.fetchval(_OVERCOMMITTED, node, slots, host, bool(asked.link_mbps), asked.cards > 0)
    return None if short is None else str(short)


async def jobs_on_node(conn: Connection, node: str) -> list[str]:
    """Jobs with a member on the node, in order of id."""
    rows = await conn.fetch("SELECT DISTINCT job_id FROM allocations WHERE node = $1 ORDER BY job_id", node)
    return [str(row["job_id"]) for row in rows]


# ---- allocations and holdings ----------------------------------------------------------------------------------------


async def allocate(conn: Connection, job: Job, attempt: int, member: MemberRun) -> bool:
    """Give the member its cards; False when one of them is taken."""
    asked, seat = job.spec.resources, member.seat
    who = job.spec.job_id, attempt, member.index
    host = asked.cpu_milli, host_memory_bytes(asked), asked.link_mbps or 0
    await conn.execute(_ALLOCATE, *who, seat.node, *host)
    if seat.share < CARD:
        await conn.execute(_ALLOCATE_SHARE, seat.node, seat.cards[0], *who, seat.share)
        return True
    rows = await conn.fetch(_ALLOCATE_CARDS, seat.node, list(seat.cards), *who)
    return len(rows) == len(seat.cards)


async def free(conn: Connection, job_id: str, attempt: int, member: MemberRun, at: datetime) -> None:
    """Take the cards back and close the holding."""
    await conn.execute(_FREE, job_id, attempt, member.index)
    await conn.execute(_END_HOLDING, job_id, attempt, member.index, at)


async def charge(conn: Connection, job: Job, attempt: int, member: MemberRun, at: datetime) -> None:
    """Open the holding of a member."""
    await conn.execute(
        _CHARGE,
        job.spec.job_id,
        attempt,
        member.index,
        job.spec.tenant,
        len(member.seat.cards),
        at,
        member.seat.share_milli,
    )
