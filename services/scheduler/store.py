"""SQL of jobs, intents, datasets, and of what is told of attempts; that of nodes is in allotments.py.

Functions take the connection of the caller's transaction. Rows are locked in one order everywhere: nodes, then jobs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from contracts.base import Priority, Reason
from contracts.jobs import DatasetRef, Image, JobPhase, JobSpec, Outcome
from contracts.transfers import TransferCompleted
from libs.db import Connection, Row
from services.scheduler.core import quota
from services.scheduler.core.images import Bound
from services.scheduler.core.model import Attempt, Intent, Job, Limits, Publish
from services.scheduler.core.transitions import wake_at

MAX_SHAPES = 10_000
INTENT_KEEP_S = 8 * 24 * 3600  # longer than a submission can wait in JOBS_CMD

_ATTEMPT = TypeAdapter(Attempt)
_TENANT_LOCK = 0x0FB0
_JOB_LOCK = 0x0FB1

_SAVE_JOBS = """
    WITH given AS (SELECT * FROM jsonb_populate_recordset(NULL::jobs, $1)),
      noted AS (INSERT INTO changes (kind, id) SELECT 'job', job_id FROM given)
    INSERT INTO jobs (job_id, tenant, name, spec, body_sha256, version, phase, outcome, reason, attempt, attempts,
      failures, losses, cancel_requested, held, hold_changed_at, not_before, wake_at, progress_step, commit_ms,
      commit_rolling, trace, submitted_at, updated_at, avoid, priority_changed_at,
      damaged_at, preempted_at, leaving_for)
    SELECT job_id, tenant, name, spec, body_sha256, version, phase, outcome, reason, attempt, attempts,
      failures, losses, cancel_requested, held, hold_changed_at, not_before, wake_at, progress_step, commit_ms,
      commit_rolling, trace, submitted_at, updated_at, avoid, priority_changed_at,
      damaged_at, preempted_at, leaving_for
    FROM given
    ON CONFLICT (job_id) DO UPDATE SET version = excluded.version, phase = excluded.phase, outcome = excluded.outcome,
      reason = excluded.reason, attempt = excluded.attempt, attempts = excluded.attempts,
      failures = excluded.failures, losses = excluded.losses, cancel_requested = excluded.cancel_requested,
      held = excluded.held, hold_changed_at = excluded.hold_changed_at, not_before = excluded.not_before,
      wake_at = excluded.wake_at, progress_step = excluded.progress_step, updated_at = excluded.updated_at,
      avoid = excluded.avoid, damaged_at = excluded.damaged_at, preempted_at = excluded.preempted_at,
      leaving_for = excluded.leaving_for, saved_at = CASE WHEN jobs.attempts = excluded.attempts THEN jobs.saved_at END,
      priority_changed_at = excluded.priority_changed_at,
      spec = CASE WHEN jobs.priority_changed_at IS NOT DISTINCT FROM excluded.priority_changed_at THEN jobs.spec
        ELSE excluded.spec END
"""
_ADD_TRANSITIONS = """
    INSERT INTO transitions (job_id, version, state, attempt, reason, at)
    SELECT job_id, version, state, attempt, reason, at FROM jsonb_populate_recordset(NULL::transitions, $1)
