"""SQL about reports of health: the newest of each node, how busy it was, and the breaker of quarantines."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from contracts.health import NodeReported
from libs.db import Connection, Row
from services.inventory.core.health import Memory

_SAVE = """
    INSERT INTO reports (node, incarnation, counter, stored_at, body)
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], $5::text[])
    ON CONFLICT (node) DO UPDATE
    SET incarnation = excluded.incarnation, counter = excluded.counter, stored_at = excluded.stored_at,
        body = excluded.body
    WHERE reports.incarnation <> excluded.incarnation OR reports.counter < excluded.counter
"""
_SOME = "SELECT * FROM reports WHERE node = ANY($1::text[])"
_REMEMBER = """
    UPDATE reports AS r SET memory = v.memory, link_mbps = v.link_mbps, card_power_w = v.card_power_w
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS v (node, memory, link_mbps, card_power_w)
    WHERE r.node = v.node
"""
_ADD_DAYS = """
    INSERT INTO days (node, day, busy_pct_s, window_s)
    SELECT * FROM unnest($1::text[], $2::date[], $3::bigint[], $4::bigint[])
    ON CONFLICT (node, day) DO UPDATE
    SET busy_pct_s = days.busy_pct_s + excluded.busy_pct_s, window_s = days.window_s + excluded.window_s
"""
_DAYS = "SELECT day, busy_pct_s, window_s FROM days WHERE node = $1 AND window_s > 0 ORDER BY day DESC LIMIT $2"
_BREAKER = "SELECT opened_at, reason FROM fault_breaker WHERE closed_at IS NULL"
_OPEN_BREAKER = """
    INSERT INTO fault_breaker (opened_at, reason) VALUES ($1, $2) RETURNING (SELECT count(*) FROM fault_breaker)
"""
_CLOSE_BREAKER = """
    UPDATE fault_breaker SET closed_at = $1, closed_by = $2, closed_reason = $3 WHERE closed_at IS NULL
    RETURNING (SELECT count(*) FROM fault_breaker)
"""
_FORGET_FAULTS = "UPDATE nodes SET acted_ms = NULL WHERE acted_ms IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Kept:
    """The newest report of a node, what the one before left, and what is assessed of its link and cards."""

    report: NodeReported
    memory: Memory
    stored_at: datetime
    link_mbps: int | None
    card_power_w: int | None


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy the cards of a node were on a day: percent times seconds, over so many seconds."""

    node: str
    day: date
    busy_pct_s: int
    window_s: int


async def save(conn: Connection, reports: Sequence[tuple[NodeReported, datetime]]) -> None:
    """Keep each report if it is newer than the one there is; one of each node at most."""
    await conn.execute(
        _SAVE,
        [report.node for report, _ in reports],
        [report.incarnation for report, _ in reports],
        [report.counter for report, _ in reports],
        [at for _, at in reports],
        [report.model_dump_json() for report, _ in reports],
    )


async def some(conn: Connection, names: Collection[str]) -> dict[str, Kept]:
    """What is kept of the nodes called `names`."""
    return {row["node"]: _kept(row) for row in await conn.fetch(_SOME, list(names))}


def _kept(row: Row) -> Kept:
    return Kept(
        report=NodeReported.model_validate_json(row["body"]),
        memory=Memory.model_validate_json(row["memory"]),
        stored_at=row["stored_at"],
        link_mbps=row["link_mbps"],
        card_power_w=row["card_power_w"],
    )


async def remember(conn: Connection, left: Sequence[tuple[str, Memory, int | None, int | None]]) -> None:
    """Keep, for each node by name, what its report leaves for the next and what is assessed."""
    if left:
        await conn.execute(
            _REMEMBER,
            [name for name, *_ in left],
            [memory.model_dump_json() for _, memory, _, _ in left],
            [link for _, _, link, _ in left],
            [power for *_, power in left],
        )


async def add_days(conn: Connection, busy: Sequence[Busy]) -> None:
    """Add to the days of nodes; one row of each node and day at most."""
    if busy:
        await conn.execute(
            _ADD_DAYS,
            [one.node for one in busy],
            [one.day for one in busy],
            [one.busy_pct_s for one in busy],
            [one.window_s for one in busy],
        )


async def days(conn: Connection, node: str, limit: int) -> list[Busy]:
    """The newest days of a node, newest first."""
    rows = await conn.fetch(_DAYS, node, limit)
    return [Busy(node, row["day"], row["busy_pct_s"], row["window_s"]) for row in rows]


async def breaker_open(conn: Connection) -> tuple[datetime, str] | None:
    """When and why the breaker of quarantines opened; None while it is closed."""
    row = await conn.fetchrow(_BREAKER)
    return None if row is None else (row["opened_at"], row["reason"])


async def open_breaker(conn: Connection, reason: str, at: datetime) -> int:
    """Open it; returns for which time."""
    return int(await conn.fetchval(_OPEN_BREAKER, at, reason)) + 1


async def close_breaker(conn: Connection, reason: str, *, at: datetime, actor: str) -> int | None:
    """Close it; returns for which time, None when it was not open. Faults up to now no longer count toward it."""
    await conn.execute(_FORGET_FAULTS)
    return await conn.fetchval(_CLOSE_BREAKER, at, actor, reason)
