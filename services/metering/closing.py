"""SQL of closings and roll-ups: what is in one is settled as it is opened, so that no two share a sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from contracts.requests import ProblemCode
from contracts.usage import CloseReply, RollUpEntry, UsageRolledUp, UsageRow
from libs.bus import Problem
from libs.db import Connection, Row
from libs.telemetry.context import Trace
from services.metering.core.periods import period_start
from services.metering.core.rollup import Planned, Share
from services.metering.store import LOCK_CLASS, to_row

OPEN_LIMIT = 100
LONG_S = 600.0  # for statements about all samples of a closing

_LAST = "SELECT max(number) AS number, max(period_end) AS period_end FROM closes WHERE tenant = $1"
_FIRST_SAMPLE = "SELECT min(window_start) FROM samples WHERE close_id = $1"
_TAKE = """
    UPDATE samples SET close_id = $1
    WHERE tenant = $2 AND close_id IS NULL AND stored_at <= $3 AND window_start < $4
"""
_OPEN = """
    INSERT INTO closes (close_id, tenant, number, period_start, period_end, cutoff, samples, state, actor, trace_life,
      trace_hop)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'open', $8, $9, $10)
"""
_OPENED = "SELECT * FROM closes WHERE state <> 'done' ORDER BY cutoff, close_id LIMIT $1"
_SHARES = """
    SELECT date_trunc('hour', window_start, 'UTC') AS hour, job_id, accelerator, tier,
      count(DISTINCT item) AS entries, count(*) AS samples
    FROM samples WHERE close_id = $1 GROUP BY 1, 2, 3, 4
"""
_ADD_ROLLUP = """
    INSERT INTO rollups (rollup_id, close_id, tenant, hour, number, samples)
    SELECT $1, $2, $3, $4::timestamptz, count(*) + 1, $5 FROM rollups WHERE tenant = $3 AND hour = $4
"""
_ASSIGN = """
    UPDATE samples SET rollup_id = $1
    WHERE close_id = $2 AND window_start >= $3 AND window_start < $3::timestamptz + interval '1 hour'
      AND (job_id, accelerator, tier) IN (SELECT * FROM unnest($4::text[], $5::text[], $6::text[]))
"""
_UNWRITTEN = "SELECT rollup_id, hour, number FROM rollups WHERE close_id = $1 AND body IS NULL ORDER BY rollup_id"
_ROWS = """
    SELECT * FROM samples WHERE rollup_id = $1 ORDER BY job_id, attempt, member, card, item, window_start
"""
_ENTRIES = """
    SELECT s.job_id, a.job_name, a.team, s.item, s.accelerator, s.tier, sum(s.quantity)::bigint AS quantity,
      count(*) AS samples
    FROM samples s JOIN attempts a USING (job_id, attempt) WHERE s.rollup_id = $1
    GROUP BY s.job_id, a.job_name, a.team, s.item, s.accelerator, s.tier
    ORDER BY s.job_id, s.item, s.accelerator, s.tier
"""
_WRITTEN = "UPDATE rollups SET body = $2 WHERE rollup_id = $1"
_BODIES = "SELECT body FROM rollups WHERE close_id = $1 ORDER BY rollup_id"
_TRACES = """
    SELECT DISTINCT trace FROM (
      SELECT trace FROM samples WHERE close_id = $1 AND trace IS NOT NULL LIMIT 10000) AS taken
    LIMIT $2
"""
_TENANT_DUE = """
    WITH RECURSIVE unclosed AS (
      (SELECT tenant FROM samples WHERE close_id IS NULL ORDER BY tenant LIMIT 1)
      UNION ALL
      SELECT (SELECT s.tenant FROM samples s WHERE s.close_id IS NULL AND s.tenant > u.tenant ORDER BY s.tenant LIMIT 1)
      FROM unclosed u WHERE u.tenant IS NOT NULL)
    SELECT u.tenant FROM unclosed u
    WHERE EXISTS (SELECT FROM samples s WHERE s.tenant = u.tenant AND s.close_id IS NULL AND s.window_start < $1)
      AND NOT EXISTS (SELECT FROM closes c WHERE c.tenant = u.tenant AND c.period_end >= $1) LIMIT 1