"""
_SAVE_INTENT = """
    INSERT INTO intents (tenant, job_id, cancel_reason, held, hold_reason, hold_changed_at, updated_at, priority,
      priority_changed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (tenant, job_id) DO UPDATE SET cancel_reason = excluded.cancel_reason, held = excluded.held,
      hold_reason = excluded.hold_reason, hold_changed_at = excluded.hold_changed_at, updated_at = excluded.updated_at,
      priority = excluded.priority, priority_changed_at = excluded.priority_changed_at
"""
# One statement, so that one snapshot: a job that is placed, requeued or ended meanwhile counts once, before or after.
# Card-milliseconds of an ended holding are rounded down to whole ones, here and where they are summed.
_STANDING = """
    WITH ended AS (
      SELECT (coalesce(sum(floor(cards * share_milli * greatest(0, floor(
          extract(epoch FROM held_to - greatest(held_from, $2)) * 1000)) / 1000)), 0)
        + (SELECT coalesce(sum(card_ms), 0) FROM spent WHERE tenant = $1 AND month >= $2))::numeric(40)::text AS ms
      FROM holdings WHERE tenant = $1 AND held_to > $2 AND NOT summed),
    queued AS (
      SELECT coalesce(sum(commit_ms), 0)::text AS ms FROM jobs
      WHERE tenant = $1 AND phase <> 'finished' AND phase IN ('accepted', 'held', 'waiting')),
    live AS (
      SELECT j.job_id, j.commit_ms, j.commit_rolling, h.cards, h.held_from, h.held_to, h.share_milli
      FROM jobs j LEFT JOIN holdings h ON h.job_id = j.job_id AND h.attempt = j.attempts
      WHERE j.tenant = $1 AND j.phase <> 'finished' AND j.phase NOT IN ('accepted', 'held', 'waiting'))
    SELECT ended.ms AS ended_ms, queued.ms AS queued_ms, live.*
    FROM ended CROSS JOIN queued LEFT JOIN live ON true ORDER BY live.job_id
"""
_SUM_ENDED = """
    WITH summed AS (
      UPDATE holdings SET summed = true WHERE held_to IS NOT NULL AND NOT summed
      RETURNING tenant, date_trunc('month', held_to, 'UTC') AS month, held_from, held_to, cards, share_milli)
    INSERT INTO spent (tenant, month, card_ms)
    SELECT tenant, month, sum(floor(cards * share_milli * greatest(0, floor(
      extract(epoch FROM held_to - greatest(held_from, month)) * 1000)) / 1000))
    FROM summed GROUP BY tenant, month
    ON CONFLICT (tenant, month) DO UPDATE SET card_ms = spent.card_ms + excluded.card_ms
"""
_BIND_IMAGE = """
    INSERT INTO images (tenant, reference, code_commit, dataset_name, dataset_version, job_id, bound_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, reference) DO UPDATE SET code_commit = coalesce(images.code_commit, excluded.code_commit),
      dataset_name = coalesce(images.dataset_name, excluded.dataset_name),
      dataset_version = coalesce(images.dataset_version, excluded.dataset_version)
"""
_PROGRESS = """
    WITH locked AS (SELECT job_id FROM jobs WHERE job_id = ANY($1::text[]) ORDER BY job_id FOR UPDATE)
    UPDATE jobs SET progress_step = greatest(jobs.progress_step, seen.step)
    FROM (SELECT job_id, attempt, max(step) AS step
      FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[])
        AS points (job_id, attempt, member, node, step)
      JOIN allocations USING (job_id, attempt, member, node)
      GROUP BY job_id, attempt) AS seen, locked
    WHERE jobs.job_id = seen.job_id AND locked.job_id = seen.job_id
      AND jobs.attempts = seen.attempt AND jobs.phase <> 'finished'
      AND jobs.attempt IS NOT NULL
"""
_SAVED = """
    WITH locked AS (SELECT job_id FROM jobs WHERE job_id = ANY($1::text[]) ORDER BY job_id FOR UPDATE),
    seen AS (SELECT job_id, attempt, max(at) AS at
      FROM unnest($1::text[], $2::bigint[], $3::timestamptz[]) AS points (job_id, attempt, at)
      GROUP BY job_id, attempt),
    saved AS (UPDATE jobs SET saved_at = greatest(jobs.saved_at, seen.at) FROM seen, locked
      WHERE jobs.job_id = seen.job_id AND locked.job_id = seen.job_id AND jobs.attempts = seen.attempt
        AND jobs.phase <> 'finished' AND jobs.attempt IS NOT NULL
      RETURNING jobs.job_id)
    INSERT INTO changes (kind, id) SELECT 'job', job_id FROM saved
