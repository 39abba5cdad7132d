"""The agent's journal: its SQL (that of the meter is in holds.py), in the same file as inbox and outbox.

In: rows of the core. Out: the same after a restart. A progress report rewrites the small columns only; the offer is
written once.
"""

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from pydantic import TypeAdapter

from contracts.work import WorkRun
from libs.bus import Tx
from libs.telemetry.context import Trace
from services.agent.core.model import Attempt, AttemptKey, Ended, Inputs, Phase, StopOrder

Transaction: TypeAlias = Callable[[], AbstractAsyncContextManager[Tx[sqlite3.Connection]]]

_INPUTS = TypeAdapter(Inputs)
_STOP = TypeAdapter(StopOrder)
_ENDED = TypeAdapter(Ended)


@dataclass(frozen=True)
class Save:
    """One checkpoint file handed over by the task."""

    step: int
    file: str
    sha256: str
    size_bytes: int
    stall_ms: int
    write_ms: int
    accepted_at: datetime
    stored: bool = False


@dataclass(frozen=True)
class LogMark:
    """How much of the log is shipped: the next byte to ship and the number of the next chunk."""

    offset: int
    chunk: int


def load(conn: sqlite3.Connection, key: AttemptKey) -> Attempt | None:
    """One attempt, or None."""
    row = conn.execute(
        """
        SELECT * FROM attempts
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member
        """,
        _key(key),
    ).fetchone()
    return None if row is None else _attempt(row)


def unfinished(conn: sqlite3.Connection) -> list[Attempt]:
    """All attempts that have not exited, oldest offer first."""
    rows = conn.execute("SELECT * FROM attempts WHERE phase <> 'exited' ORDER BY offered_at").fetchall()
    return [_attempt(row) for row in rows]


def record(conn: sqlite3.Connection, attempt: Attempt) -> None:
    """Write a row; the offer itself is written the first time only."""
    values = {
        **_key(attempt.key),
        "tenant": attempt.tenant,
        "phase": attempt.phase.value,
        "offered_at": attempt.offered_at.isoformat(),
        "run": None if attempt.run is None else attempt.run.model_dump_json(),
        "endpoint": attempt.endpoint,
        "epoch": attempt.epoch,
        "rendezvous": attempt.rendezvous,
        "inputs": _INPUTS.dump_json(attempt.inputs).decode(),
        "stop": None if attempt.stop is None else _STOP.dump_json(attempt.stop).decode(),
        "ended": None if attempt.ended is None else _ENDED.dump_json(attempt.ended).decode(),
        "sequence": attempt.sequence,
        "serial": attempt.serial,
    }
    conn.execute(
        """
        INSERT INTO attempts (job_id, attempt, member, tenant, phase, offered_at, run, endpoint, epoch, rendezvous,
                              inputs, stop, ended, sequence, serial)
        VALUES (:job_id, :attempt, :member, :tenant, :phase, :offered_at, :run, :endpoint, :epoch, :rendezvous,
                :inputs, :stop, :ended, :sequence, :serial)
        ON CONFLICT (job_id, attempt, member) DO UPDATE SET
          phase = :phase, epoch = :epoch, rendezvous = :rendezvous, inputs = :inputs, stop = :stop, ended = :ended,
          sequence = :sequence, serial = :serial
        """,
        values,
    )


def keep_trace(conn: sqlite3.Connection, key: AttemptKey, trace: Trace | None) -> None:
    """Remember where the messages about an attempt belong."""
    conn.execute(
        """
        UPDATE attempts SET trace_life = :life, trace_hop = :hop
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member
        """,
        {**_key(key), "life": None if trace is None else trace.life, "hop": None if trace is None else trace.hop},
    )


def trace_of(conn: sqlite3.Connection, key: AttemptKey) -> Trace | None:
    """Where the messages about an attempt belong, if that is known."""
    row = conn.execute(
        """
        SELECT trace_life, trace_hop FROM attempts
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member
        """,
        _key(key),
    ).fetchone()
    return None if row is None or row["trace_life"] is None else Trace(row["trace_life"], row["trace_hop"])


def take_save(conn: sqlite3.Connection, key: AttemptKey, save: Save) -> bool:
    """Note a checkpoint file down; False when this step was handed over before."""
    cursor = conn.execute(
        """
        INSERT INTO saves (job_id, attempt, member, step, file, sha256, size_bytes, stall_ms, write_ms, accepted_at)
        VALUES (:job_id, :attempt, :member, :step, :file, :sha256, :size_bytes, :stall_ms, :write_ms, :accepted_at)
        ON CONFLICT DO NOTHING
        """,
        {
            **_key(key),
            "step": save.step,
            "file": save.file,
            "sha256": save.sha256,
            "size_bytes": save.size_bytes,
            "stall_ms": save.stall_ms,
            "write_ms": save.write_ms,
            "accepted_at": save.accepted_at.isoformat(),
        },
    )
    return cursor.rowcount == 1


