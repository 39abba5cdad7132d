"""SQL about the fleet as people know it: declarations, history, what is promised where, assessments."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from contracts.fleet import Change, DeclaredNode
from libs.db import Connection
from services.inventory.core.promises import Promise

_DECLARED = """
    SELECT d.node, d.body, d.at, n.facts FROM declared AS d LEFT JOIN nodes AS n USING (node)
    WHERE d.node > $1 ORDER BY d.node LIMIT $2
"""
_DECLARED_ONE = (
    "SELECT d.node, d.body, d.at, n.facts FROM declared AS d LEFT JOIN nodes AS n USING (node) WHERE node = $1"
)
_DECLARED_SOME = "SELECT node, body FROM declared WHERE node = ANY($1::text[])"
_ABSENT = "SELECT count(*) FROM declared AS d WHERE NOT EXISTS (SELECT FROM nodes AS n WHERE n.node = d.node)"
_DECLARE = """
    INSERT INTO declared (node, body, at) SELECT node, body, $3 FROM unnest($1::text[], $2::jsonb[]) AS v (node, body)
    ON CONFLICT (node) DO UPDATE SET body = excluded.body, at = excluded.at
"""
_WITHDRAW = "DELETE FROM declared WHERE node = ANY($1::text[]) RETURNING node"
_SAY_DECLARED = """
    INSERT INTO declarations (node, at, actor, reason, body)
    SELECT node, $3, $4, $5, body FROM unnest($1::text[], $2::jsonb[]) AS v (node, body)
    ON CONFLICT DO NOTHING
"""
_HISTORY = """
    SELECT * FROM (
      SELECT version, at, event, phase AS state, cause, reason, actor, incarnation, facts IS NOT NULL AS facts_changed
      FROM history WHERE node = $1
      UNION ALL
      SELECT NULL, at, CASE WHEN body IS NULL THEN 'withdrawn' ELSE 'declared' END, NULL, 'declared', reason, actor,
             NULL, false
      FROM declarations WHERE node = $1
    ) AS changes
    ORDER BY at DESC, version DESC NULLS LAST OFFSET $2 LIMIT $3
"""
_NEWER = """
    SELECT v.job_id FROM unnest($1::text[], $2::bigint[]) AS v (job_id, version) LEFT JOIN promises AS p USING (job_id)
    WHERE p.version IS NULL OR p.version < v.version
"""
_SAVE_PROMISES = """
    INSERT INTO promises (job_id, version, tenant, critical, ended, asked_milli, at)
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::boolean[], $5::boolean[], $6::bigint[],
                         $7::timestamptz[])
    ON CONFLICT (job_id) DO UPDATE
    SET version = excluded.version, critical = excluded.critical, ended = excluded.ended,
        asked_milli = excluded.asked_milli, at = excluded.at
"""
_DROP_PROMISED = "DELETE FROM promised WHERE job_id = ANY($1::text[]) RETURNING node"
_ADD_PROMISED = """
    INSERT INTO promised (job_id, node, cards_milli) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
"""
_NOT_IDLE = (
    "DELETE FROM idle WHERE node = ANY($1::text[]) AND EXISTS (SELECT FROM promised AS p WHERE p.node = idle.node)"
)
_IDLE = """
    INSERT INTO idle (node, since)
    SELECT v.node, v.at FROM unnest($1::text[], $2::timestamptz[]) AS v (node, at)
    WHERE NOT EXISTS (SELECT FROM promised AS p WHERE p.node = v.node)
    ON CONFLICT DO NOTHING
"""
_PRUNE = "DELETE FROM promises WHERE ended AND at < $1"
_ASKED = "SELECT coalesce(sum(asked_milli), 0)::bigint FROM promises WHERE NOT ended"
_PROMISED = "SELECT node, job_id, cards_milli FROM promised WHERE node = ANY($1::text[])"
_SINCE = """
    SELECT h.node, coalesce(i.since, h.at) AS since
    FROM history AS h LEFT JOIN idle AS i USING (node)
    WHERE h.version = 1 AND h.node = ANY($1::text[])
      AND NOT EXISTS (SELECT FROM promised AS p WHERE p.node = h.node)
"""
_UTILISATION = """
    SELECT node, sum(busy_pct_s)::bigint AS busy, sum(window_s)::bigint AS seconds FROM days
    WHERE node = ANY($1::text[]) AND window_s > 0 AND day > $2::date - 7 GROUP BY node
