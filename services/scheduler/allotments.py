"""SQL of nodes and of what members of attempts hold on them: allocations, cards and their shares, holdings.

Functions take the connection of the caller's transaction. Rows are locked in one order everywhere: nodes, then jobs.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.nodes import LinkKind, NodeFacts, NodeLimits, NodePhase, NodeState
from libs.db import Connection
from services.scheduler.core.arrays import NEVER
from services.scheduler.core.demands import host_memory_bytes
from services.scheduler.core.headroom import Headroom
from services.scheduler.core.model import CARD, Allocate, Charge, Free, Job, Seat
from services.scheduler.memory.rows import NodeRow, node_row
from services.scheduler.store import insert, note_change

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
_LOCK_NODES = """
    SELECT node, version, state, incarnation, cordoned FROM nodes WHERE node = ANY($1) ORDER BY node FOR UPDATE
"""
# The rows of the nodes are locked by whoever allocates there, so what is left cannot shrink behind the back of these.
_HEADROOM = """
    SELECT n.node, $2 - held.members AS slots, n.cpu_milli - held.cpu_milli AS cpu_milli,
      n.memory_bytes - held.memory_bytes AS memory_bytes, n.link_mbps - held.link_mbps AS link_mbps,
      CASE WHEN n.limit_cards IS NOT NULL THEN n.limit_cards * 1000000
        - (SELECT coalesce(sum(share), 0) FROM held_cards WHERE node = n.node) END AS budget
    FROM nodes n CROSS JOIN LATERAL (
      SELECT count(*) AS members, coalesce(sum(cpu_milli), 0) AS cpu_milli,
        coalesce(sum(memory_bytes), 0) AS memory_bytes, coalesce(sum(link_mbps), 0) AS link_mbps
      FROM allocations WHERE node = n.node) AS held
    WHERE n.node = ANY($1)
"""
_CARDS_LEFT = """
    SELECT node, card, 1000000 - coalesce(sum(share), 0) AS share
    FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::bigint[]) AS asked (node, card)) AS asked
      LEFT JOIN held_cards USING (node, card)
    GROUP BY node, card
"""
_ALLOCATE = """
    INSERT INTO allocations (job_id, attempt, member, node, cpu_milli, memory_bytes, link_mbps)
    SELECT job_id, attempt, member, node, cpu_milli, memory_bytes, link_mbps
    FROM jsonb_populate_recordset(NULL::allocations, $1)
"""
_ALLOCATE_CARDS = """
    INSERT INTO allocated_cards (node, card, job_id, attempt, member)
    SELECT node, card, job_id, attempt, member FROM jsonb_populate_recordset(NULL::allocated_cards, $1)
"""
_ALLOCATE_SHARES = """
    INSERT INTO allocated_shares (node, card, job_id, attempt, member, share)
    SELECT node, card, job_id, attempt, member, share FROM jsonb_populate_recordset(NULL::allocated_shares, $1)
"""
_FREE = """
    DELETE FROM allocations AS held
    USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS ended (job_id, attempt, member)
    WHERE held.job_id = ended.job_id AND held.attempt = ended.attempt AND held.member = ended.member
"""
_END_HOLDINGS = """
    UPDATE holdings AS held SET held_to = greatest(held.held_from, ended.at)
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::timestamptz[]) AS ended (job_id, attempt, member, at)
    WHERE held.job_id = ended.job_id AND held.attempt = ended.attempt AND held.member = ended.member
      AND held.held_to IS NULL
"""
_CHARGE = """
    INSERT INTO holdings (job_id, attempt, member, tenant, cards, held_from, share_milli)
    SELECT job_id, attempt, member, tenant, cards, held_from, share_milli
    FROM jsonb_populate_recordset(NULL::holdings, $1)
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


async def lock_nodes(conn: Connection, nodes: Collection[str]) -> dict[str, NodeHead]:
    """Those of these nodes that are known, locked in the order of their names until the transaction ends.

    No other state of them and no other allocation there comes between.
    """
    rows = await conn.fetch(_LOCK_NODES, list(nodes))
    return {row["node"]: NodeHead(row["version"], row["state"], row["incarnation"], row["cordoned"]) for row in rows}