def pending_saves(conn: sqlite3.Connection, key: AttemptKey) -> list[Save]:
    """Files that are not in the store yet, in the order of their steps."""
    rows = conn.execute(
        """
        SELECT * FROM saves
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member AND NOT stored ORDER BY step
        """,
        _key(key),
    ).fetchall()
    return [_save(row) for row in rows]


def newest_stored(conn: sqlite3.Connection, key: AttemptKey) -> int | None:
    """The highest step of this attempt in the store."""
    row = conn.execute(
        """
        SELECT max(step) FROM saves
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member AND stored
        """,
        _key(key),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def mark_stored(conn: sqlite3.Connection, key: AttemptKey, step: int) -> None:
    """The file of `step` is in the store."""
    conn.execute(
        """
        UPDATE saves SET stored = 1
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member AND step = :step
        """,
        {**_key(key), "step": step},
    )


def tell_unsaved(conn: sqlite3.Connection, key: AttemptKey, step: int) -> bool:
    """Remember that a failed save is told; False when it was told before."""
    cursor = conn.execute(
        """
        UPDATE saves SET unsaved_told = 1
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member AND step = :step AND NOT unsaved_told
        """,
        {**_key(key), "step": step},
    )
    return cursor.rowcount == 1


def drop_save(conn: sqlite3.Connection, key: AttemptKey, step: int) -> None:
    """Forget a file that can never be stored."""
    conn.execute(
        """
        DELETE FROM saves
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member AND step = :step
        """,
        {**_key(key), "step": step},
    )


def log_mark(conn: sqlite3.Connection, key: AttemptKey) -> LogMark:
    """How much of the log is shipped."""
    row = conn.execute(
        """
        SELECT log_offset, log_chunk FROM attempts
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member
        """,
        _key(key),
    ).fetchone()
    return LogMark(0, 0) if row is None else LogMark(int(row[0]), int(row[1]))


def mark_log(conn: sqlite3.Connection, key: AttemptKey, mark: LogMark) -> None:
    """Remember how much of the log is shipped."""
    values = {**_key(key), "offset": mark.offset, "chunk": mark.chunk}
    conn.execute(
        """
        UPDATE attempts SET log_offset = :offset, log_chunk = :chunk
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member
        """,
        values,
    )


def cleanable(conn: sqlite3.Connection, keep_last: int, before: datetime) -> list[AttemptKey]:
    """Exited attempts with a folder, beyond the newest `keep_last` or offered before `before`."""
    rows = conn.execute(
        """
        SELECT job_id, attempt, member, offered_at,
               row_number() OVER (ORDER BY offered_at DESC) AS place
        FROM attempts WHERE phase = 'exited' AND NOT cleaned
        """
    ).fetchall()
    return [
        AttemptKey(row["job_id"], row["attempt"], row["member"])
        for row in rows
        if row["place"] > keep_last or datetime.fromisoformat(row["offered_at"]) < before
    ]


def mark_cleaned(conn: sqlite3.Connection, key: AttemptKey) -> None:
    """The folder of an exited attempt is gone."""
    conn.execute(
        """
        UPDATE attempts SET cleaned = 1
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member
        """,
        _key(key),
    )


def forget(conn: sqlite3.Connection, before: datetime) -> int:
    """Remove exited rows offered before `before`; how many."""
    query = "DELETE FROM attempts WHERE phase = 'exited' AND cleaned AND offered_at < ?"
    return conn.execute(query, (before.isoformat(),)).rowcount


def count_up(conn: sqlite3.Connection, name: str) -> int:
    """The next value of a counter that outlives restarts, from 1."""
    query = """
        INSERT INTO counters (name, value) VALUES (?, 1)
        ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value
    """
    return int(conn.execute(query, (name,)).fetchall()[0][0])


def _key(key: AttemptKey) -> dict[str, str | int | None]:
    return {"job_id": key.job_id, "attempt": key.attempt, "member": key.member}


def _attempt(row: sqlite3.Row) -> Attempt:
    return Attempt(
        key=AttemptKey(row["job_id"], row["attempt"], row["member"]),
        tenant=row["tenant"],
        phase=Phase(row["phase"]),
        offered_at=datetime.fromisoformat(row["offered_at"]),
        run=None if row["run"] is None else WorkRun.model_validate_json(row["run"]),
        endpoint=row["endpoint"],
        epoch=row["epoch"],
        rendezvous=row["rendezvous"],
        inputs=_INPUTS.validate_json(row["inputs"]),
        stop=None if row["stop"] is None else _STOP.validate_json(row["stop"]),
        ended=None if row["ended"] is None else _ENDED.validate_json(row["ended"]),
        sequence=row["sequence"],
        serial=row["serial"],
    )


def _save(row: sqlite3.Row) -> Save:
    return Save(
        step=row["step"],
        file=row["file"],
        sha256=row["sha256"],
        size_bytes=row["size_bytes"],
        stall_ms=row["stall_ms"],
        write_ms=row["write_ms"],
        accepted_at=datetime.fromisoformat(row["accepted_at"]),
        stored=bool(row["stored"]),
    )
