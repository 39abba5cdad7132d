"""Processes that are killed at any moment: each effect once, each event once."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from contracts import registry
from libs.bus import Client
from libs.db import Pool
from libs.kit.ids import new_id
from tests.bus.rig import effects, job, submit
from tests.servers import STOP_TIMEOUT_S, NatsServer
from tests.waiting import until

ROOT = Path(__file__).parents[2]
JOBS = 400
KILLS = 5


def start(hub: NatsServer, dsn: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.bus.victim", hub.url, dsn], cwd=ROOT)


async def test_a_service_killed_again_and_again_does_everything_once(
    hub: NatsServer, client: Client, pool: Pool, database: str
) -> None:
    names = [f"job-{number}" for number in range(JOBS)]
    slots = asyncio.Semaphore(32)

    async def send(name: str) -> None:
        async with slots:
            await submit(client, job(name), id=new_id())

    victim = start(hub, database)
    sending = asyncio.gather(*(send(name) for name in names))
    for kill in range(1, KILLS + 1):
        goal = kill * JOBS // (KILLS + 2)
        await until(lambda goal=goal: _count(pool, goal), 60)
        victim.kill()
        victim.wait(STOP_TIMEOUT_S)
        victim = start(hub, database)
    await sending
    await until(lambda: _count(pool, JOBS), 60)
    await until(lambda: _quiet(client), 60)
    victim.send_signal(signal.SIGTERM)
    assert victim.wait(STOP_TIMEOUT_S * 2) == 0
    assert Counter(await effects(pool)) == Counter(names)
    events = await client.history([registry.JOBS_REJECTED])
    assert Counter(event.body.name for event in events) == Counter(names)
    assert await client.history([registry.DEADLETTERED]) == []


async def _count(pool: Pool, wanted: int) -> bool:
    return len(await effects(pool)) >= wanted


async def _quiet(client: Client) -> bool:
    """Every submission is acknowledged and every event is out."""
    commands = await client.js.stream_info("JOBS_CMD")
    events = await client.js.stream_info("JOBS")
    return commands.state.messages == 0 and events.state.messages >= JOBS
