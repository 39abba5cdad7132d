"""The alerting service as a process, with two receivers of webhooks, on a bus of its own for each module."""

import json
from collections.abc import AsyncGenerator, Iterator

import pytest
import pytest_asyncio

from deploy.local.ports import free_port
from tests.alerting.receiver import Receiver
from tests.alerting.scene import Scene
from tests.checkpoint.stage import open_stage
from tests.servers import NatsServer, PostgresServer, SeaweedServer

SETTINGS = {
    "FARSIDE_ALERTING_POLL_S": "0.2",
    "FARSIDE_ALERTING_RETRY_FIRST_S": "0.1",
    "FARSIDE_ALERTING_RETRY_CAP_S": "0.3",
    "FARSIDE_ALERTING_TIMEOUT_S": "2",
}


def webhooks(**receivers: Receiver) -> str:
    """The setting for these receivers."""
    return json.dumps([{"name": name, "url": receiver.url} for name, receiver in receivers.items()])


@pytest.fixture(scope="module")
def hub() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(
    hub: NatsServer, postgres: PostgresServer, s3: SeaweedServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Scene, None]:
    folder = tmp_path_factory.mktemp("alerting")
    with Receiver() as pager, Receiver() as chat:
        settings = {
            **SETTINGS,
            "FARSIDE_ALERT_WEBHOOKS": webhooks(pager=pager, chat=chat),
            "FARSIDE_TRACE_DIR": str(folder / "traces"),
            "FARSIDE_METRICS_PORT": str(free_port()),
        }
        async with open_stage("alerting", hub, postgres, s3, folder, **settings) as stage:
            yield Scene(stage, pager, chat)
