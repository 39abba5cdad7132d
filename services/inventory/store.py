"""The ledger in PostgreSQL: all of inventory's SQL.

Functions take the connection of an open transaction. Whatever changes the ledger calls `lock_clock` first, so that
ticks, announcements and releases follow one another and none decides on rows that another is changing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from contracts.nodes import NodeFacts, NodePhase
from libs.db import Connection
from services.inventory.core.model import (
    Admit,
    Cause,
    Census,
    Clock,
    FaultCensus,
    Holder,
    Move,
    Node,
    NodeEvent,
)
from services.inventory.core.phases import told
from services.inventory.rows import Portrait, faults_json, node_of, portrait_of, sight_columns

_LOCK_CLOCK = "SELECT stream, read_sequence, tick_at, observed_ms, floor_ms FROM clock FOR UPDATE"
_SAVE_CLOCK = "UPDATE clock SET stream = $1, read_sequence = $2, tick_at = $3, observed_ms = $4, floor_ms = $5"

_TO_JUDGE = """
    SELECT * FROM pulse
    WHERE node = ANY($1::text[])
       OR (standing <> 'retired' AND (phase = 'suspect' OR (phase = 'ready' AND seen_ms <= $2)))
       OR standing = 'retiring'
"""
_SOME = "SELECT * FROM pulse WHERE node = ANY($1::text[]) ORDER BY node"
_HOLDING = "SELECT * FROM pulse WHERE faults LIKE '%\"held\":true%' ORDER BY node"
_FACTS = "SELECT node, facts FROM nodes WHERE node = ANY($1::text[])"
_CENSUS = """
    SELECT count(*) FILTER (WHERE phase = 'ready') AS ready,
           count(*) FILTER (WHERE phase = 'suspect') AS suspect,
           count(*) FILTER (WHERE phase = 'lost' AND (requeue_held OR lost_ms > $1)) AS lost_lately
    FROM nodes WHERE standing <> 'retired'
"""
_FAULT_CENSUS = """
    SELECT count(*) FILTER (WHERE phase <> 'lost') AS fleet, count(*) FILTER (WHERE acted_ms > $1) AS lately
    FROM nodes WHERE standing <> 'retired'
"""
_HOLDERS = """
    SELECT c.uuid, n.node, n.phase FROM cards c JOIN nodes n USING (node)
    WHERE c.uuid = ANY($1::text[])
"""
_SAVE_SIGHTS = """
    UPDATE sightings AS s
    SET seen_ms = v.seen_ms, heard_ms = v.heard_ms, lease_ms = v.lease_ms, counter = v.counter, skew_ms = v.skew_ms,
        attempts = v.attempts, noise = v.noise, rival = v.rival, rival_counter = v.rival_counter, rival_ms = v.rival_ms,
        skew_low_ms = v.skew_low_ms, skew_before_ms = v.skew_before_ms, skew_from_ms = v.skew_from_ms
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[],
                $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])
      AS v (node, seen_ms, heard_ms, lease_ms, counter, skew_ms, attempts, noise, rival, rival_counter, rival_ms,
            skew_low_ms, skew_before_ms, skew_from_ms)
    WHERE s.node = v.node
"""
_NEW_SIGHT = """
    INSERT INTO sightings (node, seen_ms, heard_ms, lease_ms, counter, skew_ms, attempts, noise, rival, rival_counter,
                           rival_ms, skew_low_ms, skew_before_ms, skew_from_ms)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    ON CONFLICT (node) DO UPDATE
    SET seen_ms = $2, heard_ms = $3, lease_ms = $4, counter = $5, skew_ms = $6, attempts = $7, noise = $8, rival = $9,
        rival_counter = $10, rival_ms = $11, skew_low_ms = $12, skew_before_ms = $13, skew_from_ms = $14
"""
_MOVE = """
    UPDATE nodes AS n
    SET version = n.version + 1, phase = v.phase, reason = v.reason, requeue_held = v.requeue_held,
        lost_ms = v.lost_ms, told = v.told, stage = v.stage, standing = v.standing, order_words = v.order_words,
        faults = v.faults, acted_ms = v.acted_ms, since = CASE WHEN n.told = v.told THEN n.since ELSE $12 END
    FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::bigint[], $6::text[], $7::text[], $8::text[],
                $9::text[], $10::text[], $11::bigint[])
      AS v (node, phase, reason, requeue_held, lost_ms, told, stage, standing, order_words, faults, acted_ms)
    WHERE n.node = v.node
"""
_RESTATE = """
    UPDATE nodes SET version = version + 1, reason = $2, requeue_held = false,
        superseded_by = coalesce($3, superseded_by)
    WHERE node = ANY($1::text[])
