"""The admission ledger as others may read it: cards held by members of attempts, from claim to end."""

from contracts.registry import NO_KEY
from contracts.requests import Holding, HoldingsPage, HoldingsQuery, ProblemCode
from libs.bus import Problem
from libs.db import Connection

LIMIT = 1000
PARTS = 3

_PAGE = """
    SELECT job_id, tenant, attempt, member, cards, held_from, held_to,
      nullif(share_milli, 1000) AS share_milli
    FROM holdings
    WHERE job_id = ANY($1::text[]) AND ($2::text IS NULL OR tenant = $2)
      AND ($3::text IS NULL OR (job_id, attempt, member) > ($3, $4::bigint, $5::bigint))
    ORDER BY job_id, attempt, member LIMIT $6
"""


async def page_of_holdings(conn: Connection, key: str, query: HoldingsQuery) -> HoldingsPage:
    """Holdings of some jobs of the tenant `key` (`_`: of any). Raises Problem for a cursor that is none of ours."""
    after = _after(query.cursor)
    tenant = None if key == NO_KEY else key
    rows = await conn.fetch(_PAGE, query.job_ids, tenant, *after, LIMIT + 1)
    found = [Holding.model_validate(dict(row)) for row in rows[:LIMIT]]
    last = found[-1] if len(rows) > LIMIT else None
    return HoldingsPage(holdings=found, cursor=None if last is None else f"{last.job_id}/{last.attempt}/{last.member}")


def _after(cursor: str | None) -> tuple[str | None, int | None, int | None]:
    if cursor is None:
        return None, None, None
    parts = cursor.split("/")
    if len(parts) != PARTS or not all(part.isdecimal() and len(part) < len(str(2**62)) for part in parts[1:]):
        msg = f"cursor is {cursor!r}: pass the cursor of the page before, or none"
        raise Problem(ProblemCode.INVALID, msg)
    return parts[0], int(parts[1]), int(parts[2])
