"""The transfer service as a process, its store behind a proxy, on a bus of its own for each module."""

from collections.abc import AsyncGenerator, Iterator

import pytest
import pytest_asyncio

from tests.checkpoint.stage import Stage, open_stage
from tests.objects.proxy import S3Proxy
from tests.servers import NatsServer, PostgresServer, SeaweedServer

SETTINGS = {
    "FARSIDE_TRANSFER_RETRY_FIRST_S": "0.2",
    "FARSIDE_TRANSFER_RETRY_CAP_S": "0.5",
    "FARSIDE_TRANSFER_POLL_S": "0.2",
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
    folder = tmp_path_factory.mktemp("transfer")
    async with open_stage("transfer", hub, postgres, s3, folder, endpoint=proxy.endpoint, **SETTINGS) as made:
        yield made
