"""XIDs that this machine's cards have shown since it booted: SQL on the journal's file."""

import sqlite3
from datetime import datetime

from contracts.health import Xid

MAX_CODES = 256


def note(conn: sqlite3.Connection, boot: str, uuid: str, code: int, at: datetime) -> None:
    """A card has shown an XID; those of earlier boots are forgotten."""
    conn.execute("DELETE FROM xids WHERE boot <> ?", (boot,))
    conn.execute(
        """
        INSERT INTO xids (boot, uuid, code, count, first_at, last_at) VALUES (:boot, :uuid, :code, 1, :at, :at)
        ON CONFLICT (boot, uuid, code) DO UPDATE SET count = count + 1, last_at = max(last_at, :at)
        """,
        {"boot": boot, "uuid": uuid, "code": code, "at": at.isoformat()},
    )


def since_boot(conn: sqlite3.Connection, boot: str) -> dict[str, list[Xid]]:
    """All of this boot by card, in order of code."""
    found: dict[str, list[Xid]] = {}
    for row in conn.execute("SELECT * FROM xids WHERE boot = ? ORDER BY uuid, code", (boot,)).fetchall():
        xid = Xid(
            code=row["code"],
            count=row["count"],
            first_at=datetime.fromisoformat(row["first_at"]),
            last_at=datetime.fromisoformat(row["last_at"]),
        )
        codes = found.setdefault(row["uuid"], [])
        if len(codes) < MAX_CODES:
            codes.append(xid)
    return found
