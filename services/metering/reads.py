"""What metering answers when asked: usage by attempt, raw samples, refused rows, roll-ups. All paged."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from contracts.base import INT64_MAX, MAX_REPLY_BYTES, Model
from contracts.registry import NO_KEY
from contracts.requests import ProblemCode
from contracts.usage import (
    AttemptUsage,
    RefusedPage,
    RefusedQuery,
    RefusedRow,
    RollUpsPage,
    RollUpsQuery,
    SampleOrigin,
    SamplesPage,
    SamplesQuery,
    Unbilled,
    UsagePage,
    UsageQuery,
    UsageRolledUp,
    UsageRow,
)
from libs.bus import Call, Problem, Tx
from libs.db import Connection, Row
from services.metering.core.judge import EPOCH, MS
from services.metering.store import to_row

M = TypeVar("M", bound=Model)

REPLY_BUDGET_BYTES = MAX_REPLY_BYTES - 16 * 1024
ROLLUPS_LIMIT = 100
KEY_PARTS = 6

_ATTEMPTS = """
    WITH known AS (
      SELECT job_id, attempt, tenant, job_name, team FROM attempts
      UNION ALL
      (SELECT DISTINCT ON (r.job_id, r.attempt) r.job_id, r.attempt, r.tenant, NULL, NULL FROM refused r
      WHERE ($1::text IS NULL OR r.tenant = $1)
        AND NOT EXISTS (SELECT FROM attempts a WHERE (a.job_id, a.attempt) = (r.job_id, r.attempt))
      ORDER BY r.job_id, r.attempt, r.number))
    SELECT * FROM known
    WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR job_id = $2)
      AND ($3::text IS NULL OR (job_id, attempt) < ($3, $4::bigint))
    ORDER BY job_id DESC, attempt DESC LIMIT $5
"""
_SUMS = """
    SELECT count(DISTINCT grid_start) AS windows, count(*) AS samples, count(close_id) AS closed_samples,
      coalesce(sum(quantity) FILTER (WHERE item = 'gpu_ms'), 0)::bigint AS gpu_ms,
      coalesce(sum(quantity) FILTER (WHERE item = 'gpu_memory_mib_ms'), 0)::bigint AS gpu_memory_mib_ms,
      min(window_start) AS first_window, max(window_start) AS last_window
    FROM samples WHERE job_id = $1 AND attempt = $2
"""
_UNBILLED = """
    SELECT fault, count(*) AS samples, least(sum(gpu_ms), 9223372036854775807)::bigint AS gpu_ms FROM refused
    WHERE job_id = $1 AND attempt = $2 GROUP BY fault ORDER BY fault
"""
_HELD = """
    SELECT sum(h.cards * (h.share_milli
        * (extract(epoch FROM coalesce(h.held_to, greatest(a.asked_at, h.held_from)) - h.held_from) * 1000)::bigint
        / 1000))::bigint AS held,
      bool_or(h.held_to IS NULL) AS holding, max(a.asked_at) FILTER (WHERE h.held_to IS NULL) AS held_as_of
    FROM holdings h JOIN attempts a USING (job_id, attempt) WHERE h.job_id = $1 AND h.attempt = $2
"""
_SAMPLES = """
    SELECT * FROM samples
    WHERE ($1::text IS NULL OR tenant = $1)
      AND ($2::text IS NULL OR rollup_id = $2) AND ($3::text IS NULL OR job_id = $3)
      AND ($4::text IS NULL
        OR (job_id, attempt, member, card, item, window_start) > ($4, $5::bigint, $6::bigint, $7::bigint, $8::text,
          $9::timestamptz))
    ORDER BY job_id, attempt, member, card, item, window_start LIMIT $10
"""
_REFUSED = """
    SELECT number, node, body, fault, message, stored_at FROM refused
    WHERE ($1::text IS NULL OR tenant = $1) AND ($2::bigint IS NULL OR number < $2) ORDER BY number DESC LIMIT $3
"""
_ROLLUPS = """
    SELECT body FROM rollups
    WHERE close_id = $1 AND ($2::text IS NULL OR tenant = $2) AND rollup_id > $3 AND body IS NOT NULL
    ORDER BY rollup_id LIMIT $4
