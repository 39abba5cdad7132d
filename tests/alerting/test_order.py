"""The store without the service: the order in which notifications fall due, and what waits for a commit."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from random import Random  # noqa: TID251 - seeded, so that a failure can be repeated

import pytest
import pytest_asyncio

from contracts.alerts import Alert, AlertPhase
from libs.bus import PgLedger
from libs.db import Connection, Pool, connect, migrate, prepare_database, service_dsn
from libs.kit.ids import new_id
from services.alerting import store
from services.alerting.app import SERVICE
from services.alerting.core.delivery import Again, Delivered, Fate, Park
from services.alerting.core.rules import NODE_LOST
from tests.unit.alerting.make import NOW, lost, run

FIRING, RESOLVED = AlertPhase.FIRING, AlertPhase.RESOLVED
RECEIVERS = ("chat", "pager")
EPISODES = 3
AT_ONCE = 4


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncGenerator[Pool, None]:
    await prepare_database(database, {SERVICE: "secret"})
    pool = await connect(service_dsn(database, SERVICE, "secret"), SERVICE)
    await migrate(pool, SERVICE, "services.alerting")
    yield pool
    await pool.close()


async def _queue(conn: Connection, nodes: int, random: Random) -> None:
    """Some episodes of the alert of each node, the last of which fires; they all come at the same moment."""
    todo = [f"node-{number}" for number in range(nodes)] * EPISODES
    random.shuffle(todo)
    for number, node in enumerate(todo):
        [effect] = run(NODE_LOST, lost(3, node=node))[1]
        alert = effect.alert.model_copy(update={"alert_id": new_id()})
        await store.add_alert(conn, alert)
        await store.queue(conn, alert, RECEIVERS, None, NOW)
        if node in todo[number + 1 :]:
            over: Alert = alert.model_copy(update={"state": RESOLVED, "resolved_at": NOW})
            await store.save_alert(conn, over)
            await store.queue(conn, over, RECEIVERS, None, NOW)


def _fate(random: Random, now_s: int) -> Fate:
    later = NOW + timedelta(seconds=now_s + random.randint(1, 30))
    return random.choice([Delivered(), Park("refused"), Again(later, "busy"), Again(later, "busy")])


@pytest.mark.parametrize("seed", range(5))
async def test_what_is_due_of_one_alert_is_the_oldest_across_its_episodes(pool: Pool, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a reproducible shuffle
    told: dict[tuple[str, str], list[AlertPhase]] = {}
    ids: dict[tuple[str, str], list[str]] = {}
    async with pool.acquire() as conn:
        await _queue(conn, 5, random)
        for now_s in range(1000):
            receiver, now = random.choice(RECEIVERS), NOW + timedelta(seconds=now_s)
            items = await store.due(conn, receiver, now, AT_ONCE)
            assert len({item.alert.fingerprint for item in items}) == len(items) <= AT_ONCE
            for item in random.sample(items, len(items)):
                fate = _fate(random, now_s)
                await store.settle(conn, item, fate, now)
                if not isinstance(fate, Again):
                    place = (receiver, item.alert.labels["node"])
                    told.setdefault(place, []).append(item.about)
                    ids.setdefault(place, []).append(item.alert.alert_id)
        episodes = await store.page(conn, None, None, 100)
    assert len(told) == 5 * len(RECEIVERS)
    for (_, node), phases in told.items():
        assert phases == [FIRING, RESOLVED] * (EPISODES - 1) + [FIRING], f"{node}: {phases}"
    for (_, node), found in ids.items():
        assert found[::2][:-1] == found[1::2], f"{node}: an episode begins before the one before it is over"
        [fires] = [one.alert_id for one in episodes if (one.labels["node"], one.state) == (node, FIRING)]
        assert found[-1] == fires


async def test_a_call_is_made_after_the_commit_and_not_after_a_rollback(pool: Pool) -> None:
    ledger, seen = PgLedger(pool, SERVICE), list[str]()
    async with ledger.transaction() as tx:
        tx.after_commit(lambda: seen.append("committed"))
        assert seen == []
    assert seen == ["committed"]

    async def roll_back() -> None:
        async with ledger.transaction() as tx:
            tx.after_commit(lambda: seen.append("rolled back"))
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await roll_back()
    assert seen == ["committed"]


async def test_transactions_at_once_keep_their_calls_apart(pool: Pool) -> None:
    ledger, seen, go = PgLedger(pool, SERVICE), list[str](), asyncio.Event()

    async def slow() -> None:
        async with ledger.transaction() as tx:
            tx.after_commit(lambda: seen.append("slow"))
            await go.wait()

    task = asyncio.create_task(slow())
    async with ledger.transaction() as tx:
        tx.after_commit(lambda: seen.append("quick"))
    assert seen == ["quick"]
    go.set()
    await task
    assert seen == ["quick", "slow"]