"""
_ADMIT = """
    INSERT INTO nodes (node, version, phase, facts, incarnation, announced_at, stored_at, reason, since, told, stage,
                       cards)
    VALUES ($1, 1, $2, $3, $4, $5, $6, $7, $8, $12, $13, $14)
    ON CONFLICT (node) DO UPDATE
    SET version = nodes.version + 1, phase = $2, facts = $3, incarnation = $4, announced_at = $5, stored_at = $6,
        reason = $7, requeue_held = $9, lost_ms = $10, superseded_by = $11, told = $12, stage = $13, cards = $14,
        since = CASE WHEN nodes.told = $12 AND nodes.incarnation = $4 THEN nodes.since ELSE $8 END
"""
_DROP_CARDS = "DELETE FROM cards WHERE node = ANY($1::text[]) OR uuid = ANY($2::text[])"
_ADD_CARDS = "INSERT INTO cards (uuid, node, index, model, memory_bytes, source) VALUES ($1, $2, $3, $4, $5, $6)"
_HISTORY = """
    INSERT INTO history (node, version, at, event, phase, cause, reason, actor, incarnation, requeue_held, facts)
    SELECT n.node, n.version, $2, $3, n.told, $4, n.reason, $5, n.incarnation, n.requeue_held,
           CASE WHEN $6 THEN n.facts END
    FROM nodes n WHERE n.node = ANY($1::text[])
"""
_STATES = "SELECT * FROM portrait WHERE node = ANY($1::text[]) ORDER BY node"
_PAGE = "SELECT * FROM portrait WHERE node > $1 ORDER BY node LIMIT $2"
_HELD = "SELECT node FROM nodes WHERE phase = 'lost' AND requeue_held ORDER BY node"
_FORGET_LOSSES = "UPDATE nodes SET lost_ms = NULL WHERE phase = 'lost'"
_BREAKER = "SELECT opened_at, reason FROM breaker WHERE closed_at IS NULL"
_OPEN_BREAKER = "INSERT INTO breaker (opened_at, reason) VALUES ($1, $2) RETURNING (SELECT count(*) FROM breaker)"
_CLOSE_BREAKER = """
    UPDATE breaker SET closed_at = $1, closed_by = $2, closed_reason = $3 WHERE closed_at IS NULL
    RETURNING (SELECT count(*) FROM breaker)
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
    return [node_of(row) for row in await conn.fetch(_TO_JUDGE, list(names), quiet_since_ms)]


async def some_nodes(conn: Connection, names: Collection[str]) -> dict[str, Node]:
    """Those of the nodes called `names` that are known."""
    return {row["node"]: node_of(row) for row in await conn.fetch(_SOME, list(names))}


async def nodes_with_held_faults(conn: Connection) -> list[Node]:
    """The nodes of which the breaker of quarantines holds something."""
    return [node_of(row) for row in await conn.fetch(_HOLDING)]


async def some_facts(conn: Connection, names: Collection[str]) -> dict[str, NodeFacts]:
    """What the nodes called `names` announced."""
    return {row["node"]: NodeFacts.model_validate_json(row["facts"]) for row in await conn.fetch(_FACTS, list(names))}


async def census(conn: Connection, lately_since_ms: int) -> Census:
    """The fleet in numbers; a node lost after `lately_since_ms` counts as lost lately."""
    row = await conn.fetchrow(_CENSUS, lately_since_ms)
    assert row is not None
    return Census(row["ready"], row["suspect"], row["lost_lately"])


async def fault_census(conn: Connection, since_ms: int) -> FaultCensus:
    """The fleet as the breaker of quarantines sees it; faults that took effect after `since_ms` count."""
    row = await conn.fetchrow(_FAULT_CENSUS, since_ms)
    assert row is not None
    return FaultCensus(row["fleet"], row["lately"])


async def holders(conn: Connection, uuids: Sequence[str]) -> dict[str, Holder]:
    """For each of the card uuids that a node has: that node."""
    rows = await conn.fetch(_HOLDERS, list(uuids))
    return {row["uuid"]: Holder(row["node"], NodePhase(row["phase"])) for row in rows}


async def save_sights(conn: Connection, nodes: Sequence[Node]) -> None:
    """Keep what was heard of `nodes`."""
    if nodes:
        await conn.execute(_SAVE_SIGHTS, *map(list, zip(*map(sight_columns, nodes), strict=True)))


