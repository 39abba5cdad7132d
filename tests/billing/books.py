"""Metering played by the test on the real bus: books that a test may alter at one place, and closings out of them."""

import asyncio
import gzip
import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from contracts import registry
from contracts.base import Tier
from contracts.usage import (
    CloseReply,
    CloseRequest,
    RefusedPage,
    RefusedQuery,
    RefusedRow,
    RollUpEntry,
    RollUpsPage,
    RollUpsQuery,
    RowFault,
    SampleOrigin,
    SamplesPage,
    SamplesQuery,
    UsagePeriodClosed,
    UsageRolledUp,
    UsageRow,
)
from libs.audit import Identity, identity
from libs.bus import App, Call, SqliteLedger, Tx
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.kit.settings import ServiceSettings
from tests.billing.nodes import NODE
from tests.checkpoint.stage import Stage

Transaction = Tx[sqlite3.Connection]


def lines_of(rows: list[UsageRow]) -> bytes:
    """The content of an extract."""
    return "".join(f"{row.model_dump_json()}\n" for row in sorted(rows, key=identity)).encode()


@dataclass
class Books:
    """All that metering keeps. `open` are samples in no closing, by tenant; `samples` those of each roll-up.

    `origins` are for what a test has altered beside a sample.
    """

    stage: Stage
    open: dict[str, list[UsageRow]] = field(default_factory=lambda: defaultdict(list))
    samples: dict[str, list[UsageRow]] = field(default_factory=dict[str, list[UsageRow]])
    origins: dict[Identity, SampleOrigin] = field(default_factory=dict[Identity, SampleOrigin])
    refused: list[UsageRow] = field(default_factory=list[UsageRow])
    rollups: dict[str, list[UsageRolledUp]] = field(default_factory=dict[str, list[UsageRolledUp]])
    closings: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    clock: SystemClock = field(default_factory=SystemClock)

    def register(self, app: App[sqlite3.Connection]) -> None:
        app.serve(registry.CALL_CLOSE, self.close)
        app.serve(registry.QUERY_ROLLUPS, self.answer_rollups)
        app.serve(registry.QUERY_SAMPLES, self.answer_samples)
        app.serve(registry.QUERY_REFUSED, self.answer_refused)

    async def close(self, tx: Transaction, call: Call[CloseRequest]) -> CloseReply:
        """Roll up what is open, put the extracts, tell it."""
        tenant, cutoff = call.key, self.clock.now()
        taken, self.open[tenant] = self.open[tenant], []
        self.closings[tenant] += 1
        hours: dict[datetime, list[UsageRow]] = defaultdict(list)
        for row in taken:
            hours[row.window_start.replace(minute=0)].append(row)
        made = [self._roll_up(call.body.close_id, hour, rows) for hour, rows in sorted(hours.items())]
        self.rollups[call.body.close_id] = made
        closed = UsagePeriodClosed(
            close_id=call.body.close_id,
            tenant=tenant,
            number=self.closings[tenant],
            period_start=cutoff - timedelta(days=1),
            period_end=cutoff,
            cutoff=cutoff,
            rollups=len(made),
            samples=len(taken),
        )
        for rollup in made:
            _emit(tx, registry.USAGE_ROLLED_UP, rollup, rollup.rollup_id)
        _emit(tx, registry.USAGE_PERIOD_CLOSED, closed, closed.close_id)
        return CloseReply(**closed.model_dump(exclude={"tenant", "rollups"}))

    def _roll_up(self, close_id: str, hour: datetime, rows: list[UsageRow]) -> UsageRolledUp:
        rollup_id, content = new_id(), lines_of(rows)
        key = f"usage/{rows[0].tenant}/{hour:%Y-%m-%dT%H}/{rollup_id}.jsonl.gz"
        self.stage.store.put(key, gzip.compress(content, mtime=0))
        self.samples[rollup_id] = sorted(rows, key=identity)
        groups: dict[tuple[str, str, str], list[UsageRow]] = defaultdict(list)
        for row in rows:
            groups[row.job_id, row.item, row.accelerator].append(row)
        return UsageRolledUp(
            rollup_id=rollup_id,
            close_id=close_id,
            tenant=rows[0].tenant,
            hour=hour,
            number=1,
            entries=[_entry(group) for group in groups.values()],
            samples=len(rows),
            extract=self.stage.store.uri(key),
            sha256=hashlib.sha256(content).hexdigest(),
        )

    async def answer_rollups(self, _: Transaction, call: Call[RollUpsQuery]) -> RollUpsPage:
        """One roll-up a page: whoever asks must go on."""
        found = sorted(self.rollups.get(call.body.close_id, []), key=lambda each: each.rollup_id)
        at = int(call.body.cursor or 0)
        return RollUpsPage(rollups=found[at : at + 1], cursor=str(at + 1) if at + 1 < len(found) else None)

    async def answer_samples(self, _: Transaction, call: Call[SamplesQuery]) -> SamplesPage:
        """Five samples a page."""
        found, at = self._found(call.body), int(call.body.cursor or 0)
        rows = found[at : at + 5]
        origins = [self.origins.get(identity(row)) or self._origin(row) for row in rows]
        return SamplesPage(rows=rows, origins=origins, cursor=str(at + 5) if at + 5 < len(found) else None)

    def _origin(self, row: UsageRow) -> SampleOrigin:
        told = [rollup for rollups in self.rollups.values() for rollup in rollups]
        closes = [rollup.close_id for rollup in told if row in self.samples[rollup.rollup_id]]
        return SampleOrigin(node=NODE, tier=Tier.CENTRAL, close_id=closes[0] if closes else None)

    def _found(self, query: SamplesQuery) -> list[UsageRow]:
        if query.rollup_id is not None:
            return self.samples.get(query.rollup_id, [])
        every = [*self.open.values(), *self.samples.values()]
        return [row for rows in every for row in rows if row.job_id == query.job_id]

    async def answer_refused(self, _: Transaction, call: Call[RefusedQuery]) -> RefusedPage:
        """Rows of the tenant that are not billed."""
        rows = [row for row in self.refused if row.tenant == call.key]
        now = self.clock.now()
        told = [RefusedRow(node=NODE, row=row, fault=RowFault.FENCED, message="fenced", stored_at=now) for row in rows]
        return RefusedPage(rows=told)


def _emit(tx: Transaction, message: Any, body: UsageRolledUp | UsagePeriodClosed, subject: str) -> None:
    tx.emit(message, body, key=body.tenant, subject=subject, sequence=1, actor="/farside/metering")


def _entry(rows: list[UsageRow]) -> RollUpEntry:
    return RollUpEntry(
        job_id=rows[0].job_id,
        job_name="digits-mlp",
        team="vision",
        item=rows[0].item,
        accelerator=rows[0].accelerator,
        tier=Tier.CENTRAL,
        quantity=sum(row.quantity for row in rows),
        samples=len(rows),
    )


@asynccontextmanager
async def open_books(stage: Stage) -> AsyncGenerator[Books, None]:
    """Serve as metering on the stage's bus."""
    settings = ServiceSettings(nats_url=stage.nats.url)
    ledger = SqliteLedger(stage.service.log.with_name("metering.sqlite"), "/farside/metering")
    app: App[sqlite3.Connection] = App(registry.METERING, settings, ledger)
    books = Books(stage)
    books.register(app)
    running = asyncio.create_task(app.run())
    await app.wait_started()
    try:
        yield books
    finally:
        app.stop()
        await running
        ledger.close()
