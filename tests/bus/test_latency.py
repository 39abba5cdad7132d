"""A message is handled as it arrives: no pull sits on a partial batch (PITFALLS, fetch of more than one)."""

import asyncio
import time
from collections.abc import Sequence
from statistics import median

from contracts import registry
from contracts.attempts import AttemptProgressed, ProgressPoint
from contracts.jobs import JobSpec
from libs.bus import Client, Event, Tx
from libs.db import Connection, Pool
from libs.kit.ids import new_id
from tests.bus.rig import NOW, job, new_app, running, submit
from tests.servers import NatsServer
from tests.waiting import until

LIMIT_S = 0.05
ROUNDS = 12


def progress(step: int, *, node: str = "central-1", job_id: str = "") -> AttemptProgressed:
    return AttemptProgressed(
        job_id=job_id or new_id(),
        tenant="acme",
        attempt=1,
        member=0,
        node=node,
        incarnation=new_id(),
        points=[ProgressPoint(step=step)],
        reported_at=NOW,
    )


async def report(client: Client, step: int) -> None:
    body = progress(step)
    await client.publish(
        registry.ATTEMPTS_PROGRESSED, body, key=body.node, subject=body.job_id, actor="x", sequence=step
    )


async def test_a_lone_message_is_handled_within_milliseconds(hub: NatsServer, client: Client, pool: Pool) -> None:
    handled = asyncio.Event()

    async def handle(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        del tx, event
        handled.set()

    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, handle)
    taken: list[float] = []
    async with running(app):
        for _ in range(ROUNDS):
            start = time.perf_counter()
            await submit(client, job())
            await asyncio.wait_for(handled.wait(), 5)
            taken.append(time.perf_counter() - start)
            handled.clear()
            await asyncio.sleep(0.05)  # a low rate: each message finds the pull lingering
    assert median(taken) < LIMIT_S, taken


async def test_a_lone_message_does_not_wait_for_its_batch_to_fill(hub: NatsServer, client: Client, pool: Pool) -> None:
    handled = asyncio.Event()

    async def handle(tx: Tx[Connection], events: Sequence[Event[AttemptProgressed]]) -> None:
        del tx, events
        handled.set()

    app = new_app(hub.url, pool)
    app.on_batch(registry.ATTEMPTS_PROGRESSED, handle)
    taken: list[float] = []
    async with running(app):
        for step in range(ROUNDS):
            start = time.perf_counter()
            await report(client, step)
            await asyncio.wait_for(handled.wait(), 5)
            taken.append(time.perf_counter() - start)
            handled.clear()
            await asyncio.sleep(0.05)  # as above
    assert median(taken) < LIMIT_S, taken


async def test_an_event_leaves_the_outbox_within_milliseconds(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    reading = client.events([registry.DEADLETTERED], since="all")
    app.on(registry.JOBS_SUBMIT, _ignore)
    taken: list[float] = []
    async with running(app):
        await client.js.publish(registry.JOBS_SUBMIT.subject("acme"), b"{")
        await anext(reading)
        for _ in range(ROUNDS):
            start = time.perf_counter()
            await client.js.publish(registry.JOBS_SUBMIT.subject("acme"), b"{")
            await anext(reading)
            taken.append(time.perf_counter() - start)
    await reading.aclose()
    assert median(taken) < 2 * LIMIT_S, taken


async def _ignore(tx: Tx[Connection], event: Event[JobSpec]) -> None:
    del tx, event


async def test_several_messages_are_handled_at_once(hub: NatsServer, client: Client, pool: Pool) -> None:
    running_now: set[str] = set()
    most = 0
    release = asyncio.Event()

    async def slow(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        nonlocal most
        del tx
        running_now.add(event.id)
        most = max(most, len(running_now))
        await release.wait()
        running_now.discard(event.id)

    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, slow)
    async with running(app):
        await asyncio.gather(*(submit(client, job()) for _ in range(8)))
        await until(lambda: most == 8)
        release.set()
        await until(lambda: not running_now)


async def test_a_batch_that_fails_is_halved_down_to_the_message_at_fault(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    seen: list[int] = []
    release = asyncio.Event()

    async def handle(tx: Tx[Connection], events: Sequence[Event[AttemptProgressed]]) -> None:
        await release.wait()
        steps = [event.body.points[0].step for event in events]
        await tx.conn.executemany("INSERT INTO effects VALUES ('x', $1)", [(str(step),) for step in steps])
        if 13 in steps:
            text = "unlucky"
            raise ValueError(text)
        seen.extend(steps)

    app = new_app(hub.url, pool)
    app.on_batch(registry.ATTEMPTS_PROGRESSED, handle)
    async with running(app):
        await report(client, 99)
        for step in range(30):
            await report(client, step)
        release.set()
        await until(lambda: len(seen) == 30)
        letters = client.events([registry.DEADLETTERED], since="all")
        letter = (await anext(letters)).body
        await letters.aclose()
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM effects") == 30
    assert 13 not in seen
    assert letter.message == "ValueError: unlucky"
    assert letter.consumer == "scheduler-attempts-progressed"