"""


@dataclass(frozen=True)
class Stored:
    """A job with what only its row keeps: the digest of the submitted body, the trace of its life, what it commits."""

    job: Job
    body_sha256: str
    trace: str | None
    commit_ms: int


async def load_jobs(conn: Connection, job_ids: Collection[str]) -> dict[str, Stored]:
    """Those of these jobs that there are, locked in the order of their ids until the transaction ends."""
    query = "SELECT * FROM jobs WHERE job_id = ANY($1) ORDER BY job_id FOR UPDATE"
    return {str(row["job_id"]): to_stored(row) for row in await conn.fetch(query, list(job_ids))}


async def load_job(conn: Connection, job_id: str) -> Stored | None:
    """One job, locked until the transaction ends."""
    return (await load_jobs(conn, [job_id])).get(job_id)


async def is_known(conn: Connection, job_id: str) -> bool:
    """Whether there is a job of this id."""
    return bool(await conn.fetchval("SELECT EXISTS (SELECT 1 FROM jobs WHERE job_id = $1)", job_id))


def to_stored(row: Row) -> Stored:
    """A row of `jobs`."""
    return Stored(to_job(row), str(row["body_sha256"]), row["trace"], row["commit_ms"])


def to_job(row: Row) -> Job:
    """The job of a row of `jobs`."""
    return Job(
        spec=JobSpec.model_validate_json(row["spec"]),
        version=row["version"],
        phase=JobPhase(row["phase"]),
        submitted_at=row["submitted_at"],
        updated_at=row["updated_at"],
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        reason=None if row["reason"] is None else Reason.model_validate_json(row["reason"]),
        attempt=None if row["attempt"] is None else _ATTEMPT.validate_json(row["attempt"]),
        attempts=row["attempts"],
        failures=row["failures"],
        losses=row["losses"],
        cancel_requested=row["cancel_requested"],
        held=row["held"],
        hold_changed_at=row["hold_changed_at"],
        priority_changed_at=row["priority_changed_at"],
        not_before=row["not_before"],
        progress_step=row["progress_step"],
        avoid=tuple(row["avoid"]),
        damaged_at=row["damaged_at"],
        preempted_at=row["preempted_at"],
        leaving_for=row["leaving_for"],
    )


async def insert(conn: Connection, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Run a statement that takes rows, by the names of their columns, as one JSON array; without any, nothing."""
    if rows:
        await conn.execute(query, to_json(rows).decode())


async def save_jobs(conn: Connection, jobs: Iterable[Stored], limits: Limits) -> None:
    """Write jobs, and tell the cycle that they have changed."""
    await insert(conn, _SAVE_JOBS, [_job_row(stored, limits) for stored in jobs])


def _job_row(stored: Stored, limits: Limits) -> dict[str, Any]:
    job, spec = stored.job, stored.job.spec
    return {
        "job_id": spec.job_id,
        "tenant": spec.tenant,
        "name": spec.name,
        "spec": spec,
        "body_sha256": stored.body_sha256,
        "version": job.version,
        "phase": job.phase,
        "outcome": job.outcome,
        "reason": job.reason,
        "attempt": job.attempt,
        "attempts": job.attempts,
        "failures": job.failures,
        "losses": job.losses,
        "cancel_requested": job.cancel_requested,
        "held": job.held,
        "hold_changed_at": job.hold_changed_at,
        "not_before": job.not_before,
        "wake_at": wake_at(job, limits),
        "progress_step": job.progress_step,
        "commit_ms": stored.commit_ms,
        "commit_rolling": quota.is_rolling(spec),
        "trace": stored.trace,
        "submitted_at": job.submitted_at,
        "updated_at": job.updated_at,
        "avoid": job.avoid,
        "priority_changed_at": job.priority_changed_at,
        "damaged_at": job.damaged_at,
        "preempted_at": job.preempted_at,
        "leaving_for": job.leaving_for,
    }


async def note_change(conn: Connection, kind: str, id_: str) -> None:
    """Tell the cycle which row to read again."""
    await conn.execute("INSERT INTO changes (kind, id) VALUES ($1, $2)", kind, id_)


async def add_transitions(conn: Connection, told: Iterable[Publish]) -> None:
    """Keep published transitions; the reason of one that tells of a refusal is that of the refusal."""
    rows = [
        {
            "job_id": one.job.spec.job_id,
            "version": one.job.version,
            "state": one.job.phase,
            "attempt": None if one.job.attempt is None else one.job.attempt.number,
            "reason": one.refused or one.job.reason,
            "at": one.job.updated_at,
        }
        for one in told
    ]
    await insert(conn, _ADD_TRANSITIONS, rows)


# ---- submissions -----------------------------------------------------------------------------------------------------


async def lock_tenant(conn: Connection, tenant: str) -> None:
    """Let no other submission of the tenant be judged before this transaction ends."""
    await conn.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _TENANT_LOCK, tenant)


async def lock_job_id(conn: Connection, job_id: str) -> None:
    """Let no other command about this job, there or not, be judged before this transaction ends."""
    await conn.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _JOB_LOCK, job_id)


async def load_intent(conn: Connection, tenant: str, job_id: str) -> Intent:
    """What was asked of a job that is not there yet."""
    row = await conn.fetchrow("SELECT * FROM intents WHERE tenant = $1 AND job_id = $2 FOR UPDATE", tenant, job_id)
    if row is None:
        return Intent()
    return Intent(
        row["cancel_reason"],
        row["held"],
        row["hold_reason"],
        row["hold_changed_at"],
        None if row["priority"] is None else Priority(row["priority"]),
        row["priority_changed_at"],
    )


