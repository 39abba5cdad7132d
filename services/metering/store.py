"""SQL of what comes in: placements, samples, refused rows, fences. Functions take the caller's connection."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from contracts.base import Tier
from contracts.jobs import CARD_MILLI, AttemptState, JobState, Member
from contracts.usage import UsageRow
from libs.db import Connection, Row
from services.metering.core.crowd import Span
from services.metering.core.judge import fenced, gpu_ms
from services.metering.core.model import Identity, Measured, Placement, Refused, Sample, Seat, identity

LOCK_CLASS = 0x0FA7
MIB = 1024 * 1024
LONGEST_WINDOW = "interval '1 hour'"

_ATTEMPT = """
    INSERT INTO attempts (job_id, attempt, tenant, job_name, team, labels, placed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING true
"""
_SEATS = """
    INSERT INTO seats (job_id, attempt, member, node, tier, cards, accelerator, card_memory_mib, share_milli)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING
"""
_PLACEMENTS = """
    WITH wanted AS (SELECT DISTINCT * FROM unnest($1::text[], $2::bigint[]) AS w (job_id, attempt))
    SELECT a.job_id, a.attempt, a.tenant, a.placed_at, s.member, s.node, s.tier, s.cards, s.accelerator,
      s.card_memory_mib, s.share_milli,
      (SELECT min(f.at) FROM fences f WHERE f.job_id = a.job_id AND f.attempt > a.attempt) AS fenced_at
    FROM wanted JOIN attempts a USING (job_id, attempt) JOIN seats s USING (job_id, attempt)
"""
_KEYS = """
    unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::timestamptz[], $7::timestamptz[])
      WITH ORDINALITY AS c (job_id, attempt, member, card, item, window_start, window_end, place)
"""
_OVERLAPS = f"""
    SELECT c.place FROM {_KEYS} WHERE EXISTS (
      SELECT FROM samples s
      WHERE s.job_id = c.job_id AND s.attempt = c.attempt AND s.member = c.member AND s.card = c.card
        AND s.item = c.item AND s.window_start <> c.window_start
        AND s.window_start < c.window_end AND s.window_end > c.window_start
        AND s.window_start > c.window_start - {LONGEST_WINDOW})
"""  # noqa: S608 - the parts are written above
_BESIDE = f"""
    SELECT c.place, s.window_start, s.window_end, s.share_milli
    FROM {_KEYS} JOIN unnest($8::text[]) WITH ORDINALITY AS n (node, place) USING (place)
    CROSS JOIN LATERAL (
      SELECT s.window_start, s.window_end, s.share_milli FROM samples s
      WHERE s.node = n.node AND s.card = c.card AND s.item = c.item
        AND s.window_start < c.window_end AND s.window_end > c.window_start
        AND s.window_start > c.window_start - {LONGEST_WINDOW}
        AND (s.job_id, s.attempt, s.member) <> (c.job_id, c.attempt, c.member) OFFSET 0) AS s
"""  # noqa: S608 - as above; OFFSET 0: each is looked up by the index, whatever is known of the table's size
_INSERT = """
    INSERT INTO samples (job_id, attempt, member, card, item, window_start, window_end, quantity, tenant, card_uuid,
      accelerator, share_milli, tier, node, stored_at, trace, source, message_id, place, period_s, grid_start)
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::timestamptz[],
      $7::timestamptz[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::text[], $14::text[],
      $15::timestamptz[], $16::text[], $17::text[], $18::text[], $19::bigint[], $20::bigint[], $21::timestamptz[])
"""
_STANDING = f"""
    SELECT s.* FROM {_KEYS} JOIN samples s USING (job_id, attempt, member, card, item, window_start)
"""  # noqa: S608 - as above
_REFUSE = """
    INSERT INTO refused (source, message_id, place, job_id, attempt, tenant, node, body, period_s, window_start, gpu_ms,
      fault, message, trace, stored_at)
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[],
      $8::jsonb[], $9::bigint[], $10::timestamptz[], $11::bigint[], $12::text[], $13::text[], $14::text[],
      $15::timestamptz[])
    ON CONFLICT DO NOTHING
"""
_TAKE_UNKNOWN = """
    DELETE FROM refused WHERE job_id = $1 AND attempt = $2 AND fault = 'unknown_attempt' RETURNING *
"""
_FENCE = "INSERT INTO fences (job_id, attempt, at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING true"
_TAKE_FENCED = """
    DELETE FROM samples WHERE job_id = $1 AND attempt < $2 AND window_start >= $3 AND close_id IS NULL RETURNING *
