"""Fixtures of the bus tests: a hub and a database of each test's own."""

from collections.abc import AsyncGenerator, Iterator

import pytest

from libs.bus import Client
from libs.db import Pool
from tests.bus.rig import new_pool, provisioned
from tests.servers import NatsServer


@pytest.fixture
def hub() -> Iterator[NatsServer]:
    """A hub that the test may stop, kill and reconfigure."""
    with NatsServer() as server:
        yield server


@pytest.fixture
async def client(hub: NatsServer) -> AsyncGenerator[Client, None]:
    """A tool on the provisioned hub."""
    async with provisioned(hub) as connected:
        yield connected


@pytest.fixture
async def pool(database: str) -> AsyncGenerator[Pool, None]:
    """The scheduler's schema in a fresh database."""
    opened = await new_pool(database)
    yield opened
    opened.terminate()