"""


async def usage(tx: Tx[Connection], call: Call[UsageQuery]) -> UsagePage:
    """Usage by attempt, newest first."""
    query = call.body
    job_id, attempt = _after(query.cursor)
    rows = await tx.conn.fetch(_ATTEMPTS, _tenant(call.key), query.job_id, job_id, attempt, query.limit + 1)
    found = [await _usage(tx.conn, row) for row in rows[: query.limit]]
    last = found[-1] if len(rows) > query.limit else None
    return UsagePage(attempts=found, cursor=None if last is None else f"{last.job_id}/{last.attempt}")


async def samples(tx: Tx[Connection], call: Call[SamplesQuery]) -> SamplesPage:
    """Raw samples of a roll-up or a job."""
    query = call.body
    if (query.rollup_id is None) == (query.job_id is None):
        raise Problem(ProblemCode.INVALID, "samples are those of one roll-up or of one job: name rollup_id or job_id")
    after = _key_of(query.cursor)
    rows = await tx.conn.fetch(_SAMPLES, _tenant(call.key), query.rollup_id, query.job_id, *after, query.limit + 1)
    pages = _fitting([SamplesPage(rows=[to_row(row)], origins=[_origin(row)]) for row in rows[: query.limit]])
    found = [row for page in pages for row in page.rows]
    origins = [origin for page in pages for origin in page.origins]
    return SamplesPage(rows=found, origins=origins, cursor=_cursor(found[-1]) if len(found) < len(rows) else None)


async def refused(tx: Tx[Connection], call: Call[RefusedQuery]) -> RefusedPage:
    """Rows that are kept and not billed, newest first."""
    query = call.body
    before = None if query.cursor is None else _number(query.cursor)
    rows = await tx.conn.fetch(_REFUSED, _tenant(call.key), before, query.limit + 1)
    found = _fitting([_refused(row) for row in rows[: query.limit]])
    more = len(found) < len(rows)
    return RefusedPage(rows=found, cursor=str(rows[len(found) - 1]["number"]) if more else None)


async def rollups(tx: Tx[Connection], call: Call[RollUpsQuery]) -> RollUpsPage:
    """The roll-ups of a closing in the order of their ids, as many as fit; at least one."""
    query = call.body
    rows = await tx.conn.fetch(_ROLLUPS, query.close_id, _tenant(call.key), query.cursor or "", ROLLUPS_LIMIT + 1)
    bodies = [UsageRolledUp.model_validate_json(row["body"]) for row in rows[:ROLLUPS_LIMIT]]
    found = _fitting(bodies)
    return RollUpsPage(rollups=found, cursor=found[-1].rollup_id if len(found) < len(rows) else None)


async def _usage(conn: Connection, row: Row) -> AttemptUsage:
    key = (row["job_id"], row["attempt"])
    sums, held = await conn.fetchrow(_SUMS, *key), await conn.fetchrow(_HELD, *key)
    assert sums is not None, "an aggregate has one row"
    assert held is not None, "an aggregate has one row"
    unbilled = [Unbilled.model_validate(dict(one)) for one in await conn.fetch(_UNBILLED, *key)]
    counted = dict(sums)
    return AttemptUsage(
        job_id=row["job_id"],
        job_name=row["job_name"],
        tenant=row["tenant"],
        team=row["team"],
        attempt=row["attempt"],
        unbilled=unbilled,
        held_gpu_ms=held["held"],
        holding=bool(held["holding"]),
        held_as_of=held["held_as_of"],
        difference_gpu_ms=None if held["held"] is None else sums["gpu_ms"] - held["held"],
        **counted,
    )


def _origin(row: Row) -> SampleOrigin:
    return SampleOrigin(node=row["node"], tier=row["tier"], close_id=row["close_id"])


def _refused(row: Row) -> RefusedRow:
    return RefusedRow(
        node=row["node"],
        row=UsageRow.model_validate_json(row["body"]),
        fault=row["fault"],
        message=row["message"],
        stored_at=row["stored_at"],
    )


def _tenant(key: str) -> str | None:
    return None if key == NO_KEY else key


def _after(cursor: str | None) -> tuple[str | None, int | None]:
    if cursor is None:
        return None, None
    job_id, _, attempt = cursor.partition("/")
    return job_id, _number(attempt)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > len(str(INT64_MAX)) or int(text) > INT64_MAX:
        msg = f"cursor part {text!r} is no number: pass the cursor of the page before, or none"
        raise Problem(ProblemCode.INVALID, msg)
    return int(text)


def _cursor(row: UsageRow) -> str:
    start_ms = (row.window_start - EPOCH) // MS
    return f"{row.job_id}/{row.attempt}/{row.member}/{row.card}/{row.item}/{start_ms}"


def _key_of(cursor: str | None) -> tuple[str | int | datetime | None, ...]:
    if cursor is None:
        return (None,) * KEY_PARTS
    parts = cursor.split("/")
    if len(parts) != KEY_PARTS:
        msg = f"cursor is {cursor!r}: pass the cursor of the page before, or none"
        raise Problem(ProblemCode.INVALID, msg)
    job_id, attempt, member, card, item, start_ms = parts
    return job_id, _number(attempt), _number(member), _number(card), item, _moment(start_ms)


def _moment(text: str) -> datetime:
    try:
        return EPOCH + timedelta(milliseconds=_number(text))
    except OverflowError:
        msg = f"cursor part {text!r} is no time: pass the cursor of the page before, or none"
        raise Problem(ProblemCode.INVALID, msg) from None


def _fitting(found: Sequence[M]) -> list[M]:
    """The first of `found` that fit into a reply, at least one."""
    size_bytes, fitting = 0, 0
    for one in found:
        size_bytes += len(one.model_dump_json().encode()) + 1
        if size_bytes > REPLY_BUDGET_BYTES and fitting:
            break
        fitting += 1
    return list(found[:fitting])
