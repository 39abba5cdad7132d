"""All SQL of the checkpoint service. Functions take the connection of the caller's transaction.

Every decision about a job is made with the job's row locked, so saves, restores and retention of one job never cross.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from contracts.attempts import Binding, Shard
from contracts.jobs import AttemptState
from libs.db import Connection, Row
from libs.telemetry.context import Trace
from services.checkpoint.core.model import Checkpoint, Grant, Job, Phase
from services.checkpoint.core.saving import Known

SNAPSHOT_LIMIT = 10_000

_JOB = "SELECT job_id, tenant, fence, finished_at IS NOT NULL AS finished FROM jobs WHERE job_id = $1"
_ADD_JOB = "INSERT INTO jobs (job_id, tenant) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_RAISE_FENCE = "UPDATE jobs SET fence = $2, sweep_at = $3 WHERE job_id = $1 AND fence < $2"
_FINISH = "UPDATE jobs SET finished_at = coalesce(finished_at, $2), sweep_at = $3 WHERE job_id = $1"
_BUMP = "UPDATE jobs SET version = version + 1 WHERE job_id = $1 RETURNING version"
_COLUMNS = "job_id, tenant, attempt, step, phase, members, binding, keep_last, begun_at, decided_at"
_CHECKPOINT = f"SELECT {_COLUMNS} FROM checkpoints WHERE job_id = $1 AND attempt = $2 AND step = $3"  # noqa: S608 - names
_LIVE = f"""
    SELECT {_COLUMNS} FROM checkpoints WHERE job_id = $1 AND phase = ANY($2::text[])
    ORDER BY attempt DESC, step DESC LIMIT {SNAPSHOT_LIMIT}
"""  # noqa: S608 - column names and a number from above
_SHARDS = """
    SELECT attempt, step, member, uri, sha256, size_bytes FROM shards
    WHERE job_id = $1 AND (attempt, step) IN (SELECT * FROM unnest($2::bigint[], $3::bigint[]))
    ORDER BY attempt, step, member
"""
_REPORTED = "SELECT count(*) FROM shards WHERE job_id = $1 AND attempt = $2 AND step = $3"
_OWN = """
    SELECT member, uri, sha256, size_bytes FROM shards
    WHERE job_id = $1 AND attempt = $2 AND step = $3 AND member = $4
"""
_SAVE = """
    INSERT INTO checkpoints (job_id, attempt, step, tenant, phase, members, binding, keep_last, begun_at, decided_at,
      cause, message, due_at, actor, trace_life, trace_hop)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
    ON CONFLICT (job_id, attempt, step) DO UPDATE SET phase = excluded.phase, decided_at = excluded.decided_at,
      cause = excluded.cause, message = excluded.message, due_at = excluded.due_at, tries = 0, failing_since = NULL,
      actor = excluded.actor, trace_life = excluded.trace_life, trace_hop = excluded.trace_hop
"""
_MOVE = """
    UPDATE checkpoints SET phase = $4, cause = $5, message = $6, due_at = $7, tries = 0, failing_since = NULL
    WHERE job_id = $1 AND attempt = $2 AND step = $3 AND phase = $8 RETURNING true