"""


async def lock(conn: Connection) -> None:
    """One transaction at a time judges or fences: what one decides, the next one sees."""
    await conn.execute("SELECT pg_advisory_xact_lock($1, hashtext('samples'))", LOCK_CLASS)


async def add_placement(conn: Connection, state: JobState, attempt: AttemptState) -> bool:
    """Keep where an attempt was placed; False when that is known already."""
    spec, key = state.spec, (state.job_id, attempt.number)
    labels = spec.model_dump_json(include={"labels"})
    if await conn.fetchval(_ATTEMPT, *key, state.tenant, spec.name, spec.team, labels, state.updated_at) is None:
        return False
    asked = spec.resources.accelerator
    await conn.executemany(_SEATS, [(*key, *_seat(member, asked)) for member in attempt.members])
    return True


def _seat(member: Member, asked: str | None) -> tuple[Any, ...]:
    memory_mib = None if member.card_memory_bytes is None else member.card_memory_bytes // MIB
    where = (member.index, member.node, member.tier.value, member.cards)
    return *where, member.accelerator or asked, memory_mib, member.share_milli or CARD_MILLI


async def placements(conn: Connection, keys: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], Placement]:
    """The placements that are known of these attempts."""
    rows = await conn.fetch(_PLACEMENTS, [job_id for job_id, _ in keys], [attempt for _, attempt in keys])
    found: dict[tuple[str, int], dict[int, Seat]] = {}
    heads: dict[tuple[str, int], tuple[str, datetime, datetime | None]] = {}
    for row in rows:
        key = (str(row["job_id"]), int(row["attempt"]))
        heads[key] = (row["tenant"], row["placed_at"], row["fenced_at"])
        found.setdefault(key, {})[row["member"]] = _to_seat(row)
    return {key: Placement(heads[key][0], seats, *heads[key][1:]) for key, seats in found.items()}


def _to_seat(row: Row) -> Seat:
    cards, tier = frozenset[int](row["cards"]), Tier(row["tier"])
    return Seat(row["node"], tier, cards, row["accelerator"], row["card_memory_mib"], row["share_milli"])


async def overlaps(conn: Connection, samples: Sequence[Sample]) -> set[int]:
    """Places of the samples whose window overlaps another one that is stored."""
    rows = await conn.fetch(_OVERLAPS, *_columns([_key(sample.measured.row) for sample in samples], 7))
    return {int(row["place"]) - 1 for row in rows}


async def beside(conn: Connection, samples: Sequence[Sample]) -> dict[int, list[Span]]:
    """What is stored of the same cards by other attempts, by the place of the sample that it overlaps."""
    nodes = [sample.measured.node for sample in samples]
    keys = _columns([_key(sample.measured.row) for sample in samples], 7)
    found: dict[int, list[Span]] = {}
    for row in await conn.fetch(_BESIDE, *keys, nodes):
        span = Span(row["window_start"], row["window_end"], row["share_milli"])
        found.setdefault(row["place"] - 1, []).append(span)
    return found


async def insert(conn: Connection, samples: Iterable[Sample]) -> None:
    """Store samples that are new; one that is not breaks the primary key, and the transaction with it."""
    await conn.execute(_INSERT, *_columns([_values(sample) for sample in samples], 21))


async def standing(conn: Connection, rows: Sequence[UsageRow]) -> dict[Identity, UsageRow]:
    """The stored rows of these identities."""
    found = await conn.fetch(_STANDING, *_columns([_key(row) for row in rows], 7))
    known = [to_row(row) for row in found]
    return {identity(row): row for row in known}


async def refuse(conn: Connection, refused: Iterable[Refused]) -> None:
    """Keep rows that are not billed; the same row again is the same."""
    await conn.execute(_REFUSE, *_columns([_refusal(one) for one in refused], 15))


async def take_unknown(conn: Connection, job_id: str, attempt: int) -> list[Measured]:
    """Rows that waited for this placement, in the order they came; they are judged anew."""
    rows = await conn.fetch(_TAKE_UNKNOWN, job_id, attempt)
    rows.sort(key=lambda row: row["number"])
    return [_measured(row, UsageRow.model_validate_json(row["body"]), row["window_start"]) for row in rows]


async def fence(conn: Connection, job_id: str, attempt: int, at: datetime) -> None:
    """Attempts before `attempt` are billed up to `at`; what is in a closing already stays there."""
    if await conn.fetchval(_FENCE, job_id, attempt, at) is not None:
        rows = await conn.fetch(_TAKE_FENCED, job_id, attempt, at)
        await refuse(conn, [fenced(_measured(row, to_row(row), row["grid_start"]), at) for row in rows])


def to_row(row: Row) -> UsageRow:
    """A stored sample as it was measured."""
    return UsageRow.model_validate({name: row[name] for name in UsageRow.model_fields})


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def _key(row: UsageRow) -> tuple[Any, ...]:
    return row.job_id, row.attempt, row.member, row.card, str(row.item), row.window_start, row.window_end


def _values(sample: Sample) -> tuple[Any, ...]:
    measured, row = sample.measured, sample.measured.row
    facts = (row.quantity, row.tenant, row.card_uuid, row.accelerator, row.share_milli, sample.tier.value)
    origin = (measured.source, measured.message_id, measured.place, measured.period_s, measured.window_start)
    return *_key(row), *facts, measured.node, measured.stored_at, measured.trace, *origin


def _refusal(refused: Refused) -> tuple[Any, ...]:
    one, row = refused.measured, refused.measured.row
    whose = (one.source, one.message_id, one.place, row.job_id, row.attempt, row.tenant, one.node)
    told = (row.model_dump_json(), one.period_s, one.window_start, gpu_ms(row), refused.fault.value, refused.message)
    return *whose, *told, one.trace, one.stored_at


def _measured(row: Row, usage: UsageRow, grid_start: datetime) -> Measured:
    return Measured(
        row=usage,
        source=row["source"],
        message_id=row["message_id"],
        place=row["place"],
        node=row["node"],
        period_s=row["period_s"],
        window_start=grid_start,
        stored_at=row["stored_at"],
        trace=row["trace"],
    )
