"""The ledger in PostgreSQL: all of inventory's SQL.

Functions take the connection of an open transaction. Whatever changes the ledger calls `lock_clock` first, so that
ticks, announcements and releases follow one another and none decides on rows that another is changing.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from contracts.nodes import LiveAttempt, NodeFacts, NodePhase, NodeState
from libs.db import Connection, Row
from services.inventory.core.model import (
    Admit,
    Cause,
    Census,
    Clock,
    Holder,
    Move,
    Node,
    NodeEvent,
)

_ATTEMPTS: TypeAdapter[list[LiveAttempt]] = TypeAdapter(list[LiveAttempt])

_LOCK_CLOCK = "SELECT stream, read_sequence, tick_at, observed_ms, floor_ms FROM clock FOR UPDATE"
_SAVE_CLOCK = "UPDATE clock SET stream = $1, read_sequence = $2, tick_at = $3, observed_ms = $4, floor_ms = $5"

_TO_JUDGE = """
    SELECT * FROM judged
    WHERE node = ANY($1::text[]) OR phase = 'suspect' OR (phase = 'ready' AND seen_ms <= $2)
"""
_ONE = "SELECT * FROM judged WHERE node = $1"
_CENSUS = """
    SELECT count(*) FILTER (WHERE phase = 'ready') AS ready,
           count(*) FILTER (WHERE phase = 'suspect') AS suspect,
           count(*) FILTER (WHERE phase = 'lost' AND (requeue_held OR lost_ms > $1)) AS lost_lately
    FROM nodes
"""
_HOLDERS = """
    SELECT c.uuid, n.node, n.phase FROM cards c JOIN nodes n USING (node)
    WHERE c.uuid = ANY($1::text[]) AND c.node <> $2
"""
_SAVE_SIGHTS = """
    UPDATE sightings AS s
    SET seen_ms = v.seen_ms, heard_ms = v.heard_ms, lease_ms = v.lease_ms, counter = v.counter, skew_ms = v.skew_ms,
        attempts = v.attempts, noise = v.noise, rival = v.rival, rival_counter = v.rival_counter, rival_ms = v.rival_ms
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[],
                $8::text[], $9::text[], $10::bigint[], $11::bigint[])
      AS v (node, seen_ms, heard_ms, lease_ms, counter, skew_ms, attempts, noise, rival, rival_counter, rival_ms)
    WHERE s.node = v.node
"""
_NEW_SIGHT = """
    INSERT INTO sightings (node, seen_ms, heard_ms, lease_ms, counter, skew_ms, attempts, noise, rival, rival_counter,
                           rival_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (node) DO UPDATE
    SET seen_ms = $2, heard_ms = $3, lease_ms = $4, counter = $5, skew_ms = $6, attempts = $7, noise = $8, rival = $9,
        rival_counter = $10, rival_ms = $11
"""
_MOVE = """
    UPDATE nodes AS n
    SET version = n.version + 1, phase = v.phase, reason = v.reason, requeue_held = v.requeue_held,
        lost_ms = v.lost_ms, since = CASE WHEN n.phase = v.phase THEN n.since ELSE $6 END
    FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::bigint[])
      AS v (node, phase, reason, requeue_held, lost_ms)
    WHERE n.node = v.node
"""
_RESTATE = """
    UPDATE nodes SET version = version + 1, reason = $2, requeue_held = false,
        superseded_by = coalesce($3, superseded_by)
    WHERE node = ANY($1::text[])
