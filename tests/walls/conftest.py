"""One hub and one leaf node for the module's tests, configured as they are deployed, and the parties of each attack."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

import pytest

from libs.bus.accounts import OPERATOR
from libs.bus.provision import provision
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
