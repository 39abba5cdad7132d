"""Tenants and nodes come and go by SIGHUP, without a restart, and nobody else feels it (docs/security.md)."""

import os
import signal
from collections.abc import Sequence

import pytest
from typing_extensions import override

from libs.bus.accounts import OPERATOR, PASSWORD, hub_accounts, node_user, tenant_user, variable
from libs.bus.provision import provision
from tests.waiting import until
from tests.walls.hub import ACME, BETA, CENTRAL_1, CENTRAL_2, Principal, WalledServer, line, principal
from tests.walls.world import node, tenant

pytestmark = pytest.mark.timeout(120)

READ = "Reloaded server configuration"


class Growing(WalledServer):
    """A hub whose guests change while it runs; what came later has its password in the configuration file."""

    nodes: Sequence[str] = (CENTRAL_1,)
    tenants: Sequence[str] = (ACME,)
    later = ""

    @override
    def accounts(self) -> str:
        return self.later + hub_accounts(self.nodes, self.tenants)

    @override
    def users(self) -> list[str]:
        return [user for user in super().users() if user not in {tenant_user(BETA), node_user(CENTRAL_2)}]

    async def read_anew(self) -> None:
        """Have the server read its files; JetStream is not to be reached while it does."""
        before = self.log.read_text().count(READ)
        self.command()
        os.kill(self.pid, signal.SIGHUP)
        await until(lambda: self.log.read_text().count(READ) > before, 30, "the files to be read")


async def works(party: Principal, subject: str) -> bool:
    ack = await party.ask(subject, b"{}")
    return ack is not None and b'"seq"' in ack.data


async def let_in(hub: WalledServer, user: str) -> bool:
    async with line(hub, user) as knocking:
        return b"PONG" in await knocking.told(b"PONG")


async def test_guests_come_and_go_while_the_hub_runs() -> None:
    with Growing() as hub:
        await provision(hub.as_(OPERATOR), hub.nodes, hub.tenants)
        async with principal(hub, tenant_user(ACME)) as acme, principal(hub, node_user(CENTRAL_1)) as central:
            assert await works(acme, tenant(ACME).says)
            new = (tenant_user(BETA), node_user(CENTRAL_2))
            hub.passwords |= {user: f"p-{user}" for user in new}
            assert not await let_in(hub, new[0])
            hub.later = "".join(f'{variable(PASSWORD, user)}: "{hub.passwords[user]}"\n' for user in new)
            hub.nodes, hub.tenants = (CENTRAL_1, CENTRAL_2), (ACME, BETA)
            await hub.read_anew()
            assert await let_in(hub, new[0])
            await hub.read_anew()  # a new account's ways out are there at the second time
            await provision(hub.as_(OPERATOR), hub.nodes, hub.tenants)
            async with principal(hub, new[0]) as beta, principal(hub, new[1]) as newcomer:
                await until(lambda: works(beta, tenant(BETA).says), 10, "the ways out of a new account")
                await until(lambda: works(newcomer, node(CENTRAL_2).says), 10, "the ways out of a new account")
                assert await beta.ask(tenant(BETA).info) is not None
            assert acme.nc.is_connected
            assert await works(acme, tenant(ACME).says)
            hub.tenants = (BETA,)
            await hub.read_anew()
            await until(lambda: not acme.nc.is_connected, 10, "the former tenant to be cut off")
            assert not await let_in(hub, tenant_user(ACME))
            assert central.nc.is_connected
            assert await works(central, node(CENTRAL_1).says)


async def test_a_changed_password_ends_the_connections_that_used_the_former_one() -> None:
    with Growing() as hub:
        await provision(hub.as_(OPERATOR), hub.nodes, hub.tenants)
        async with principal(hub, tenant_user(ACME)) as acme, principal(hub, node_user(CENTRAL_1)) as central:
            hub.later = f'{variable(PASSWORD, tenant_user(ACME))}: "another"\n'
            await hub.read_anew()
            await until(lambda: not acme.nc.is_connected, 10, "the connection to be cut")
            assert await works(central, node(CENTRAL_1).says)
            hub.passwords |= {tenant_user(ACME): "another"}
            async with principal(hub, tenant_user(ACME)) as again:
                assert await works(again, tenant(ACME).says)