async def lock_node(conn: Connection, node: str) -> NodeHead | None:
    """One node, locked."""
    return (await lock_nodes(conn, [node])).get(node)


async def headroom(conn: Connection, nodes: Collection[str], seats: Iterable[Seat], slots: int) -> dict[str, Headroom]:
    """What these nodes, which are locked, have left, and what those of their cards that these seats ask for."""
    asked = [(seat.node, card) for seat in seats if seat.node in nodes for card in seat.cards]
    cards: dict[str, dict[int, int]] = {node: {} for node in nodes}
    for row in await conn.fetch(_CARDS_LEFT, [node for node, _ in asked], [card for _, card in asked]):
        cards[row["node"]][row["card"]] = int(row["share"])
    return {
        row["node"]: Headroom(
            slots=row["slots"],
            cpu_milli=int(row["cpu_milli"]),
            memory_bytes=int(row["memory_bytes"]),
            link_mbps=NEVER if row["link_mbps"] is None else int(row["link_mbps"]),
            budget=NEVER if row["budget"] is None else int(row["budget"]),
            cards=cards[row["node"]],
        )
        for row in await conn.fetch(_HEADROOM, list(nodes), slots)
    }


async def jobs_on_node(conn: Connection, node: str) -> list[str]:
    """Jobs with a member on the node, in order of id."""
    rows = await conn.fetch("SELECT DISTINCT job_id FROM allocations WHERE node = $1 ORDER BY job_id", node)
    return [str(row["job_id"]) for row in rows]


# ---- allocations and holdings ----------------------------------------------------------------------------------------


async def allocate(conn: Connection, given: Sequence[tuple[Job, Allocate]]) -> None:
    """Give members their cards; raises ConstraintError where a whole one has its holder already."""
    whole, parts = list[dict[str, Any]](), list[dict[str, Any]]()
    for job, effect in given:
        seat, key = effect.member.seat, _key(job, effect)
        if seat.share < CARD:
            parts.append({**key, "node": seat.node, "card": seat.cards[0], "share": seat.share})
        else:
            whole += [{**key, "node": seat.node, "card": card} for card in seat.cards]
    await insert(conn, _ALLOCATE, [_allocation(job, effect) for job, effect in given])
    await insert(conn, _ALLOCATE_CARDS, whole)
    await insert(conn, _ALLOCATE_SHARES, parts)


def _key(job: Job, effect: Allocate | Charge) -> dict[str, Any]:
    return {"job_id": job.spec.job_id, "attempt": effect.attempt, "member": effect.member.index}


def _allocation(job: Job, effect: Allocate) -> dict[str, Any]:
    asked = job.spec.resources
    return {
        **_key(job, effect),
        "node": effect.member.seat.node,
        "cpu_milli": asked.cpu_milli,
        "memory_bytes": host_memory_bytes(asked),
        "link_mbps": asked.link_mbps or 0,
    }


async def charge(conn: Connection, claimed: Sequence[tuple[Job, Charge]]) -> None:
    """Open the holdings of members."""
    rows = [
        {
            **_key(job, effect),
            "tenant": job.spec.tenant,
            "cards": len(effect.member.seat.cards),
            "held_from": effect.at,
            "share_milli": effect.member.seat.share_milli,
        }
        for job, effect in claimed
    ]
    await insert(conn, _CHARGE, rows)


async def free(conn: Connection, ended: Sequence[tuple[Job, Free]]) -> None:
    """Take cards back and close the holdings."""
    rows = [(job.spec.job_id, effect.attempt, effect.member.index, effect.at) for job, effect in ended]
    if rows:
        *members, at = (list(column) for column in zip(*rows, strict=True))
        await conn.execute(_FREE, *members)
        await conn.execute(_END_HOLDINGS, *members, at)
