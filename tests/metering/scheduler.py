"""The scheduler's admission ledger, played by the test on the real bus: two holdings a page."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from contracts import registry
from contracts.requests import Holding, HoldingsPage, HoldingsQuery
from libs.bus import App, Call, SqliteLedger, Tx
from libs.kit.settings import ServiceSettings
from tests.checkpoint.stage import Stage
from tests.metering.play import Node

PAGE = 2


@dataclass
class Scheduler:
    """What the scheduler knows, and how often it was asked about each job."""

    held: dict[tuple[str, int, int], Holding] = field(default_factory=dict[tuple[str, int, int], Holding])
    asked: dict[str, int] = field(default_factory=dict[str, int])

    def hold(
        self,
        node: Node,
        begin: datetime,
        end: datetime | None,
        *,
        attempt: int = 1,
        member: int = 0,
        cards: int = 1,
        share_milli: int | None = None,
    ) -> None:
        """A member holds cards, or a share of one, from `begin` to `end`."""
        self.held[node.job_id, attempt, member] = Holding(
            job_id=node.job_id,
            tenant=node.tenant,
            attempt=attempt,
            member=member,
            cards=cards,
            share_milli=share_milli,
            held_from=begin,
            held_to=end,
        )

    async def answer(self, _: Tx[sqlite3.Connection], call: Call[HoldingsQuery]) -> HoldingsPage:
        """`query.scheduler.holdings`."""
        query = call.body
        at = int(query.cursor or 0)
        if at == 0:
            for job_id in query.job_ids:
                self.asked[job_id] = self.asked.get(job_id, 0) + 1
        found = [holding for key, holding in sorted(self.held.items()) if key[0] in query.job_ids]
        more = at + PAGE < len(found)
        return HoldingsPage(holdings=found[at : at + PAGE], cursor=str(at + PAGE) if more else None)


@asynccontextmanager
async def open_scheduler(stage: Stage) -> AsyncGenerator[Scheduler, None]:
    """Serve as the scheduler on the stage's bus."""
    ledger = SqliteLedger(stage.service.log.with_name("scheduler.sqlite"), "/farside/scheduler")
    app: App[sqlite3.Connection] = App(registry.SCHEDULER, ServiceSettings(nats_url=stage.nats.url), ledger)
    scheduler = Scheduler()
    app.serve(registry.QUERY_HOLDINGS, scheduler.answer)
    running = asyncio.create_task(app.run())
    await app.wait_started()
    try:
        yield scheduler
    finally:
        app.stop()
        await running
        ledger.close()