"""
_ADD_SHARD = """
    INSERT INTO shards (job_id, attempt, step, member, uri, sha256, size_bytes) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_DUE = """
    SELECT job_id, attempt, step, actor, trace_life, trace_hop FROM checkpoints
    WHERE due_at <= $1 ORDER BY due_at LIMIT $2
"""
_CAUSE = "SELECT job_id, attempt, step, actor, trace_life, trace_hop FROM checkpoints WHERE job_id = $1"
_SETTLE = "UPDATE checkpoints SET due_at = NULL WHERE job_id = $1 AND attempt = $2 AND step = $3"
_POSTPONE = """
    UPDATE checkpoints SET due_at = $4, tries = tries + 1, failing_since = coalesce(failing_since, $5), message = $6
    WHERE job_id = $1 AND attempt = $2 AND step = $3 RETURNING failing_since, alerted
"""
_TRIES = "SELECT tries FROM checkpoints WHERE job_id = $1 AND attempt = $2 AND step = $3"
_ALERTED = "UPDATE checkpoints SET alerted = true WHERE job_id = $1 AND attempt = $2 AND step = $3"
_ADD_GRANT = "INSERT INTO grants (job_id, attempt, step, from_attempt, granted_at) VALUES ($1, $2, $3, $4, $5)"
_NOTE_UNSAVED = """
    INSERT INTO unsaved (job_id, attempt, step, told_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING true
"""
_ADD_HOLDERS = """
    INSERT INTO holders (job_id, attempt, member, node)
    SELECT $1, $2, * FROM unnest($3::bigint[], $4::text[]) ON CONFLICT DO NOTHING
"""
_HOLDERS = "SELECT member, node FROM holders WHERE job_id = $1 AND attempt = $2 AND member IN (0, $3)"
_SWEEPS = "SELECT job_id FROM jobs WHERE sweep_at <= $1 ORDER BY sweep_at LIMIT $2"


@dataclass(frozen=True)
class Origin:
    """Who and what caused a save; what follows from it is told in its name and its trace."""

    actor: str
    trace: Trace | None


@dataclass(frozen=True)
class Due:
    """A checkpoint with work to be done in the store."""

    job_id: str
    attempt: int
    step: int
    origin: Origin


@dataclass(frozen=True)
class Snapshot:
    """All of a job that decisions need. Checkpoints that failed or expired are left out; the others carry shards."""

    job: Job
    checkpoints: tuple[Checkpoint, ...]
    grants: tuple[Grant, ...]

    def granted(self, attempt: int) -> Grant | None:
        """What an attempt was granted."""
        return next((one for one in self.grants if one.attempt == attempt), None)

    def find(self, attempt: int | None, step: int | None) -> Checkpoint | None:
        """One of its checkpoints."""
        return next((one for one in self.checkpoints if one.place == (attempt, step)), None)


_LIVE_PHASES = [phase.value for phase in Phase if phase not in {Phase.FAILED, Phase.EXPIRED}]


async def lock_job(conn: Connection, job_id: str, tenant: str) -> Job:
    """The job, made when it is new, locked until the transaction ends."""
    await conn.execute(_ADD_JOB, job_id, tenant)
    row = await conn.fetchrow(f"{_JOB} FOR UPDATE", job_id)
    assert row is not None
    return _to_job(row)


async def find_job(conn: Connection, job_id: str) -> Job | None:
    """The job as it is now, not locked."""
    row = await conn.fetchrow(_JOB, job_id)
    return None if row is None else _to_job(row)


async def raise_fence(conn: Connection, job_id: str, fence: int, sweep_at: datetime) -> None:
    """From now on attempts below `fence` commit nothing. Never lowers it."""
    await conn.execute(_RAISE_FENCE, job_id, fence, sweep_at)


async def finish_job(conn: Connection, job_id: str, at: datetime, sweep_at: datetime) -> None:
    """No attempt of this job will come any more."""
    await conn.execute(_FINISH, job_id, at, sweep_at)


async def next_version(conn: Connection, job_id: str) -> int:
    """The sequence of the next event about this job."""
    return int(await conn.fetchval(_BUMP, job_id))


async def load_checkpoint(conn: Connection, job_id: str, attempt: int, step: int) -> Checkpoint | None:
    """One checkpoint with the shards reported so far."""
    row = await conn.fetchrow(_CHECKPOINT, job_id, attempt, step)
    return None if row is None else (await _with_shards(conn, job_id, [row]))[0]


async def known_save(conn: Connection, job_id: str, attempt: int, step: int, member: int) -> Known | None:
    """What is known of a save when `member` reports."""
    row = await conn.fetchrow(_CHECKPOINT, job_id, attempt, step)
    if row is None:
        return None
    counted = await conn.fetchval(_REPORTED, job_id, attempt, step)
    own = await conn.fetchrow(_OWN, job_id, attempt, step, member)
    return Known(_to_checkpoint(row, ()), counted, None if own is None else _to_shard(own))


