"""Metering as a process on a bus of its own for each module; the scheduler and the agents are played by the test."""

from collections.abc import AsyncGenerator, Iterator

import pytest
import pytest_asyncio

from tests.checkpoint.stage import Stage, open_stage
from tests.metering.play import Node
from tests.objects.proxy import S3Proxy
from tests.servers import NatsServer, PostgresServer, SeaweedServer

NEVER_S = 40 * 24 * 3600  # past any month: nothing is closed by itself
SETTINGS = {
    "FARSIDE_METERING_POLL_S": "0.2",
    "FARSIDE_METERING_RECONCILE_S": "0.3",
    "FARSIDE_METERING_CLOSE_GRACE_S": str(NEVER_S),
}


@pytest.fixture(scope="module")
def hub() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(
    hub: NatsServer,
    postgres: PostgresServer,
    s3: SeaweedServer,
    proxy: S3Proxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Stage, None]:
    folder = tmp_path_factory.mktemp("metering")
    async with open_stage("metering", hub, postgres, s3, folder, endpoint=proxy.endpoint, **SETTINGS) as made:
        yield made


@pytest.fixture
def node(stage: Stage) -> Node:
    """A node with a tenant of its own."""
    return Node(stage)
