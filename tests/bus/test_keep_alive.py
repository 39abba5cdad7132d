"""A message that takes long, or waits its turn, is not delivered to anybody else meanwhile (PITFALLS 10)."""

import asyncio
from dataclasses import replace

import pytest
from nats.js.api import ConsumerConfig

from contracts import registry
from contracts.jobs import JobSpec
from contracts.registry import SCHEDULER, Consumer
from libs.bus import App, BusError, Client, Event, SqliteLedger, Tx
from libs.bus.connection import add_consumer
from libs.bus.ledger_sqlite import MEMORY
from libs.db import Connection, Pool
from libs.kit.settings import ServiceSettings
from tests.bus.rig import effects, job, new_app, record, running, submit
from tests.servers import NatsServer
from tests.waiting import until

ACK_WAIT_S = 0.6
HASTY = replace(registry.JOBS_SUBMIT, consumers=(Consumer(SCHEDULER, ack_wait_s=ACK_WAIT_S),))
DURABLE = "scheduler-jobs-submit"


async def test_pitfall_10_what_is_handled_slowly_or_waits_is_not_delivered_twice(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    subject = registry.JOBS_SUBMIT.subject("*")
    hasty = ConsumerConfig(durable_name=DURABLE, ack_wait=ACK_WAIT_S, filter_subject=subject)
    await add_consumer(client.js, "JOBS_CMD", hasty)
    tries: list[str] = []

    async def slow(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        tries.append(event.body.name)
        await asyncio.sleep(ACK_WAIT_S * 2)  # longer than the server would wait by itself
        await record(tx, event)

    app = new_app(hub.url, pool)
    app.on(HASTY, slow)
    names = [f"job-{number}" for number in range(30)]
    async with running(app):
        for name in names:
            await submit(client, job(name))
        await until(lambda: _count(pool, len(names)), 30)
        info = await client.js.consumer_info("JOBS_CMD", DURABLE)
        assert info.num_redelivered == 0
    assert sorted(tries) == sorted(names)


async def _count(pool: Pool, wanted: int) -> bool:
    return len(await effects(pool)) == wanted


async def test_what_a_stopping_app_cannot_finish_is_handed_back_at_once(
    hub: NatsServer, client: Client, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libs.bus.subscribers.GRACEFUL_S", 0.2)
    entered = asyncio.Event()

    async def stuck(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        del tx, event
        entered.set()
        await asyncio.Event().wait()

    first, second = new_app(hub.url, pool), new_app(hub.url, pool)
    first.on(registry.JOBS_SUBMIT, stuck)
    second.on(registry.JOBS_SUBMIT, record)
    async with running(first):
        await submit(client, job("handed-back"))
        await entered.wait()
    async with running(second):
        await until(lambda: _count(pool, 1), registry.JOBS_SUBMIT.consumers[0].ack_wait_s / 2)


def test_a_handler_needs_its_row_in_the_registry() -> None:
    ledger = SqliteLedger(MEMORY, "/farside/test")
    app = App("transfer", ServiceSettings(), ledger)
    with pytest.raises(BusError, match=r"transfer handles jobs.submit.v1, but the registry names no such consumer"):
        app.on(registry.JOBS_SUBMIT, _ignore)
    agent = App("agent", ServiceSettings(), ledger)
    with pytest.raises(BusError, match=r"goes to one node"):
        agent.on(registry.WORK_RUN, _ignore)
    named = App("agent", ServiceSettings(), ledger, node="central-1")
    named.on(registry.WORK_RUN, _ignore)
    with pytest.raises(BusError, match="has a handler already"):
        named.on(registry.WORK_RUN, _ignore)
    ledger.close()


async def _ignore(tx: object, event: object) -> None:
    del tx, event
