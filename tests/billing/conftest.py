"""Billing as a process with a folder of rate cards, on a bus of its own for each module; the test plays metering."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.billing.play import Billing, write_card
from tests.checkpoint.stage import open_stage
from tests.servers import NatsServer, PostgresServer, SeaweedServer


@pytest.fixture(scope="module")
def hub() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rates")
    write_card(folder)
    return folder


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def billing(
    hub: NatsServer,
    postgres: PostgresServer,
    s3: SeaweedServer,
    rates: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Billing, None]:
    folder = tmp_path_factory.mktemp("billing")
    settings = {"FARSIDE_RATES": str(rates), "FARSIDE_BILLING_POLL_S": "0.1"}
    async with open_stage("billing", hub, postgres, s3, folder, **settings) as stage:
        yield Billing(stage, rates)