async def snapshot(conn: Connection, job: Job) -> Snapshot:
    """Everything decisions need; read it with the job locked, or decide again with the job locked."""
    rows = await conn.fetch(_LIVE, job.job_id, _LIVE_PHASES)
    grants = await conn.fetch("SELECT attempt, step, from_attempt FROM grants WHERE job_id = $1", job.job_id)
    return Snapshot(
        job=job,
        checkpoints=tuple(await _with_shards(conn, job.job_id, rows)),
        grants=tuple(Grant(row["attempt"], row["step"], row["from_attempt"]) for row in grants),
    )


async def save_checkpoint(
    conn: Connection,
    checkpoint: Checkpoint,
    origin: Origin,
    *,
    due_at: datetime | None,
    cause: str | None = None,
    message: str | None = None,
) -> None:
    """Write a checkpoint; `due_at` says when there is work for it in the store."""
    trace = origin.trace
    await conn.execute(
        _SAVE,
        checkpoint.job_id,
        checkpoint.attempt,
        checkpoint.step,
        checkpoint.tenant,
        checkpoint.phase.value,
        checkpoint.members,
        checkpoint.binding.model_dump_json(),
        checkpoint.keep_last,
        checkpoint.begun_at,
        checkpoint.decided_at,
        cause,
        message,
        due_at,
        origin.actor,
        None if trace is None else trace.life,
        None if trace is None else trace.hop,
    )


async def move(
    conn: Connection,
    checkpoint: Checkpoint,
    before: Phase,
    *,
    due_at: datetime | None = None,
    cause: str | None = None,
    message: str | None = None,
) -> bool:
    """Give a checkpoint its new phase if it still has the phase `before`; False when another one was quicker."""
    place = (checkpoint.job_id, checkpoint.attempt, checkpoint.step)
    moved = await conn.fetchval(_MOVE, *place, checkpoint.phase.value, cause, message, due_at, before.value)
    return moved is not None


async def add_shard(conn: Connection, checkpoint: Checkpoint, shard: Shard) -> None:
    """Remember a member's shard."""
    place = (checkpoint.job_id, checkpoint.attempt, checkpoint.step)
    await conn.execute(_ADD_SHARD, *place, shard.member, shard.uri, shard.sha256, shard.size_bytes)


async def has_grant(conn: Connection, job_id: str, attempt: int) -> bool:
    """Whether an attempt was told what to start from."""
    query = "SELECT true FROM grants WHERE job_id = $1 AND attempt = $2"
    return await conn.fetchval(query, job_id, attempt) is not None


async def add_grant(conn: Connection, job_id: str, grant: Grant, at: datetime) -> None:
    """Remember what an attempt was told to start from."""
    await conn.execute(_ADD_GRANT, job_id, grant.attempt, grant.step, grant.from_attempt, at)


async def due(conn: Connection, now: datetime, limit: int) -> list[Due]:
    """Checkpoints with work to be done now, the longest waiting first."""
    return [
        Due(row["job_id"], row["attempt"], row["step"], _to_origin(row)) for row in await conn.fetch(_DUE, now, limit)
    ]


async def origin_of(conn: Connection, checkpoint: Checkpoint) -> Origin:
    """Who and what caused a save."""
    query = f"{_CAUSE} AND attempt = $2 AND step = $3"
    row = await conn.fetchrow(query, checkpoint.job_id, checkpoint.attempt, checkpoint.step)
    assert row is not None, f"checkpoint {checkpoint.writer} has no row"
    return _to_origin(row)


async def settle(conn: Connection, checkpoint: Checkpoint) -> None:
    """Nothing is left to be done for it."""
    await conn.execute(_SETTLE, checkpoint.job_id, checkpoint.attempt, checkpoint.step)