"""
_NEWEST = "SELECT version, sha256 FROM assessments ORDER BY version DESC LIMIT 1"
_SAVE_ASSESSMENT = "INSERT INTO assessments (version, at, actor, sha256, body) VALUES ($1, $2, $3, $4, $5)"


@dataclass(frozen=True, slots=True)
class DeclaredRow:
    """A declaration; `facts` (JSON) where an agent has announced the node."""

    node: DeclaredNode
    at: datetime
    facts: str | None


# ---- declared --------------------------------------------------------------------------------------------------------


async def declared_page(conn: Connection, after: str, limit: int) -> list[DeclaredRow]:
    """Up to `limit` declarations that follow the name `after`."""
    rows = await conn.fetch(_DECLARED, after, limit)
    return [DeclaredRow(DeclaredNode.model_validate_json(row["body"]), row["at"], row["facts"]) for row in rows]


async def declared_one(conn: Connection, node: str) -> DeclaredRow | None:
    """The declaration of one node."""
    row = await conn.fetchrow(_DECLARED_ONE, node)
    if row is None:
        return None
    return DeclaredRow(DeclaredNode.model_validate_json(row["body"]), row["at"], row["facts"])


async def declared_some(conn: Connection, names: Collection[str]) -> dict[str, DeclaredNode]:
    """The declarations of those of the nodes called `names` that have one."""
    rows = await conn.fetch(_DECLARED_SOME, list(names))
    return {row["node"]: DeclaredNode.model_validate_json(row["body"]) for row in rows}


async def declared_absent(conn: Connection) -> int:
    """How many declared nodes no agent has announced."""
    return int(await conn.fetchval(_ABSENT))


async def declare(conn: Connection, nodes: Sequence[DeclaredNode], reason: str, *, at: datetime, actor: str) -> None:
    """Keep declarations, and who made them."""
    names, bodies = [node.node for node in nodes], [node.model_dump_json() for node in nodes]
    await conn.execute(_DECLARE, names, bodies, at)
    await conn.execute(_SAY_DECLARED, names, bodies, at, actor, reason)


async def withdraw(conn: Connection, names: Sequence[str], reason: str, *, at: datetime, actor: str) -> list[str]:
    """Drop declarations; returns the names of those that there were."""
    gone = [row["node"] for row in await conn.fetch(_WITHDRAW, list(names))]
    await conn.execute(_SAY_DECLARED, gone, [None] * len(gone), at, actor, reason)
    return gone


async def history(conn: Connection, node: str, offset: int, limit: int) -> list[Change]:
    """Changes of a node, newest first."""
    rows = await conn.fetch(_HISTORY, node, offset, limit)
    return [Change.model_validate(dict(row)) for row in rows]


# ---- promised --------------------------------------------------------------------------------------------------------


async def save_promises(conn: Connection, promises: Iterable[Promise]) -> None:
    """Keep what is newer than what is known of each job, and since when nodes are idle. One of each job at most."""
    by_job = {promise.job_id: promise for promise in promises}
    rows = await conn.fetch(_NEWER, list(by_job), [promise.version for promise in by_job.values()])
    newer = [by_job[row["job_id"]] for row in rows]
    if not newer:
        return
    await conn.execute(
        _SAVE_PROMISES,
        [one.job_id for one in newer],
        [one.version for one in newer],
        [one.tenant for one in newer],
        [one.critical for one in newer],
        [one.ended for one in newer],
        [one.asked_milli for one in newer],
        [one.at for one in newer],
    )
    left = {row["node"] for row in await conn.fetch(_DROP_PROMISED, [one.job_id for one in newer])}
    seats = [(one.job_id, node, milli) for one in newer for node, milli in sorted(one.cards_milli.items())]
    await conn.execute(_ADD_PROMISED, *map(list, zip(*seats, strict=True)) if seats else ([], [], []))
    touched = sorted(left | {node for _, node, _ in seats})
    at = max(one.at for one in newer)
    await conn.execute(_NOT_IDLE, touched)
    await conn.execute(_IDLE, touched, [at] * len(touched))


async def prune_promises(conn: Connection, before: datetime) -> None:
    """Forget jobs that ended before."""
    await conn.execute(_PRUNE, before)


async def asked_milli(conn: Connection) -> int:
    """Thousandths of cards that waiting jobs ask for."""
    return int(await conn.fetchval(_ASKED))


async def promised(conn: Connection, names: Collection[str]) -> dict[str, dict[str, int]]:
    """For each node, the jobs placed there and what they hold in thousandths of cards."""
    found: dict[str, dict[str, int]] = {}
    for row in await conn.fetch(_PROMISED, list(names)):
        found.setdefault(row["node"], {})[row["job_id"]] = row["cards_milli"]
    return found


async def idle_since(conn: Connection, names: Collection[str]) -> dict[str, datetime]:
    """Since when nothing is promised on each node: from its first announcement, if nothing ever was."""
    return {row["node"]: row["since"] for row in await conn.fetch(_SINCE, list(names))}


async def utilisation(conn: Connection, names: Collection[str], at: datetime) -> dict[str, int]:
    """Mean utilisation in percent of each node's cards over the last seven days that were measured."""
    rows = await conn.fetch(_UTILISATION, list(names), at.date())
    return {row["node"]: row["busy"] // row["seconds"] for row in rows}


# ---- assessments -----------------------------------------------------------------------------------------------------


async def newest_assessment(conn: Connection) -> tuple[int, str] | None:
    """Version and digest of the last assessment written out."""
    row = await conn.fetchrow(_NEWEST)
    return None if row is None else (row["version"], row["sha256"])


async def save_assessment(conn: Connection, version: int, sha256: str, body: str, *, at: datetime, actor: str) -> None:
    """Keep an assessment."""
    await conn.execute(_SAVE_ASSESSMENT, version, at, actor, sha256, body)
