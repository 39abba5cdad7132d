"""The credentials of a site reach the hub for the nodes of that site, each for itself alone."""

import pytest
from typing_extensions import override

from contracts import registry
from libs.bus.accounts import tenant_user
from tests.waiting import until
from tests.walls.hub import ACME, REMOTE_1, REMOTE_2, Principal, WalledLeaf, WalledServer, principal, stored
from tests.walls.world import node

pytestmark = pytest.mark.timeout(60)

ONE_NODE, OTHER = node(REMOTE_1), node(REMOTE_2)


class Lying(WalledLeaf):
    """A leaf node whose owner has the password of one node and passes it off as every other's."""

    @override
    def remote(self, user: str) -> str:
        return super().remote(ONE_NODE.user)


class Guessing(WalledLeaf):
    """A leaf node that names another node but has not its password."""

    @override
    def remote(self, user: str) -> str:
        return super().remote(user).replace(f"p-{OTHER.user}", f"p-{ONE_NODE.user}")


class Nameless(WalledLeaf):
    """A leaf node without any password."""

    @override
    def remote(self, user: str) -> str:
        return f"nats-leaf://127.0.0.1:{self.hub.leaf_port}"


class AsAService(WalledLeaf):
    """A leaf node that came by the password of a service: what it passes on is in the account of the streams."""

    @override
    def remote(self, user: str) -> str:
        return f"nats-leaf://billing:{self.hub.passwords['billing']}@127.0.0.1:{self.hub.leaf_port}"


async def test_a_site_that_lies_about_its_nodes_speaks_for_the_one_it_has_the_password_of(
    walled: WalledServer, operator: Principal
) -> None:
    with Lying(walled, REMOTE_2) as leaf:
        async with principal(leaf, OTHER.user) as liar:
            await until(lambda: _said(liar, ONE_NODE.says), 10, "the leaf node to be connected")
            before = await stored(operator)
            await liar.say(OTHER.says, b"a lie")
            await liar.say(OTHER.says, b"a lie", reply="x")
            assert await liar.take(OTHER.more) is None
            assert await liar.ask(OTHER.info) is None
            assert await _said(liar, ONE_NODE.says)
            assert {one.subject for one in await stored(operator) - before} == {ONE_NODE.says}


@pytest.mark.parametrize("kind", [Guessing, Nameless])
async def test_a_site_without_the_password_of_a_node_is_not_let_in(
    walled: WalledServer, operator: Principal, kind: type[WalledLeaf]
) -> None:
    before = await stored(operator)
    with kind(walled, REMOTE_2) as leaf, WalledLeaf(walled, REMOTE_1) as honest:
        async with principal(leaf, OTHER.user) as guesser, principal(honest, ONE_NODE.user) as agent:
            await until(lambda: "Authorization Violation" in leaf.log.read_text(), 10, "the hub to refuse")
            await guesser.say(OTHER.says, b"a guess")
            await until(lambda: _said(agent, ONE_NODE.says), 10, "the honest leaf node to be connected")
    assert {one.subject for one in await stored(operator) - before} == {ONE_NODE.says}


async def test_an_agent_may_move_from_its_site_to_the_hub(walled: WalledServer, site: WalledLeaf) -> None:
    async with principal(site, ONE_NODE.user) as there, principal(walled, ONE_NODE.user) as here:
        await until(lambda: _said(there, ONE_NODE.says), 10)
        await until(lambda: _said(here, ONE_NODE.says), 10)


async def test_a_service_gets_no_further_by_way_of_a_leaf_node(walled: WalledServer, operator: Principal) -> None:
    own, other = registry.INVOICES_ISSUED.subject(ACME), registry.JOBS_ACCEPTED.subject(ACME)
    with AsAService(walled, REMOTE_2) as leaf:
        async with (
            principal(leaf, OTHER.user, inbox_prefix="_INBOX.billing") as spy,
            principal(walled, tenant_user(ACME)) as victim,
        ):
            await until(lambda: _said(spy, own), 10, "the leaf node to be connected")
            await spy.listen(">")
            await spy.listen("jobs.v1.submit.*")
            await spy.listen("$JS.ACK.>")
            assert await _said(spy, own)
            before = await stored(operator)
            await spy.say(other, b"forged")
            await spy.say("$JS.API.STREAM.PURGE.JOBS_CMD", reply="x")
            assert await _said(victim, registry.JOBS_SUBMIT.subject(ACME))
            assert await _said(spy, own)
            gained = await stored(operator) - before
            assert {one.subject for one in gained} == {own, registry.JOBS_SUBMIT.subject(ACME)}
            heard = {message.subject for message in spy.heard if message.data != b"forged"}
            assert {subject for subject in heard if subject.startswith("jobs.")} == set()


async def _said(party: Principal, subject: str) -> bool:
    ack = await party.ask(subject, b"the truth")
    return ack is not None and b'"seq"' in ack.data