async def tries(conn: Connection, item: Due) -> int:
    """How often its work has failed in a row."""
    return int(await conn.fetchval(_TRIES, item.job_id, item.attempt, item.step) or 0)


async def postpone(conn: Connection, item: Due, due_at: datetime, now: datetime, message: str) -> tuple[datetime, bool]:
    """Try again later; returns since when it fails, and whether that was told."""
    row = await conn.fetchrow(_POSTPONE, item.job_id, item.attempt, item.step, due_at, now, message)
    assert row is not None, f"checkpoint {item.job_id}/{item.attempt}/{item.step} has no row"
    return row["failing_since"], row["alerted"]


async def mark_alerted(conn: Connection, item: Due) -> None:
    """It was told that this checkpoint fails."""
    await conn.execute(_ALERTED, item.job_id, item.attempt, item.step)


async def note_unsaved(conn: Connection, job_id: str, attempt: int, step: int, at: datetime) -> bool:
    """Remember that a save is told to have failed; False when it was told before."""
    return await conn.fetchval(_NOTE_UNSAVED, job_id, attempt, step, at) is not None


async def add_holders(conn: Connection, job_id: str, attempt: AttemptState) -> None:
    """Remember which node holds which member; an attempt is placed once."""
    members = [member.index for member in attempt.members]
    nodes = [member.node for member in attempt.members]
    await conn.execute(_ADD_HOLDERS, job_id, attempt.number, members, nodes)


async def holders(conn: Connection, job_id: str, attempt: int, member: int) -> dict[int, str]:
    """The nodes of `member` and of member 0, which every attempt has: empty when the placement is not known."""
    return {row["member"]: row["node"] for row in await conn.fetch(_HOLDERS, job_id, attempt, member)}


async def sweeps(conn: Connection, now: datetime, limit: int) -> list[str]:
    """Jobs whose orphans are due to be looked for."""
    return [str(row["job_id"]) for row in await conn.fetch(_SWEEPS, now, limit)]


async def want_sweep(conn: Connection, job_id: str, at: datetime) -> None:
    """Look for orphans of a job at `at`, unless that is to be done before."""
    await conn.execute("UPDATE jobs SET sweep_at = least(sweep_at, $2) WHERE job_id = $1", job_id, at)


async def set_sweep(conn: Connection, job_id: str, at: datetime | None) -> None:
    """When to look for orphans of a job next; None: not before something changes."""
    await conn.execute("UPDATE jobs SET sweep_at = $2 WHERE job_id = $1", job_id, at)


def _to_job(row: Row) -> Job:
    return Job(row["job_id"], row["tenant"], row["fence"], row["finished"])


def _to_origin(row: Row) -> Origin:
    trace = None if row["trace_life"] is None else Trace(row["trace_life"], row["trace_hop"])
    return Origin(row["actor"], trace)


def _to_shard(row: Row) -> Shard:
    return Shard(member=row["member"], uri=row["uri"], sha256=row["sha256"], size_bytes=row["size_bytes"])


def _to_checkpoint(row: Row, shards: Sequence[Shard]) -> Checkpoint:
    return Checkpoint(
        job_id=row["job_id"],
        tenant=row["tenant"],
        attempt=row["attempt"],
        step=row["step"],
        phase=Phase(row["phase"]),
        members=row["members"],
        binding=Binding.model_validate_json(row["binding"]),
        keep_last=row["keep_last"],
        begun_at=row["begun_at"],
        decided_at=row["decided_at"],
        shards=tuple(shards),
    )


async def _with_shards(conn: Connection, job_id: str, rows: Sequence[Row]) -> list[Checkpoint]:
    places = [int(row["attempt"]) for row in rows], [int(row["step"]) for row in rows]
    shards: dict[tuple[int, int], list[Shard]] = {}
    for row in await conn.fetch(_SHARDS, job_id, *places):
        shards.setdefault((row["attempt"], row["step"]), []).append(_to_shard(row))
    return [_to_checkpoint(row, shards.get((row["attempt"], row["step"]), [])) for row in rows]
