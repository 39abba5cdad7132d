"""What has ended counts against a tenant to the millisecond, whether or not it has been summed."""

from datetime import UTC, datetime, timedelta

import numpy as np

from libs.bus import PgLedger
from libs.db import Connection
from services.scheduler import store
from services.scheduler.core.quota import Holding, held_ms, month_start

NOW = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)
MONTH = month_start(NOW)
MANY = 200


def drawn(chance: np.random.Generator) -> Holding:
    """One that ended last month, across its end, or in this one."""
    ended = MONTH + timedelta(milliseconds=int(chance.integers(-3_600_000, 1_800_000)))
    held_from = ended - timedelta(milliseconds=int(chance.integers(7_200_000)))
    return Holding(int(chance.integers(9)), held_from, ended, int(chance.integers(1, 1001)))


async def add(conn: Connection, tenant: str, job: str, holding: Holding) -> None:
    await conn.execute(
        "INSERT INTO holdings (job_id, attempt, member, tenant, cards, held_from, held_to, share_milli)"
        " VALUES ($1, 1, 0, $2, $3, $4, $5, $6)",
        job,
        tenant,
        holding.cards,
        holding.held_from,
        holding.held_to,
        holding.share_milli,
    )


async def test_what_has_ended_counts_the_same_before_and_after_it_is_summed(ledger: PgLedger) -> None:
    chance = np.random.default_rng(5)
    ended = [drawn(chance) for _ in range(MANY)]
    wanted = 0
    for number, holding in enumerate(ended):
        async with ledger.transaction() as tx:
            await add(tx.conn, "acme", f"acme-{number}", holding)
            await add(tx.conn, "globex", f"globex-{number}", drawn(chance))
        wanted += held_ms(holding, MONTH, NOW)
        if number % 10 == 9:
            async with ledger.transaction() as tx:
                assert (await store.load_standing(tx.conn, "acme", NOW)).ended_ms == wanted
                await store.sum_ended(tx.conn)
                assert (await store.load_standing(tx.conn, "acme", NOW)).ended_ms == wanted
    async with ledger.transaction() as tx:
        assert await tx.conn.fetchval("SELECT count(*) FROM holdings WHERE NOT summed") == 0
        next_month = NOW + timedelta(days=31)
        assert (await store.load_standing(tx.conn, "acme", next_month)).ended_ms == 0


async def test_what_is_still_held_is_not_summed(ledger: PgLedger) -> None:
    held = Holding(2, NOW - timedelta(minutes=5))
    async with ledger.transaction() as tx:
        await add(tx.conn, "acme", "job", held)
        await store.sum_ended(tx.conn)
        assert (await store.load_standing(tx.conn, "acme", NOW)).ended_ms == 0
        await tx.conn.execute("UPDATE holdings SET held_to = $1", NOW)
        assert (await store.load_standing(tx.conn, "acme", NOW)).ended_ms == held_ms(held, MONTH, NOW) > 0
        await store.sum_ended(tx.conn)
        assert (await store.load_standing(tx.conn, "acme", NOW)).ended_ms == held_ms(held, MONTH, NOW)