"""
_ADMIT = """
    INSERT INTO nodes (node, version, phase, facts, incarnation, announced_at, stored_at, reason, since)
    VALUES ($1, 1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (node) DO UPDATE
    SET version = nodes.version + 1, phase = $2, facts = $3, incarnation = $4, announced_at = $5, stored_at = $6,
        reason = $7, requeue_held = $9, lost_ms = $10, superseded_by = $11,
        since = CASE WHEN nodes.phase = $2 AND nodes.incarnation = $4 THEN nodes.since ELSE $8 END
"""
_DROP_CARDS = "DELETE FROM cards WHERE node = $1 OR uuid = ANY($2::text[])"
_ADD_CARDS = "INSERT INTO cards (uuid, node, index, model, memory_bytes, source) VALUES ($1, $2, $3, $4, $5, $6)"
_HISTORY = """
    INSERT INTO history (node, version, at, event, phase, cause, reason, actor, incarnation, requeue_held, facts)
    SELECT n.node, n.version, $2, $3, n.phase, $4, n.reason, $5, n.incarnation, n.requeue_held,
           CASE WHEN $6 THEN n.facts END
    FROM nodes n WHERE n.node = ANY($1::text[])
"""
_STATES = "SELECT * FROM told WHERE node = ANY($1::text[]) ORDER BY node"
_PAGE = "SELECT * FROM told WHERE node > $1 ORDER BY node LIMIT $2"
_HELD = "SELECT node FROM nodes WHERE phase = 'lost' AND requeue_held ORDER BY node"
_FORGET_LOSSES = "UPDATE nodes SET lost_ms = NULL WHERE phase = 'lost'"
_BREAKER = "SELECT true FROM breaker WHERE closed_at IS NULL"
_OPEN_BREAKER = "INSERT INTO breaker (opened_at, reason) VALUES ($1, $2)"
_CLOSE_BREAKER = """
    UPDATE breaker SET closed_at = $1, closed_by = $2, closed_reason = $3 WHERE closed_at IS NULL RETURNING true
"""


async def lock_clock(conn: Connection) -> Clock:
    """The clock, locked until the transaction ends."""
    row = await conn.fetchrow(_LOCK_CLOCK)
    assert row is not None, "the table clock has lost its only row"
    return Clock(row["stream"], row["read_sequence"], row["tick_at"], row["observed_ms"], row["floor_ms"])


async def save_clock(conn: Connection, clock: Clock) -> None:
    """Keep how far the stream has been read and observed."""
    await conn.execute(_SAVE_CLOCK, clock.stream, clock.read_sequence, clock.tick_at, clock.observed_ms, clock.floor_ms)


async def nodes_to_judge(conn: Connection, names: Collection[str], quiet_since_ms: int) -> list[Node]:
    """The nodes called `names`, all that are suspect, and those ready that were last seen up to `quiet_since_ms`."""
    return [_node(row) for row in await conn.fetch(_TO_JUDGE, list(names), quiet_since_ms)]


async def node_and_facts(conn: Connection, name: str) -> tuple[Node, NodeFacts] | tuple[None, None]:
    """One node with its facts; a pair of None when it is unknown."""
    row = await conn.fetchrow(_ONE, name)
    if row is None:
        return None, None
    return _node(row), NodeFacts.model_validate_json(row["facts"])


async def census(conn: Connection, lately_since_ms: int) -> Census:
    """The fleet in numbers; a node lost after `lately_since_ms` counts as lost lately."""
    row = await conn.fetchrow(_CENSUS, lately_since_ms)
    assert row is not None
    return Census(row["ready"], row["suspect"], row["lost_lately"])


async def holders(conn: Connection, name: str, uuids: Sequence[str]) -> dict[str, Holder]:
    """For each of the card uuids that a node other than `name` has: that node."""
    rows = await conn.fetch(_HOLDERS, list(uuids), name)
    return {row["uuid"]: Holder(row["node"], NodePhase(row["phase"])) for row in rows}


async def save_sights(conn: Connection, nodes: Sequence[Node]) -> None:
    """Keep what was heard of `nodes`."""
    if nodes:
        await conn.execute(_SAVE_SIGHTS, *map(list, zip(*map(_sight, nodes), strict=True)))


async def move(conn: Connection, moves: Sequence[Move], *, at: datetime, actor: str) -> list[tuple[Move, NodeState]]:
    """Move nodes to the phase of their `moves`; returns each with the new state, in the order given."""
    if not moves:
        return []
    await conn.execute(
        _MOVE,
        [item.node.name for item in moves],
        [item.node.phase.value for item in moves],
        [item.reason for item in moves],
        [item.node.requeue_held for item in moves],
        [item.node.lost_ms for item in moves],
        at,
    )
    for event, cause in sorted({(item.event, item.cause) for item in moves}):
        names = [item.node.name for item in moves if (item.event, item.cause) == (event, cause)]
        await _record(conn, names, event, cause, at=at, actor=actor)
    states = await _states(conn, [item.node.name for item in moves])
    return [(item, states[item.node.name]) for item in moves]


async def admit(conn: Connection, effect: Admit, *, at: datetime, actor: str) -> NodeState:
    """Take over what a node announced; returns its new state."""
    node, facts = effect.node, effect.facts
    await conn.execute(
        _ADMIT,
        node.name,
        node.phase.value,
        facts.model_dump_json(),
        node.incarnation,
        node.announced_at,
        node.stored_at,
        effect.reason,
        at,
        node.requeue_held,
        node.lost_ms,
        node.superseded_by,
    )
    await conn.execute(_NEW_SIGHT, *_sight(node))
    await conn.execute(_DROP_CARDS, node.name, [card.uuid for card in facts.cards])
    await conn.executemany(
        _ADD_CARDS,
        [(card.uuid, node.name, card.index, card.model, card.memory_bytes, str(card.source)) for card in facts.cards],
    )
    await _record(conn, [node.name], effect.event, effect.cause, at=at, actor=actor, facts=True)
    return (await _states(conn, [node.name]))[node.name]


async def restate_lost(
    conn: Connection,
    names: Sequence[str],
    *,
    cause: Cause,
    reason: str,
    at: datetime,
    actor: str,
    superseded_by: str | None = None,
) -> list[NodeState]:
    """Tell lost nodes anew, without the hold; returns their new states in order of name."""
    if not names:
        return []
    await conn.execute(_RESTATE, list(names), reason, superseded_by)
    await _record(conn, names, NodeEvent.LOST, cause, at=at, actor=actor)
    return list((await _states(conn, names)).values())


async def held(conn: Connection) -> list[str]:
    """The lost nodes whose requeueing is held."""
    return [row["node"] for row in await conn.fetch(_HELD)]


async def breaker_open(conn: Connection) -> bool:
    """Whether the breaker is open."""
    return await conn.fetchval(_BREAKER) is not None


async def open_breaker(conn: Connection, reason: str, at: datetime) -> None:
    """Open the breaker."""
    await conn.execute(_OPEN_BREAKER, at, reason)


async def close_breaker(conn: Connection, reason: str, *, at: datetime, actor: str) -> bool:
    """Close the breaker; False when it was not open."""
    return await conn.fetchval(_CLOSE_BREAKER, at, actor, reason) is not None


async def forget_losses(conn: Connection) -> None:
    """Nodes lost up to now no longer count toward the breaker."""
    await conn.execute(_FORGET_LOSSES)


async def page(conn: Connection, after: str, limit: int) -> list[NodeState]:
    """Up to `limit` nodes that follow the name `after`."""
    return [_state(row) for row in await conn.fetch(_PAGE, after, limit)]


async def _record(
    conn: Connection,
    names: Sequence[str],
    event: NodeEvent,
    cause: Cause,
    *,
    at: datetime,
    actor: str,
    facts: bool = False,
) -> None:
    await conn.execute(_HISTORY, list(names), at, event.value, cause.value, actor, facts)


async def _states(conn: Connection, names: Sequence[str]) -> Mapping[str, NodeState]:
    return {row["node"]: _state(row) for row in await conn.fetch(_STATES, list(names))}


def _node(row: Row) -> Node:
    return Node(
        name=row["node"],
        phase=NodePhase(row["phase"]),
        incarnation=row["incarnation"],
        announced_at=row["announced_at"],
        stored_at=row["stored_at"],
        seen_ms=row["seen_ms"],
        heard_ms=row["heard_ms"],
        lease_ms=row["lease_ms"],
        counter=row["counter"],
        skew_ms=row["skew_ms"],
        attempts=row["attempts"],
        noise=row["noise"],
        rival=row["rival"],
        rival_counter=row["rival_counter"],
        rival_ms=row["rival_ms"],
        lost_ms=row["lost_ms"],
        requeue_held=row["requeue_held"],
        superseded_by=row["superseded_by"],
    )


def _sight(node: Node) -> tuple[Any, ...]:
    """The columns of `sightings`, in the order that the queries name them."""
    return (
        node.name,
        node.seen_ms,
        node.heard_ms,
        node.lease_ms,
        node.counter,
        node.skew_ms,
        node.attempts,
        node.noise,
        node.rival,
        node.rival_counter,
        node.rival_ms,
    )


def _state(row: Row) -> NodeState:
    return NodeState(
        node=row["node"],
        version=row["version"],
        state=NodePhase(row["phase"]),
        facts=NodeFacts.model_validate_json(row["facts"]),
        incarnation=row["incarnation"],
        attempts=_ATTEMPTS.validate_json(row["attempts"]),
        reason=row["reason"],
        requeue_held=row["requeue_held"],
        since=row["since"],
    )
