"""A node's agent as a real process, against a real hub and store, with the services it calls played by the test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from libs.objects import Store, StoreConfig
from tests.agent.world import World
from tests.servers import NatsServer, SeaweedServer


@pytest.fixture(scope="session")
def store(s3: SeaweedServer) -> Iterator[Store]:
    opened = Store(StoreConfig(s3.endpoint, s3.access_key, SecretStr(s3.secret_key)))
    opened.wait_ready("probe/agent", 60.0)
    yield opened
    opened.close()


@pytest.fixture
async def world(tmp_path: Path, nats_server: NatsServer, s3: SeaweedServer, store: Store) -> AsyncIterator[World]:
    async with World(tmp_path, nats_server, s3, store) as made:
        yield made
