"""A stage for each test: a hub of its own, a database of its own, a scheduler and one more that may stand by."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.base import Tier
from libs.bus import Client, PgLedger
from libs.bus.provision import provision
from libs.db import Pool, connect, connect_once, migrate, prepare_database, service_dsn
from tests.scheduler.harness import NODES, PATIENCE_S, FakeNode, Process, Stage, write_policy, write_tenants
from tests.servers import NatsServer
from tests.waiting import until


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    await prepare_database(database, {"scheduler": "secret"})
    pool = await connect(service_dsn(database, "scheduler", "secret"), "scheduler")
    await migrate(pool, "scheduler", "services.scheduler")
    yield pool
    await pool.close()


@pytest.fixture
def ledger(pool: Pool) -> PgLedger:
    return PgLedger(pool, "scheduler")


@pytest.fixture
async def stage(database: str, tmp_path: Path) -> AsyncIterator[Stage]:
    write_tenants(tmp_path / "tenants")
    write_policy(tmp_path / "policy.yaml")
    with NatsServer() as hub:
        await provision(hub.url, NODES)
        await prepare_database(database, {"scheduler": "secret"})
        dsn = service_dsn(database, "scheduler", "secret")
        processes = [Process(hub.url, dsn, tmp_path / "tenants", tmp_path / f"{number}.log") for number in (1, 2)]
        db = await connect_once(database)
        async with await Client.connect(hub.url, name="test") as client:
            nodes = {
                name: FakeNode(client, name, Tier.REMOTE if name.startswith("remote") else Tier.CENTRAL, 2)
                for name in NODES
            }
            stage = Stage(hub, client, processes[0], processes[1], db, nodes, tmp_path)
            stage.listen()
            for node in nodes.values():
                node.listen()
            processes[0].start()
            try:
                await until(lambda: processes[0].said("app.leading"), PATIENCE_S, "the scheduler to lead")
                yield stage
            finally:
                await stage.close()
                for process in processes:
                    process.close()
                await db.close()
