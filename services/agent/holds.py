"""What attempts hold and how far it is told, and the meter's clock: SQL on the journal's file.

In: holds of the core. Out: the same after a restart. All times are milliseconds by the meter's clock.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from services.agent.core.model import AttemptKey, Phase
from services.agent.core.usage import HeldCard, Hold

_CARDS = TypeAdapter(tuple[HeldCard, ...])
_HOLDS = """
    SELECT *, json_extract(run, '$.spec.on_partition') = 'keep' AS keeps
    FROM holds JOIN attempts USING (job_id, attempt, member)
"""


@dataclass(frozen=True)
class MeterClock:
    """In the boot `boot` the meter's time is the boot clock plus `offset_ms`.

    `ended_ms` is the latest end of a hold since the clock was set.
    """

    boot: str
    offset_ms: int
    ended_ms: int | None = None


def begin(conn: sqlite3.Connection, key: AttemptKey, cards: Sequence[HeldCard], at_ms: int) -> None:
    """From now on the attempt holds the cards."""
    conn.execute(
        """
        INSERT INTO holds (job_id, attempt, member, cards, held_from, metered_to)
        VALUES (:job_id, :attempt, :member, :cards, :at, :at)
        """,
        {**_key(key), "cards": _CARDS.dump_json(tuple(cards)).decode(), "at": at_ms},
    )


def end(conn: sqlite3.Connection, key: AttemptKey, at_ms: int) -> None:
    """The attempt has given its cards back."""
    conn.execute(
        """
        UPDATE holds SET held_to = :at
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member
        """,
        {**_key(key), "at": at_ms},
    )
    conn.execute("UPDATE meter_clock SET ended_ms = max(coalesce(ended_ms, :at), :at)", {"at": at_ms})


def meter_to(conn: sqlite3.Connection, key: AttemptKey, at_ms: int) -> None:
    """The hold is told up to here."""
    conn.execute(
        """
        UPDATE holds SET metered_to = :at
        WHERE job_id = :job_id AND attempt = :attempt AND member = :member
        """,
        {**_key(key), "at": at_ms},
    )


def skip_to(conn: sqlite3.Connection, at_ms: int) -> None:
    """The agent was away until now: what waits for its start is held anew from here, the time between not measured."""
    conn.execute(
        """
        UPDATE holds SET metered_to = :at
        WHERE held_to IS NULL AND metered_to < :at AND EXISTS (
          SELECT 1 FROM attempts
          WHERE attempts.job_id = holds.job_id AND attempts.attempt = holds.attempt
            AND attempts.member = holds.member AND phase IN ('claimed', 'prepared'))
        """,
        {"at": at_ms},
    )


def held(conn: sqlite3.Connection) -> list[tuple[AttemptKey, Phase]]:
    """Attempts that hold cards, each with its phase."""
    query = f"{_HOLDS} WHERE held_to IS NULL"
    return [
        (AttemptKey(row["job_id"], row["attempt"], row["member"]), Phase(row["phase"]))
        for row in conn.execute(query).fetchall()
    ]


def owed(conn: sqlite3.Connection) -> list[Hold]:
    """Holds that last, or are not told to their end."""
    query = f"{_HOLDS} WHERE held_to IS NULL OR metered_to < held_to"
    return [_hold(row) for row in conn.execute(query).fetchall()]


def find_open(conn: sqlite3.Connection, key: AttemptKey) -> Hold | None:
    """What an attempt holds, if it holds something."""
    query = f"{_HOLDS} WHERE job_id = :job_id AND attempt = :attempt AND member = :member AND held_to IS NULL"
    row = conn.execute(query, _key(key)).fetchone()
    return None if row is None else _hold(row)


def newest_metered(conn: sqlite3.Connection) -> int | None:
    """The last instant that is told of a hold that lasts."""
    value = conn.execute("SELECT max(metered_to) FROM holds WHERE held_to IS NULL").fetchone()[0]
    return None if value is None else int(value)


def clock(conn: sqlite3.Connection) -> MeterClock | None:
    """How the meter's clock was set last."""
    row = conn.execute("SELECT boot, offset_ms, ended_ms FROM meter_clock").fetchone()
    return None if row is None else MeterClock(row["boot"], row["offset_ms"], row["ended_ms"])


def set_clock(conn: sqlite3.Connection, clock: MeterClock) -> None:
    """Remember how the meter's clock is set."""
    query = "INSERT OR REPLACE INTO meter_clock (only_row, boot, offset_ms, ended_ms) VALUES (1, ?, ?, ?)"
    conn.execute(query, (clock.boot, clock.offset_ms, clock.ended_ms))


def _key(key: AttemptKey) -> dict[str, str | int | None]:
    return {"job_id": key.job_id, "attempt": key.attempt, "member": key.member}


def _hold(row: sqlite3.Row) -> Hold:
    return Hold(
        key=AttemptKey(row["job_id"], row["attempt"], row["member"]),
        tenant=row["tenant"],
        cards=_CARDS.validate_json(row["cards"]),
        held_from=row["held_from"],
        metered_to=row["metered_to"],
        held_to=row["held_to"],
        life=row["trace_life"],
        epoch=None if row["keeps"] else row["epoch"],
    )