async def save_intent(conn: Connection, tenant: str, job_id: str, intent: Intent, now: datetime) -> None:
    """Keep what was asked until the job comes."""
    await conn.execute(
        _SAVE_INTENT,
        tenant,
        job_id,
        intent.cancel_reason,
        intent.held,
        intent.hold_reason,
        intent.hold_changed_at,
        now,
        intent.priority,
        intent.priority_changed_at,
    )


async def delete_intent(conn: Connection, tenant: str, job_id: str) -> None:
    """The job has come."""
    await conn.execute("DELETE FROM intents WHERE tenant = $1 AND job_id = $2", tenant, job_id)


async def expire_intents(conn: Connection, now: datetime) -> None:
    """Forget intents whose submission can no longer come."""
    await conn.execute("DELETE FROM intents WHERE updated_at < $1", now - timedelta(seconds=INTENT_KEEP_S))


async def image_bound(conn: Connection, tenant: str, reference: str) -> Bound | None:
    """What an image reference of the tenant stands for, if a job has used it."""
    row = await conn.fetchrow("SELECT * FROM images WHERE tenant = $1 AND reference = $2", tenant, reference)
    if row is None:
        return None
    name, version = row["dataset_name"], row["dataset_version"]
    return Bound(row["job_id"], row["code_commit"], None if name is None else DatasetRef(name=name, version=version))


async def bind_image(conn: Connection, spec: JobSpec, image: Image, now: datetime) -> None:
    """Keep what the reference stands for; what an earlier job has said stays."""
    dataset = image.dataset
    said = (image.commit, dataset and dataset.name, dataset and dataset.version)
    await conn.execute(_BIND_IMAGE, spec.tenant, image.reference, *said, spec.job_id, now)


async def load_standing(conn: Connection, tenant: str, now: datetime) -> quota.Standing:
    """What counts against the tenant's GPU-hours."""
    rows = await conn.fetch(_STANDING, tenant, quota.month_start(now))
    live: dict[str, quota.Commitment] = {}
    for row in rows:
        if row["job_id"] is None:
            continue
        known = live.get(row["job_id"], quota.Commitment(row["commit_ms"], row["commit_rolling"]))
        holdings = known.holdings
        if row["held_from"] is not None:
            holdings = (*holdings, quota.Holding(row["cards"], row["held_from"], row["held_to"], row["share_milli"]))
        live[row["job_id"]] = quota.Commitment(known.commit_ms, known.rolling, holdings)
    return quota.Standing(int(rows[0]["ended_ms"]), int(rows[0]["queued_ms"]), tuple(live.values()))


async def sum_ended(conn: Connection) -> None:
    """Add what has ended to the sums of its month; what counts against tenants stays the same."""
    await conn.execute(_SUM_ENDED)


# ---- attempts -----------------------------------------------------------------------------------------------------


async def save_progress(conn: Connection, points: Iterable[tuple[str, int, int, str, int]]) -> None:
    """Raise the step of live attempts: (job, attempt, member, node, step) each; the member must be held by the node."""
    columns: Sequence[tuple[Any, ...]] = list(zip(*points, strict=True))
    if columns:
        await conn.execute(_PROGRESS, *(list(column) for column in columns))


async def save_saved(conn: Connection, points: Iterable[tuple[str, int, datetime]]) -> None:
    """Keep when the work of live attempts was last safe: (job, attempt, time) each."""
    columns: Sequence[tuple[Any, ...]] = list(zip(*points, strict=True))
    if columns:
        await conn.execute(_SAVED, *(list(column) for column in columns))


async def add_dataset(conn: Connection, done: TransferCompleted) -> None:
    """A dataset version is staged."""
    dataset = done.dataset
    await conn.execute(
        "INSERT INTO datasets (tenant, name, version) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        done.tenant,
        dataset.name,
        dataset.version,
    )
    await note_change(conn, "dataset", f"{done.tenant}/{dataset.name}/{dataset.version}")


async def due_jobs(conn: Connection, now: datetime, limit: int) -> list[str]:
    """Jobs one of whose deadlines has passed, the longest overdue first."""
    rows = await conn.fetch("SELECT job_id FROM jobs WHERE wake_at <= $1 ORDER BY wake_at LIMIT $2", now, limit)
    return [str(row["job_id"]) for row in rows]
