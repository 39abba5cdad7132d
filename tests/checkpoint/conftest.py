"""One stage for tests that leave the service running, and a bus of its own for each module."""

from collections.abc import AsyncGenerator, Iterator

import pytest
import pytest_asyncio

from tests.checkpoint.stage import Stage, open_stage
from tests.servers import NatsServer, PostgresServer, SeaweedServer


@pytest.fixture(scope="module")
def hub() -> Iterator[NatsServer]:
    """A bus of its own: durables are shared by all services of one name on a bus."""
    with NatsServer() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(
    hub: NatsServer, postgres: PostgresServer, s3: SeaweedServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Stage, None]:
    folder = tmp_path_factory.mktemp("checkpoint")
    async with open_stage("checkpoint", hub, postgres, s3, folder) as made:
        yield made
