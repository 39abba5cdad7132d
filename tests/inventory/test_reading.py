"""Reading the heartbeat stream to its end, whatever is in it and whatever happens to it meanwhile."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from contracts import registry
from contracts.deadletters import DeadReason
from contracts.nodes import ClockTick
from libs.bus import Client, Event, Invalid
from libs.bus.connection import server_of
from libs.bus.provision import ensure_stream
from libs.kit.ids import new_id
from services.inventory import heartbeats
from services.inventory.core.model import Clock
from services.inventory.heartbeats import HeartbeatReader, Mark, Reading, ReadingError
from tests.inventory.harness import FakeAgent
from tests.servers import NatsServer
from tests.unit.inventory.builders import T0
from tests.waiting import until

NEVER = Clock("", 0, T0, observed_ms=0, floor_ms=0)


@dataclass
class Desk:
    """A reader and the client beside it."""

    client: Client
    reader: HeartbeatReader

    async def mark(self) -> Mark:
        ack = await self.client.publish(
            registry.NODES_TICK,
            ClockTick(counter=1, reader=new_id()),
            key="_",
            subject="inventory",
            actor="inventory",
        )
        return Mark(ack.sequence, 10, 20)

    async def read(self, clock: Clock = NEVER) -> Reading:
        await self.reader.open()
        return await self.reader.read(clock, await self.mark())

    def agents(self, count: int) -> list[FakeAgent]:
        return [FakeAgent(self.client, f"n-{number}") for number in range(count)]

    async def raw(self, node: str, data: bytes, headers: dict[str, str]) -> None:
        subject = registry.NODES_HEARTBEAT.subject(node)
        await self.client.js.publish(subject, data, stream="HEARTBEATS", headers=headers)


def names(reading: Reading) -> list[str]:
    return [heard.key for heard in reading.heard]


def at(reading: Reading) -> Clock:
    return Clock(reading.tick.stream, reading.tick.read_sequence, reading.tick.stored_at, 0, 0)


@pytest.fixture
def hub() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.fixture
async def desk(hub: NatsServer) -> AsyncIterator[Desk]:
    async with await Client.connect(hub.url, name="inventory") as client:
        await ensure_stream(client.js, registry.HEARTBEATS)
        yield Desk(client, HeartbeatReader(client))


async def test_each_reading_has_what_came_since_the_one_before(desk: Desk) -> None:
    first, second, third = desk.agents(3)
    await first.beat()
    await second.beat()
    await first.beat()
    reading = await desk.read()
    assert names(reading) == ["n-1", "n-0"]
    assert (reading.tick.sent_ms, reading.tick.acked_ms, reading.tick.read_sequence) == (10, 20, 4)
    await third.beat()
    assert names(await desk.read(at(reading))) == ["n-2"]


async def test_heartbeat_behind_the_tick_is_read(desk: Desk) -> None:
    (agent,) = desk.agents(1)
    await desk.reader.open()
    mark = await desk.mark()
    await agent.beat()
    reading = await desk.reader.read(NEVER, mark)
    assert names(reading) == ["n-0"]
    assert reading.tick.read_sequence == mark.sequence + 1


async def test_small_batches_give_the_same(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BATCH", 3)
    for agent in desk.agents(10):
        await agent.beat()
    assert names(await desk.read()) == [f"n-{number}" for number in range(10)]


async def test_more_than_the_bound_of_batches_is_an_error(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BATCH", 2)
    monkeypatch.setattr(heartbeats, "MAX_BATCHES", 3)
    for agent in desk.agents(10):
        await agent.beat()
    with pytest.raises(ReadingError, match="5 messages behind 6 after 3 batches"):
        await desk.read()


async def test_headers_of_a_sender_cannot_pass_for_the_servers(desk: Desk) -> None:
    spoofed = {"Status": "404", "Nats-Sequence": "99", "Nats-Num-Pending": "0", "Nats-Last-Sequence": "7"}
    await desk.raw("evil", b"", spoofed)
    (agent,) = desk.agents(1)
    await agent.beat()
    reading = await desk.read()
    assert names(reading) == ["evil", "n-0"]
    assert reading.tick.read_sequence == 3


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[]", b'{"node": "b"}', b"x" * 1_100_000])
async def test_rubbish_is_told_and_blocks_nothing(desk: Desk, data: bytes) -> None:
    await desk.raw("bad", data, {"\t": "\0"})
    (agent,) = desk.agents(1)
    await agent.beat()
    bad, good = (await desk.read()).heard
    assert isinstance(bad, Invalid)
    assert isinstance(good, Event)


async def test_absurd_values_are_refused(desk: Desk) -> None:
    (agent,) = desk.agents(1)
    await agent.beat(lease_s=2**62)
    (heard,) = (await desk.read()).heard
    assert isinstance(heard, Invalid)
    assert heard.reason is DeadReason.REFUSED


async def test_tick_of_another_inventory_in_place_of_ours_is_an_error(desk: Desk) -> None:
    await desk.reader.open()
    mark = await desk.mark()
    await desk.mark()
    with pytest.raises(ReadingError, match="another inventory"):
        await desk.reader.read(NEVER, mark)


async def test_stream_made_anew_is_noticed(desk: Desk) -> None:
    reading = await desk.read()
    await desk.client.js.delete_stream("HEARTBEATS")
    await ensure_stream(desk.client.js, registry.HEARTBEATS)
    for agent in desk.agents(5):
        await agent.beat()
    with pytest.raises(ReadingError):
        await desk.read(at(reading))
    desk.reader.forget()
    again = await desk.read(at(reading))
    assert again.tick.stream != reading.tick.stream
    assert len(names(again)) == 5


async def test_stream_after_a_kill_of_its_server_is_another_life(desk: Desk, hub: NatsServer) -> None:
    """It may have lost what it acknowledged: nothing that was read before tells how far it goes now."""
    reading = await desk.read()
    connection, before = desk.client.connection, server_of(desk.client.connection)
    created = (await desk.client.js.stream_info("HEARTBEATS")).created
    hub.kill()
    hub.start()
    await until(lambda: connection.is_connected and server_of(connection) != before, 30.0, "the server to be back")
    assert (await desk.client.js.stream_info("HEARTBEATS")).created == created
    with pytest.raises(ReadingError, match="made anew"):
        await desk.read(at(reading))
    desk.reader.forget()
    again = await desk.read(at(reading))
    assert again.tick.stream != reading.tick.stream


async def test_stream_that_is_gone_is_an_error(desk: Desk) -> None:
    await desk.reader.open()
    mark = await desk.mark()
    await desk.client.js.delete_stream("HEARTBEATS")
    with pytest.raises(ReadingError, match="cannot be read"):
        await desk.reader.read(NEVER, mark)
