"""Farside's side, a service in a process of its own: `python -m tests.bench.bus.service b|c1|c2 COUNT WARM`.

An App with its ledger in PostgreSQL, leading, as every service is deployed. WARM + COUNT messages wait in the stream.
The clock runs from the moment when WARM of them have been handled until every one is acknowledged at the server and
the outbox is empty. Then the effects are counted: each message has exactly one.
"""

import asyncio
import sys
import time
from collections.abc import Sequence

from contracts.attempts import AttemptExited, AttemptProgressed
from libs.bus import App, Event, PgLedger, Tx
from libs.db import Connection, Pool, connect, migrate
from libs.kit.settings import LedgerSettings
from libs.kit.start import read_settings, settle_memory
from tests.bench.bus.child import answer
from tests.bench.bus.load import BATCH, EACH, SAID, SERVICE, STREAM, TENANT, durable, rejected
from tests.waiting import until

DRAIN_S = 120.0
_TABLE = "CREATE TABLE effects (id text PRIMARY KEY, job text NOT NULL, step bigint NOT NULL)"
_ONE = "INSERT INTO effects VALUES ($1, $2, $3)"
_MANY = "INSERT INTO effects SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) ON CONFLICT DO NOTHING"


class Bench:
    """The handlers, and the stop-watch."""

    def __init__(self, app: App[Connection], pool: Pool, count: int, warm: int) -> None:
        self._app = app
        self._pool = pool
        self._count = count
        self._warm = warm
        self._handled = 0
        self._begun = 0.0
        self._counted = 0
        self._all = asyncio.Event()

    def _tick(self, messages: int) -> None:
        if self._begun == 0.0 and self._handled >= self._warm:
            self._begun, self._counted = time.perf_counter(), self._handled
        self._handled += messages
        if self._handled >= self._warm + self._count:
            self._all.set()

    async def b(self, tx: Tx[Connection], event: Event[AttemptExited]) -> None:
        """One message, one transaction: inbox and an effect."""
        self._tick(1)
        await tx.conn.execute(_ONE, event.id, event.body.job_id, event.body.exit_code)

    async def c1(self, tx: Tx[Connection], events: Sequence[Event[AttemptProgressed]]) -> None:
        """Many messages, one transaction; their ids as unique keys decide."""
        self._tick(len(events))
        ids, jobs = [event.id for event in events], [event.body.job_id for event in events]
        await tx.conn.execute(_MANY, ids, jobs, [event.body.points[-1].step for event in events])

    async def c2(self, tx: Tx[Connection], events: Sequence[Event[AttemptProgressed]]) -> None:
        """Besides, one outgoing message for each."""
        await self.c1(tx, events)
        for event in events:
            job = event.body.job_id
            tx.emit(SAID, rejected(job), key=TENANT, subject=job, sequence=1, actor="bench")

    async def measure(self, message: str) -> float:
        """Messages a second, once everything is done."""
        await self._all.wait()
        await until(lambda: self._done(message), DRAIN_S, "the acks and the outbox")
        seconds = time.perf_counter() - self._begun
        async with self._pool.acquire() as connection:
            effects = await connection.fetchval("SELECT count(*) FROM effects")
        assert effects == self._warm + self._count == self._handled, f"{effects} effects of {self._handled} messages"
        return (self._handled - self._counted) / seconds

    async def _done(self, message: str) -> bool:
        info = await self._app.client.js.consumer_info(STREAM, message)
        if info.num_pending or info.num_ack_pending:
            return False
        return (await self._app.ledger.counts()).waiting == 0


async def main(case: str, count: int, warm: int) -> float:
    """Messages a second."""
    settings = read_settings(SERVICE, LedgerSettings)
    settle_memory()
    pool = await connect(settings.dsn, SERVICE)
    await migrate(pool, SERVICE)
    async with pool.acquire() as connection:
        await connection.execute(_TABLE)
    app = App(SERVICE, settings, PgLedger(pool, SERVICE), leader=True)
    bench = Bench(app, pool, count, warm)
    if case == "b":
        app.on(EACH, bench.b)
    else:
        app.on_batch(BATCH, bench.c1 if case == "c1" else bench.c2)
    running = asyncio.create_task(app.run())
    measuring = asyncio.create_task(bench.measure(durable(EACH if case == "b" else BATCH)))
    await asyncio.wait([running, measuring], return_when=asyncio.FIRST_COMPLETED)
    app.stop()
    await running
    return await measuring


if __name__ == "__main__":
    answer(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
