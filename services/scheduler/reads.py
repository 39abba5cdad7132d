"""What the scheduler answers when asked: pages of jobs, and one job with the way it came."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from contracts.base import MAX_REPLY_BYTES, Model, Reason
from contracts.jobs import JobPhase, JobState
from contracts.registry import NO_KEY
from contracts.requests import JobQuery, JobReply, JobsPage, JobsQuery, ProblemCode, Transition
from libs.bus import Problem
from libs.db import Connection, Row
from services.scheduler import store
from services.scheduler.core.model import Job
from services.scheduler.effects import to_state

M = TypeVar("M", bound=Model)

MAX_TRANSITIONS = 500
REPLY_BUDGET_BYTES = MAX_REPLY_BYTES - 64 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_PAGE = """
    SELECT * FROM jobs
    WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR phase = $2)
      AND ($3::timestamptz IS NULL OR (submitted_at, job_id) < ($3, $4))
    ORDER BY submitted_at DESC, job_id DESC LIMIT $5
"""
_BY_ID = "SELECT * FROM jobs WHERE ($1::text IS NULL OR tenant = $1) AND job_id = $2"
_BY_NAME = """
    SELECT * FROM jobs WHERE ($1::text IS NULL OR tenant = $1) AND name = $2
    ORDER BY phase <> 'finished' DESC, submitted_at DESC LIMIT 1
"""
_OTHERS = """
    SELECT count(*) FROM jobs
    WHERE ($1::text IS NULL OR tenant = $1) AND name = $2 AND phase <> 'finished' AND job_id <> $3
"""
_BY_PREFIX = """
    SELECT * FROM jobs WHERE ($1::text IS NULL OR tenant = $1) AND starts_with(job_id, $2) ORDER BY job_id LIMIT 2
"""
_TRANSITIONS = """
    SELECT version, state, attempt, reason, at FROM transitions WHERE job_id = $1 ORDER BY version DESC LIMIT $2
"""


async def page_of_jobs(conn: Connection, key: str, query: JobsQuery) -> JobsPage:
    """Jobs of the tenant `key` (`_`: of all), newest first. Raises Problem for a cursor that is none of ours."""
    at, job_id = _parse_cursor(query.cursor)
    phase = None if query.state is None else query.state.value
    rows = await conn.fetch(_PAGE, _tenant(key), phase, at, job_id, query.limit + 1)
    jobs = [to_state(store.to_job(row)) for row in rows[: query.limit]]
    fitting = fit(jobs, REPLY_BUDGET_BYTES) or jobs[:1]
    more = len(rows) > len(fitting)
    return JobsPage(jobs=fitting, cursor=_cursor(fitting[-1]) if more else None)


async def one_job(conn: Connection, key: str, query: JobQuery) -> JobReply:
    """One job by id, by name (the newest live one, else the newest) or by a unique prefix of its id; else a Problem."""
    row = await _find(conn, _tenant(key), query.job)
    job = to_state(store.to_job(row))
    rows = await conn.fetch(_TRANSITIONS, job.job_id, MAX_TRANSITIONS)
    transitions = [_transition(entry) for entry in rows]
    budget = REPLY_BUDGET_BYTES - len(job.model_dump_json())
    others = 0
    if job.spec.name == query.job != job.job_id:
        others = await conn.fetchval(_OTHERS, _tenant(key), job.spec.name, job.job_id)
    return JobReply(job=job, transitions=list(reversed(fit(transitions, budget))), others=others)


async def find_job(conn: Connection, key: str, wanted: str) -> Job:
    """One job, found as `one_job` finds it."""
    return store.to_job(await _find(conn, _tenant(key), wanted))


async def _find(conn: Connection, tenant: str | None, wanted: str) -> Row:
    for query in (_BY_ID, _BY_NAME):
        row = await conn.fetchrow(query, tenant, wanted)
        if row is not None:
            return row
    rows = await conn.fetch(_BY_PREFIX, tenant, wanted)
    if len(rows) > 1:
        msg = f"job {wanted!r} is the beginning of several ids: give more of it"
        raise Problem(ProblemCode.INVALID, msg)
    if not rows:
        whose = f"tenant {tenant} has" if tenant else "there is"
        msg = f"{whose} no job with the id, the name or the beginning of an id {wanted!r}: see `farside job list`"
        raise Problem(ProblemCode.NOT_FOUND, msg)
    return rows[0]


def fit(items: Sequence[M], budget_bytes: int) -> list[M]:
    """The first of `items` whose JSON fits the budget together."""
    taken: list[M] = []
    left = budget_bytes
    for item in items:
        left -= len(item.model_dump_json().encode()) + 1
        if left < 0:
            break
        taken.append(item)
    return taken


def _tenant(key: str) -> str | None:
    return None if key == NO_KEY else key


def _transition(row: Row) -> Transition:
    return Transition(
        version=row["version"],
        state=JobPhase(row["state"]),
        attempt=row["attempt"],
        reason=None if row["reason"] is None else Reason.model_validate_json(row["reason"]),
        at=row["at"],
    )


def _cursor(job: JobState) -> str:
    return f"{(job.submitted_at - _EPOCH) // timedelta(microseconds=1)}:{job.job_id}"


def _parse_cursor(cursor: str | None) -> tuple[datetime | None, str | None]:
    if cursor is None:
        return None, None
    micros, _, job_id = cursor.partition(":")
    try:
        return _EPOCH + timedelta(microseconds=int(micros)), job_id
    except (ValueError, OverflowError) as error:
        msg = f"cursor {cursor!r} is not one this service gave out: send the cursor of the last page, or none"
        raise Problem(ProblemCode.INVALID, msg) from error