async def move(conn: Connection, moves: Sequence[Move], *, at: datetime, actor: str) -> list[tuple[Move, Portrait]]:
    """Move nodes to the phase of their `moves`; returns each with what is told of it, in the order given."""
    if not moves:
        return []
    await conn.execute(
        _MOVE,
        [item.node.name for item in moves],
        [item.node.phase.value for item in moves],
        [item.reason for item in moves],
        [item.node.requeue_held for item in moves],
        [item.node.lost_ms for item in moves],
        [told(item.node).value for item in moves],
        [item.node.stage.value for item in moves],
        [item.node.standing.value for item in moves],
        [item.node.order for item in moves],
        [faults_json(item.node) for item in moves],
        [item.node.acted_ms for item in moves],
        at,
    )
    for event, cause in sorted({(item.event, item.cause) for item in moves}):
        names = [item.node.name for item in moves if (item.event, item.cause) == (event, cause)]
        await _record(conn, names, event, cause, at=at, actor=actor)
    states = await portraits(conn, [item.node.name for item in moves])
    return [(item, states[item.node.name]) for item in moves]


@dataclass(frozen=True, slots=True)
class Admission:
    """An announcement that is taken over: when it was stored, and who made it."""

    effect: Admit
    at: datetime
    actor: str


async def admit(conn: Connection, admissions: Sequence[Admission]) -> dict[str, Portrait]:
    """Take over what nodes announced, one announcement of each at most; returns what is told of them."""
    if not admissions:
        return {}
    await conn.executemany(_ADMIT, [_admit_row(one) for one in admissions])
    await conn.executemany(_NEW_SIGHT, [sight_columns(one.effect.node) for one in admissions])
    names = [one.effect.node.name for one in admissions]
    cards = [(name, card) for name, one in zip(names, admissions, strict=True) for card in one.effect.facts.cards]
    await conn.execute(_DROP_CARDS, names, [card.uuid for _, card in cards])
    await conn.executemany(
        _ADD_CARDS,
        [(card.uuid, name, card.index, card.model, card.memory_bytes, str(card.source)) for name, card in cards],
    )
    causes = [(one.effect.event.value, one.effect.cause.value) for one in admissions]
    await conn.executemany(
        _HISTORY,
        [
            ([name], one.at, event, cause, one.actor, True)
            for name, one, (event, cause) in zip(names, admissions, causes, strict=True)
        ],
    )
    return await portraits(conn, names)


def _admit_row(one: Admission) -> tuple[object, ...]:
    node, effect = one.effect.node, one.effect
    return (
        node.name,
        node.phase.value,
        effect.facts.model_dump_json(),
        node.incarnation,
        node.announced_at,
        node.stored_at,
        effect.reason,
        one.at,
        node.requeue_held,
        node.lost_ms,
        node.superseded_by,
        told(node).value,
        node.stage.value,
        node.cards,
    )


async def restate_lost(
    conn: Connection,
    names: Sequence[str],
    *,
    cause: Cause,
    reason: str,
    at: datetime,
    actor: str,
    superseded_by: str | None = None,
) -> list[Portrait]:
    """Tell lost nodes anew, without the hold; returns what is told of them in order of name."""
    if not names:
        return []
    await conn.execute(_RESTATE, list(names), reason, superseded_by)
    await _record(conn, names, NodeEvent.LOST, cause, at=at, actor=actor)
    return list((await portraits(conn, names)).values())


async def held(conn: Connection) -> list[str]:
    """The lost nodes whose requeueing is held."""
    return [row["node"] for row in await conn.fetch(_HELD)]


async def breaker_open(conn: Connection) -> bool:
    """Whether the breaker is open."""
    return await breaker_since(conn) is not None


async def breaker_since(conn: Connection) -> tuple[datetime, str] | None:
    """When and why the breaker opened; None while it is closed."""
    row = await conn.fetchrow(_BREAKER)
    return None if row is None else (row["opened_at"], row["reason"])


async def open_breaker(conn: Connection, reason: str, at: datetime) -> int:
    """Open the breaker; returns for which time."""
    return int(await conn.fetchval(_OPEN_BREAKER, at, reason)) + 1


async def close_breaker(conn: Connection, reason: str, *, at: datetime, actor: str) -> int | None:
    """Close the breaker; returns for which time, None when it was not open."""
    return await conn.fetchval(_CLOSE_BREAKER, at, actor, reason)


async def forget_losses(conn: Connection) -> None:
    """Nodes lost up to now no longer count toward the breaker."""
    await conn.execute(_FORGET_LOSSES)


async def page(conn: Connection, after: str, limit: int) -> list[Portrait]:
    """Up to `limit` nodes that follow the name `after`."""
    return [portrait_of(row) for row in await conn.fetch(_PAGE, after, limit)]


async def portraits(conn: Connection, names: Collection[str]) -> dict[str, Portrait]:
    """What is told of those of the nodes called `names` that are known."""
    return {row["node"]: portrait_of(row) for row in await conn.fetch(_STATES, list(names))}


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
