"""What one guest may take of the server, and that the others do not feel it."""

import asyncio
import contextlib

import pytest
from nats.js import JetStreamContext
from nats.js.errors import APIError

from contracts import registry
from libs.bus.accounts import GUEST_CONNECTIONS, GUEST_SUBSCRIPTIONS, OPERATOR
from tests.waiting import until
from tests.walls.hub import ACME, BETA, Line, Principal, WalledServer, line, principal
from tests.walls.world import tenant

pytestmark = pytest.mark.timeout(120)

GREEDY, VICTIM = tenant(ACME), tenant(BETA)
MAX_PAYLOAD = 2 * 1024 * 1024
FLOOD = 100  # messages of a megabyte: more than the server keeps for a connection that does not read
MEGABYTE = b"x" * 1_000_000


async def served(victim: Principal) -> None:
    """The other tenant still gets its PubAck."""
    ack = await JetStreamContext(victim.nc, timeout=10).publish(VICTIM.says, b"{}")
    assert ack.seq > 0


async def test_a_message_above_the_limit_ends_its_own_connection(walled: WalledServer) -> None:
    async with principal(walled, VICTIM.user) as victim:
        async with line(walled, GREEDY.user) as greedy:
            greedy.writer.write(f"PUB {GREEDY.says} {MAX_PAYLOAD + 1}\r\n".encode())
            assert b"Maximum Payload Violation" in await greedy.told(b"-ERR")
        async with line(walled, GREEDY.user) as modest:
            assert b"PONG" in await modest.told(b"PONG")
            modest.writer.write(f"PUB x {MAX_PAYLOAD}\r\n".encode() + b"x" * MAX_PAYLOAD + b"\r\nPING\r\n")
            assert b"PONG" in await modest.told(b"PONG")
        await served(victim)


async def test_connections_of_a_guest_are_counted(walled: WalledServer) -> None:
    async with contextlib.AsyncExitStack() as held, principal(walled, VICTIM.user) as victim:
        for _ in range(GUEST_CONNECTIONS):
            one: Line = await held.enter_async_context(line(walled, GREEDY.user))
            assert b"PONG" in await one.told(b"PONG")
        async with line(walled, GREEDY.user) as more:
            assert b"maximum account active connections exceeded" in await more.told(b"-ERR")
        await served(victim)
        async with principal(walled, VICTIM.user) as another:
            await served(another)


async def test_commands_of_a_tenant_that_wait_are_counted(walled: WalledServer) -> None:
    bound = registry.JOBS_CMD.waiting_per_key
    assert bound is not None
    async with (
        principal(walled, GREEDY.user) as greedy,
        principal(walled, VICTIM.user) as victim,
        principal(walled, OPERATOR) as operator,
    ):
        for _ in range(2 * bound):
            await greedy.say(GREEDY.says)
        await greedy.nc.flush(timeout=60)
        with pytest.raises(APIError, match="maximum messages per subject exceeded"):
            await JetStreamContext(greedy.nc, timeout=10).publish(GREEDY.says, b"{}")
        await served(victim)
        info = await operator.js.stream_info(registry.JOBS_CMD.name, subjects_filter=GREEDY.says)
        assert info.state.subjects == {GREEDY.says: bound}
        await operator.js.purge_stream(registry.JOBS_CMD.name, subject=GREEDY.says)
        assert (await JetStreamContext(greedy.nc, timeout=10).publish(GREEDY.says, b"{}")).seq > 0


async def test_subscriptions_of_a_connection_are_counted(walled: WalledServer) -> None:
    async with line(walled, GREEDY.user) as greedy, principal(walled, VICTIM.user) as victim:
        for number in range(GUEST_SUBSCRIPTIONS + 1):
            greedy.writer.write(f"SUB x.{number} {number}\r\n".encode())
        assert b"maximum subscriptions exceeded" in (await greedy.told(b"-ERR")).lower()
        await victim.listen("mine")
        await served(victim)


async def test_who_does_not_read_is_cut_off_and_nobody_else(walled: WalledServer) -> None:
    async with line(walled, GREEDY.user) as deaf, principal(walled, VICTIM.user) as victim:
        deaf.writer.write(b"SUB noise 1\r\n")
        assert b"PONG" in await deaf.told(b"PONG")
        async with principal(walled, GREEDY.user, pending_size=2 * len(MEGABYTE)) as loud:
            shouting = asyncio.create_task(_shout(loud))
            while not shouting.done():
                await served(victim)
            await shouting
        await until(lambda: "Slow Consumer" in walled.log.read_text(), 30, "the deaf one to be cut off")
        await served(victim)


async def _shout(loud: Principal) -> None:
    for _ in range(FLOOD):
        await loud.say("noise", MEGABYTE)
        await loud.nc.flush(timeout=30)
