"""One hub and one leaf node for the module's tests, configured as they are deployed, and the parties of each attack."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from libs.bus.accounts import OPERATOR
from libs.bus.provision import provision
from libs.db import prepare_database, service_dsn
from tests.scheduler.harness import PATIENCE_S, Process, write_tenants
from tests.servers import PostgresServer
from tests.waiting import until_sync
from tests.walls.hub import (
    ACME,
    BETA,
    CENTRAL_1,
    CENTRAL_2,
    NODES,
    REMOTE_1,
    REMOTE_2,
    TENANTS,
    Principal,
    WalledLeaf,
    WalledServer,
    principal,
)
from tests.walls.world import Side, node, tenant

SITES = {
    "tenant": ("hub", tenant(ACME), tenant(BETA)),
    "node": ("hub", node(CENTRAL_1), node(CENTRAL_2)),
    "node-behind-the-leaf": ("leaf", node(REMOTE_1), node(REMOTE_2)),
}


@pytest.fixture(scope="module")
def walled() -> Iterator[WalledServer]:
    """The hub, provisioned for all nodes and tenants."""
    with WalledServer() as hub:
        asyncio.run(provision(hub.as_(OPERATOR), NODES, TENANTS))
        yield hub


@pytest.fixture(scope="module")
def site(walled: WalledServer) -> Iterator[WalledLeaf]:
    """The leaf node of a site with two nodes."""
    with WalledLeaf(walled, REMOTE_1, REMOTE_2) as leaf:
        yield leaf


@pytest.fixture(scope="module")
def manned(
    walled: WalledServer, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WalledServer]:
    """The hub with a scheduler at work, each behind its password."""
    folder: Path = tmp_path_factory.mktemp("scheduler")
    write_tenants(folder / "tenants")
    admin = postgres.create_database()
    asyncio.run(prepare_database(admin, {"scheduler": "p"}))
    asyncio.run(provision(walled.as_(OPERATOR), NODES, TENANTS))
    dsn = service_dsn(admin, "scheduler", "p")
    scheduler = Process(walled.as_("scheduler"), dsn, folder / "tenants", folder / "scheduler.log")
    scheduler.start()
    try:
        until_sync(lambda: scheduler.said("app.leading"), PATIENCE_S, "the scheduler to lead")
        yield walled
        assert "permissions violation" not in scheduler.log.read_text().lower()
    finally:
        scheduler.close()


@pytest.fixture
async def operator(walled: WalledServer) -> AsyncGenerator[Principal]:
    """Who may do everything."""
    async with principal(walled, OPERATOR) as connected:
        yield connected


@dataclass(frozen=True)
class Parties:
    """A guest that attacks, and one that is to notice nothing."""

    intruder: Principal
    side: Side
    victim: Principal
    other: Side


@pytest.fixture(params=SITES)
async def parties(request: pytest.FixtureRequest, walled: WalledServer, site: WalledLeaf) -> AsyncGenerator[Parties]:
    """A tenant beside a tenant, a node beside a node, two nodes behind one leaf node."""
    where, side, other = SITES[request.param]
    server = site if where == "leaf" else walled
    async with principal(server, side.user) as intruder, principal(server, other.user) as victim:
        yield Parties(intruder, side, victim, other)
