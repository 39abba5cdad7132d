"""Outages that are nobody's silence: of the hub, of PostgreSQL, of inventory itself."""

import asyncio
import signal
from pathlib import Path

from contracts import registry
from contracts.requests import BreakerRelease
from libs.bus.provision import ensure_stream
from tests.inventory.harness import PATIENCE_S, Process, Stage, open_stage
from tests.servers import PostgresServer
from tests.waiting import until

OUTAGE_S = 3.5  # longer than lost_s


async def outage() -> None:
    """Something is away for longer than a node may be silent; there is no condition to wait for but time."""
    await asyncio.sleep(OUTAGE_S)


async def test_restart_of_the_hub_loses_nobody(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        await stage.join(name)
    stage.hub.kill()
    await outage()
    stage.hub.start()
    await stage.watched(2)
    assert stage.phases() == {"graded"}
    await stage.agents[0].stop()
    await stage.told("a", "lost")
    assert stage.story("b") == ["graded"]


async def test_frozen_inventory_suspects_nobody(stage: Stage) -> None:
    for name in ("a", "b"):
        await stage.join(name)
    await stage.watched(1)
    stage.inventory.send(signal.SIGSTOP)
    await outage()
    stage.inventory.send(signal.SIGCONT)
    await stage.watched(2)
    assert stage.phases() == {"graded"}


async def test_killed_inventory_does_not_forget_a_silent_node(stage: Stage) -> None:
    quiet = await stage.join("quiet")
    await stage.join("busy")
    await quiet.stop()
    await stage.watched(1.5)
    before_ms = await stage.observed_ms()
    stage.inventory.end(signal.SIGKILL)
    await outage()
    stage.inventory.start()
    await stage.told("quiet", "lost")
    assert stage.story("busy") == ["graded"]
    lost_ms = await stage.db.fetchval("SELECT lost_ms FROM inventory.nodes WHERE node = 'quiet'")
    assert 400 < lost_ms - before_ms < 2000, "what was observed before counts, the time between does not"


async def test_standby_takes_over_from_a_killed_leader(stage: Stage, tmp_path: Path) -> None:
    quiet = await stage.join("quiet")
    await stage.join("busy")
    standby = Process(stage.hub.url, stage.dsn, tmp_path / "standby.log")
    standby.start()
    try:
        await until(lambda: standby.said("app.started"), PATIENCE_S)
        stage.inventory.end(signal.SIGKILL)
        await quiet.stop()
        await stage.told("quiet", "lost")
        assert stage.story("busy") == ["graded"]
        assert standby.end() == 0
    finally:
        standby.close()


async def test_deleted_stream_that_was_provisioned_again_is_read(stage: Stage) -> None:
    agent = await stage.join("a")
    await stage.join("b")
    await stage.client.js.delete_stream("HEARTBEATS")
    await until(lambda: stage.inventory.said("watch.round_failed"), PATIENCE_S)
    await ensure_stream(stage.client.js, registry.HEARTBEATS)
    await stage.watched(2)
    assert stage.phases() == {"graded"}
    await agent.stop()
    await stage.told("a", "lost")


async def test_outage_of_postgres_loses_nobody(tmp_path: Path) -> None:
    with PostgresServer() as postgres:
        async with open_stage(postgres.create_database(), tmp_path) as stage:
            for name in ("a", "b"):
                await stage.join(name)
            await stage.watched(1)
            postgres.kill()
            await outage()
            postgres.start()
            await stage.reopen()
            await stage.watched(2)
            assert stage.phases() == {"graded"}
            await stage.agents[0].stop()
            await stage.told("a", "lost")
            assert stage.story("b") == ["graded"]


async def test_mass_silence_is_held_and_released_by_return(stage: Stage) -> None:
    names = ("a", "b", "c", "d")
    for name in names:
        await stage.join(name)
    for agent in stage.agents[:3]:
        await agent.stop()
    assert [(await stage.told(name, "lost")).requeue_held for name in names[:3]] == [True] * 3
    stage.agents[0].beats()
    assert not (await stage.told("a", "returned")).requeue_held
    released = [await stage.told(name, "lost", after=3) for name in names[1:3]]
    assert [state.requeue_held for state in released] == [False, False]
    assert "requeueing released: 2 of 4 nodes silent" in released[0].reason
    moves = [(event, kind, sequence, actor) for event, kind, sequence, actor, _ in await stage.breakers(2)]
    assert moves == [("opened", "silence", 1, "inventory"), ("closed", "silence", 2, "inventory")]


async def test_mass_silence_is_released_by_hand(stage: Stage) -> None:
    names = ("a", "b", "c")
    for name in names:
        await stage.join(name)
    for agent in stage.agents:
        await agent.stop()
    assert [(await stage.told(name, "lost")).requeue_held for name in names] == [True] * 3
    order = BreakerRelease(reason="the room is gone")
    reply = await stage.client.request(registry.CALL_RELEASE, order, key="_", timeout_s=PATIENCE_S)
    assert (reply.was_open, reply.released) == (True, 3)
    told = await stage.told("c", "lost", after=3)
    assert (told.requeue_held, told.reason) == (False, "requeueing released: the room is gone")
    again = await stage.client.request(registry.CALL_RELEASE, order, key="_", timeout_s=PATIENCE_S)
    assert (again.was_open, again.released) == (False, 0)
    row = await stage.db.fetchrow("SELECT closed_by, closed_reason FROM inventory.breaker")
    assert row is not None
    assert (row["closed_by"], row["closed_reason"]) == ("test", "the room is gone")
    assert (await stage.breakers(2))[1] == ("closed", "silence", 2, "test", "the room is gone")