"""  # from tenant to tenant by the index: it is asked every round, beside a month of samples


@dataclass(frozen=True)
class Close:
    """A closing that is under way."""

    close_id: str
    tenant: str
    number: int
    period_start: datetime
    period_end: datetime
    cutoff: datetime
    samples: int
    state: str
    actor: str
    trace: Trace | None


@dataclass(frozen=True)
class Unwritten:
    """A roll-up without its extract."""

    rollup_id: str
    hour: datetime
    number: int


async def lock(conn: Connection) -> None:
    """One transaction at a time opens a closing; samples come and are fenced meanwhile, however long it takes."""
    await conn.execute("SELECT pg_advisory_xact_lock($1, hashtext('closings'))", LOCK_CLASS)


async def open_now(
    conn: Connection, tenant: str, close_id: str, now: datetime, actor: str, trace: Trace | None
) -> CloseReply:
    """Open a closing of everything that is stored, or return the one of this id. Call it with the lock held."""
    known = await conn.fetchrow("SELECT * FROM closes WHERE close_id = $1", close_id)
    if known is None:
        await open_close(conn, tenant, close_id, now, now, actor, trace)
        known = await conn.fetchrow("SELECT * FROM closes WHERE close_id = $1", close_id)
    assert known is not None, "it was just written"
    if known["tenant"] != tenant:
        msg = f"closing {close_id} is of tenant {known['tenant']}, not of {tenant}: choose a new close_id"
        raise Problem(ProblemCode.INVALID, msg)
    return CloseReply.model_validate({name: known[name] for name in CloseReply.model_fields})


async def open_close(
    conn: Connection,
    tenant: str,
    close_id: str,
    period_end: datetime,
    now: datetime,
    actor: str,
    trace: Trace | None,
) -> None:
    """Open a closing that ends at `period_end`, and give it its samples. Call it with the lock held."""
    last = await conn.fetchrow(_LAST, tenant)
    number, last_end = (0, None) if last is None else (last["number"] or 0, last["period_end"])
    done = await conn.execute(_TAKE, close_id, tenant, now, period_end, timeout=LONG_S)
    samples = int(done.rpartition(" ")[2])
    begin = period_start(last_end, await conn.fetchval(_FIRST_SAMPLE, close_id), period_end)
    end = max(begin, period_end)
    origin = (actor, None, None) if trace is None else (actor, trace.life, trace.hop)
    await conn.execute(_OPEN, close_id, tenant, number + 1, begin, end, now, samples, *origin)


async def opened(conn: Connection) -> list[Close]:
    """Closings that are not done, oldest first."""
    return [_close(row) for row in await conn.fetch(_OPENED, OPEN_LIMIT)]


async def shares(conn: Connection, close_id: str) -> list[Share]:
    """What each job has in each hour of a closing, by kind of card."""
    return [Share(**row) for row in await conn.fetch(_SHARES, close_id, timeout=LONG_S)]


async def add_rollups(conn: Connection, close: Close, planned: Sequence[Planned]) -> None:
    """Write roll-ups down and give each its samples; the closing is planned then."""
    for one in planned:
        await conn.execute(_ADD_ROLLUP, one.rollup_id, close.close_id, close.tenant, one.hour, one.samples)
        kinds = [[share.job_id, share.accelerator, share.tier] for share in one.shares]
        columns = [list(column) for column in zip(*kinds, strict=True)]
        await conn.execute(_ASSIGN, one.rollup_id, close.close_id, one.hour, *columns, timeout=LONG_S)
    await conn.execute("UPDATE closes SET state = 'planned' WHERE close_id = $1", close.close_id)


async def unwritten(conn: Connection, close_id: str) -> list[Unwritten]:
    """Roll-ups that have no extract yet."""
    return [Unwritten(row["rollup_id"], row["hour"], row["number"]) for row in await conn.fetch(_UNWRITTEN, close_id)]


async def rows_of(conn: Connection, rollup_id: str) -> list[UsageRow]:
    """The samples of a roll-up in the order of their identities."""
    return [to_row(row) for row in await conn.fetch(_ROWS, rollup_id)]


async def entries_of(conn: Connection, rollup_id: str) -> list[RollUpEntry]:
    """The sums of a roll-up."""
    rows = await conn.fetch(_ENTRIES, rollup_id)
    return [RollUpEntry.model_validate(dict(row)) for row in rows]


async def written(conn: Connection, body: UsageRolledUp) -> None:
    """The extract of a roll-up stands."""
    await conn.execute(_WRITTEN, body.rollup_id, body.model_dump_json())


async def bodies(conn: Connection, close_id: str) -> list[UsageRolledUp]:
    """The roll-ups of a closing, all written."""
    return [UsageRolledUp.model_validate_json(row["body"]) for row in await conn.fetch(_BODIES, close_id)]


async def traces(conn: Connection, close_id: str, limit: int) -> list[str]:
    """Some of the messages whose samples are in a closing, by their traceparents."""
    return [str(row["trace"]) for row in await conn.fetch(_TRACES, close_id, limit)]


async def finish(conn: Connection, close_id: str) -> bool:
    """The closing is done; False when it was."""
    query = "UPDATE closes SET state = 'done' WHERE close_id = $1 AND state = 'planned' RETURNING true"
    return await conn.fetchval(query, close_id) is not None


async def tenant_due(conn: Connection, month_end: datetime) -> str | None:
    """A tenant with usage before `month_end` whose last closing does not reach it, if there is one."""
    return await conn.fetchval(_TENANT_DUE, month_end)


def _close(row: Row) -> Close:
    trace = None if row["trace_life"] is None else Trace(row["trace_life"], row["trace_hop"])
    facts = {name: row[name] for name in Close.__dataclass_fields__ if name != "trace"}
    return Close(**facts, trace=trace)
