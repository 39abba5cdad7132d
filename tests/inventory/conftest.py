"""A stage for each test: a hub of its own, a database of its own, one inventory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.bus import Client
from libs.bus.provision import provision
from libs.db import connect_once, prepare_database, service_dsn
from tests.inventory.harness import Process, Stage
from tests.servers import NatsServer


@pytest.fixture
async def stage(database: str, tmp_path: Path) -> AsyncIterator[Stage]:
    with NatsServer() as hub:
        await provision(hub.url)
        await prepare_database(database, {"inventory": "secret"})
        dsn = service_dsn(database, "inventory", "secret")
        inventory = Process(hub.url, dsn, tmp_path / "inventory.log")
        db = await connect_once(database)
        async with await Client.connect(hub.url, name="test") as client:
            stage = Stage(hub, client, inventory, db, dsn)
            stage.listen()
            inventory.start()
            try:
                yield stage
            finally:
                await stage.close()
                inventory.close()
                await db.close()
