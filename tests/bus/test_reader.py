"""Reading without a durable: in order, across restarts, up to the end when asked."""

import asyncio

import pytest

from contracts import registry
from contracts.jobs import JobRejected
from contracts.nodes import NodeHeartbeat
from libs.bus import BusError, Client, Event
from libs.kit.ids import new_id
from libs.kit.tasks import reap
from tests.bus.rig import NOW, tell
from tests.servers import NatsServer
from tests.waiting import until


async def beat(client: Client, node: str, counter: int) -> None:
    body = NodeHeartbeat(node=node, incarnation=new_id(), counter=counter, lease_s=240, sent_at=NOW)
    await client.publish(registry.NODES_HEARTBEAT, body, key=node, subject=node, sequence=counter, actor=node)


async def collect(client: Client, into: list[Event[NodeHeartbeat]], since: str) -> None:
    assert since in {"all", "new", "newest"}
    reading = client.events([registry.NODES_HEARTBEAT], since=since)  # pyright: ignore[reportArgumentType]
    try:
        async for event in reading:
            into.append(event)  # noqa: PERF401 - it never ends
    finally:
        await reading.aclose()


async def test_history_ends_and_keeps_the_newest(client: Client) -> None:
    assert await client.history([registry.JOBS_REJECTED]) == []
    for number in range(10):
        await tell(client, f"{number}")
    events = await client.history([registry.JOBS_REJECTED, registry.JOBS_HELD], limit=3)
    assert words(events) == ["7", "8", "9"]
    assert events[0].delivery is not None
    again = await client.history([registry.JOBS_REJECTED], since=events[0].delivery.stream_sequence)
    assert words(again) == ["7", "8", "9"]


def words(events: list[Event[JobRejected]]) -> list[str]:
    return [event.body.reason.message for event in events]


async def test_a_work_queue_is_not_for_reading(client: Client) -> None:
    with pytest.raises(BusError, match="JOBS_CMD is a work queue"):
        await client.history([registry.JOBS_SUBMIT])
    with pytest.raises(BusError, match="one stream"):
        await client.history([registry.JOBS_REJECTED, registry.NODES_GRADED])


async def test_what_cannot_be_decoded_is_left_out(client: Client) -> None:
    await client.js.publish(registry.JOBS_REJECTED.subject("acme"), b"{")
    await tell(client, "good")
    assert words(await client.history([registry.JOBS_REJECTED])) == ["good"]


async def test_keys_select_tenants(client: Client) -> None:
    for tenant in ("a", "b", "c"):
        await tell(client, tenant, key=tenant)
    assert words(await client.history([registry.JOBS_REJECTED], key=["a", "c"])) == ["a", "c"]


async def test_the_newest_of_each_node_comes_first_then_what_follows(client: Client) -> None:
    for counter in range(3):
        await beat(client, "central-1", counter)
        await beat(client, "remote-1", counter)
    seen: list[Event[NodeHeartbeat]] = []
    reading = asyncio.create_task(collect(client, seen, "newest"))
    await until(lambda: len(seen) == 2)
    await beat(client, "central-1", 3)
    await until(lambda: len(seen) == 3)
    await reap([reading])
    assert [(event.key, event.body.counter) for event in seen] == [("central-1", 2), ("remote-1", 2), ("central-1", 3)]
    newest = await client.last(registry.NODES_HEARTBEAT, key="remote-1")
    assert newest is not None
    assert newest.body.counter == 2
    assert await client.last(registry.NODES_HEARTBEAT, key="nowhere") is None


async def test_a_reader_goes_on_after_the_hub_was_restarted_and_its_memory_lost(
    hub: NatsServer, client: Client
) -> None:
    seen: list[Event[NodeHeartbeat]] = []
    reading = asyncio.create_task(collect(client, seen, "all"))
    for counter in range(3):
        await beat(client, f"n-{counter}", counter)
    await until(lambda: len(seen) == 3)
    hub.kill()
    hub.start()
    await until(lambda: client.connection.is_connected)
    await until(lambda: _beats(client, 3), 15)
    await until(lambda: seen[-1].body.counter == 3, 15)
    await beat(client, "n-4", 4)
    await until(lambda: seen[-1].body.counter == 4)
    await reap([reading])


async def _beats(client: Client, counter: int) -> bool:
    """The server comes back with its streams some moment later."""
    try:
        await beat(client, f"n-{counter}", counter)
    except Exception:  # noqa: BLE001 - not there yet
        return False
    return True


async def test_a_reader_of_a_kept_stream_misses_and_repeats_nothing_across_restarts(
    hub: NatsServer, client: Client
) -> None:
    names: list[str] = []

    async def read() -> None:
        async for event in client.events([registry.JOBS_REJECTED], since="all"):
            names.append(event.body.reason.message)  # noqa: PERF401 - it never ends

    reading = asyncio.create_task(read())
    for number in range(30):
        await tell(client, f"{number}")
        if number in {10, 20}:
            hub.kill()
            hub.start()
    await until(lambda: len(names) >= 30, 20)
    assert names == [f"{number}" for number in range(30)]
    await reap([reading])
