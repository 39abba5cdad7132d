"""The scheduler's admission ledger beside what was measured: asked in the background, kept in a table of our own.

An attempt is asked about until all its holdings have ended: those of every member, or those there are once a later
attempt exists or the first word of it is a day old (members that never claimed hold nothing).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from contracts import registry
from contracts.base import PAGE_LIMIT
from contracts.jobs import CARD_MILLI
from contracts.registry import NO_KEY
from contracts.requests import Holding, HoldingsPage, HoldingsQuery
from libs.bus import Client, Problem, Tx
from libs.db import Connection
from libs.kit.clock import Clock
from libs.kit.logs import get_logger

TIMEOUT_S = 10.0
GIVE_UP = timedelta(days=1)

_UNSETTLED = """
    SELECT job_id FROM attempts WHERE NOT settled AND (asked_at IS NULL OR asked_at < $1)
    GROUP BY job_id ORDER BY min(asked_at) NULLS FIRST LIMIT $2
"""
_STORE = """
    INSERT INTO holdings (job_id, attempt, member, cards, share_milli, held_from, held_to)
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::timestamptz[],
      $7::timestamptz[])
    ON CONFLICT (job_id, attempt, member) DO UPDATE SET held_to = excluded.held_to
"""
_SETTLE = """
    UPDATE attempts a SET asked_at = $2, settled =
      NOT EXISTS (SELECT FROM holdings h WHERE (h.job_id, h.attempt) = (a.job_id, a.attempt) AND h.held_to IS NULL)
      AND (a.placed_at < $3
        OR EXISTS (SELECT FROM attempts b WHERE b.job_id = a.job_id AND b.attempt > a.attempt)
        OR (SELECT count(*) FROM holdings h WHERE (h.job_id, h.attempt) = (a.job_id, a.attempt))
          = (SELECT count(*) FROM seats s WHERE (s.job_id, s.attempt) = (a.job_id, a.attempt)))
    WHERE a.job_id = ANY($1::text[]) AND NOT a.settled
"""


class Reconciler:
    """Asks every `every_s`, some jobs at a time, those first that were asked longest ago."""

    def __init__(
        self,
        transaction: Callable[[], AbstractAsyncContextManager[Tx[Connection]]],
        client: Callable[[], Client],
        clock: Clock,
        every_s: float,
    ) -> None:
        """Nothing runs before `run`."""
        self._transaction = transaction
        self._client = client
        self._clock = clock
        self._every_s = every_s

    async def run(self) -> None:
        """Ask for ever; a scheduler that does not answer is asked again."""
        while True:
            try:
                while await self.once():
                    pass
            except Problem as problem:
                get_logger().warning("usage.not_reconciled", error=str(problem))
            await asyncio.sleep(self._every_s)

    async def once(self) -> bool:
        """One round; whether there may be more jobs to ask about now."""
        begun = self._clock.now()
        async with self._transaction() as tx:
            rows = await tx.conn.fetch(_UNSETTLED, begun - timedelta(seconds=self._every_s / 2), PAGE_LIMIT)
        jobs = [str(row["job_id"]) for row in rows]
        if not jobs:
            return False
        holdings = await self._ask(jobs)
        async with self._transaction() as tx:
            columns = [list(column) for column in zip(*map(_values, holdings), strict=True)] or [[] for _ in range(7)]
            await tx.conn.execute(_STORE, *columns)
            await tx.conn.execute(_SETTLE, jobs, begun, begun - GIVE_UP)
        return len(jobs) == PAGE_LIMIT

    async def _ask(self, jobs: Sequence[str]) -> list[Holding]:
        found: list[Holding] = []
        cursor: str | None = None
        while True:
            query = HoldingsQuery(job_ids=list(jobs), cursor=cursor)
            page: HoldingsPage = await self._client().request(
                registry.QUERY_HOLDINGS, query, key=NO_KEY, timeout_s=TIMEOUT_S
            )
            found += page.holdings
            cursor = page.cursor
            if cursor is None:
                return found


def _values(holding: Holding) -> tuple[object, ...]:
    key = (holding.job_id, holding.attempt, holding.member)
    return *key, holding.cards, holding.share_milli or CARD_MILLI, holding.held_from, holding.held_to
