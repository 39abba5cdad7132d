"""Outages: what the libraries do behind our back when something goes away, and how libs.bus closes it."""

import asyncio
import signal
import time

import psutil
import pytest
from nats.aio.client import Client as NatsClient

from contracts import registry
from contracts.requests import NodesPage, NodesQuery, StatusQuery
from libs.bus import Call, Client, Problem, Tx
from libs.bus.connection import Address, Callbacks, close, connect
from libs.bus.provision import provision
from libs.db import Connection, Pool
from tests.bus.rig import PgApp, effects, job, new_app, new_pool, record, running, say, submit, take
from tests.proxy import Proxy
from tests.servers import NatsServer, PostgresServer
from tests.waiting import until

BACK_S = 3.0


async def _count(pool: Pool, wanted: int) -> bool:
    return len(await effects(pool)) >= wanted


async def _settled(client: Client) -> bool:
    info = await client.js.consumer_info("JOBS_CMD", "scheduler-jobs-submit")
    return info.num_ack_pending == 0 and info.num_pending == 0


async def test_pitfall_01_a_connection_closed_for_good_ends_the_process(
    hub: NatsServer, client: Client, pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    del client
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app) as task:
        await app.client.connection.close()
        assert await asyncio.wait_for(task, 10) == 1
    assert "closed for good" in capsys.readouterr().err


async def test_pitfall_01_an_idle_app_does_not_spin(hub: NatsServer, client: Client, pool: Pool) -> None:
    """Idle, and without a hub: neither may eat a processor."""
    del client
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    me = psutil.Process()
    async with running(app):
        for stopped in (False, True):
            if stopped:
                hub.stop()
            before = me.cpu_times().user
            await asyncio.sleep(1.5)  # the measurement itself
            assert me.cpu_times().user - before < 0.75


USERS = 'accounts {{ A {{ jetstream: enabled, users: [ {{ user: farside, password: "{password}" }} ] }} }}'
REFUSED = "authentication error"


@pytest.mark.parametrize("how", ["reload", "restart"])
async def test_pitfall_02_changed_credentials_lead_to_reconnecting_not_to_the_end(pool: Pool, how: str) -> None:
    with NatsServer(extra=USERS.format(password="old")) as hub:
        url = hub.url.replace("nats://", "nats://farside:old@")
        app = new_app(url, pool)
        app.on(registry.JOBS_SUBMIT, record)
        await provision(url)
        async with running(app) as task, await Client.connect(url, name="test") as client:
            await submit(client, job("before"))
            await until(lambda: _count(pool, 1))
            _change(hub, USERS.format(password="new"), how)
            await until(lambda: not app.client.connection.is_connected)
            refused = hub.log.read_text().count(REFUSED)
            await until(lambda: hub.log.read_text().count(REFUSED) >= refused + 2, what="two more refused attempts")
            assert not task.done()
            _change(hub, USERS.format(password="old"), how)
            await until(lambda: app.client.connection.is_connected and client.connection.is_connected, BACK_S)
            await submit(client, job("after"))
            await until(lambda: _count(pool, 2))


def _change(hub: NatsServer, extra: str, how: str) -> None:
    hub.extra = extra
    if how == "reload":
        hub.reload()
    else:
        hub.stop()
        hub.start()


@pytest.mark.parametrize(
    "error",
    [
        "'Authorization Violation'",
        "'User Authentication Expired'",
        "'User Authentication Revoked'",
        "'Account Authentication Expired'",
        "'Authorization Timeout'",
        "'Stale Connection'",
        "'maximum connections exceeded'",
        "'Something Never Seen Before'",
    ],
)
async def test_pitfall_03_no_error_of_the_server_kills_reconnecting(hub: NatsServer, error: str) -> None:
    del hub
    closed: list[str] = []
    told: list[str] = []
    ended: list[str] = []

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"headers":true}\r\n')
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
                told.append("up")
                if len(told) < 3:
                    writer.write(f"-ERR {error}\r\n".encode())
                    break
        writer.close()
        await writer.wait_closed()
        ended.append("x")

    listener = await asyncio.start_server(server, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    connection = await connect(Address(f"nats://127.0.0.1:{port}", "x"), Callbacks(closed=lambda: closed.append("x")))
    await until(lambda: len(told) >= 3 and connection.is_connected, 10)
    assert closed == []
    await close(connection)
    await until(lambda: len(ended) >= 3)
    listener.close()
    await listener.wait_closed()


async def test_pitfall_06_a_deleted_consumer_ends_the_process_with_a_remedy(
    hub: NatsServer, client: Client, pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app) as task:
        await client.js.delete_consumer("JOBS_CMD", "scheduler-jobs-submit")
        assert await asyncio.wait_for(task, 15) == 1
    assert "run `farside provision`" in capsys.readouterr().err


async def test_pitfall_06_an_app_waits_for_a_durable_that_is_not_there_yet(hub: NatsServer, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app, started=False):
        await until(lambda: app.connected)
        await provision(hub.url)
        await asyncio.wait_for(app.wait_started(), 10)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restarted_server_costs_nothing_but_time(
    hub: NatsServer, client: Client, pool: Pool, how: signal.Signals
) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app) as task:
        await submit(client, job("before"))
        await until(lambda: _count(pool, 1))
        hub.stop(how)
        async with app.transaction() as tx:
            say(tx, "while the hub was away")
        await until(lambda: not app.client.connection.is_connected, what="the outage to be noticed")
        hub.start()
        start = time.monotonic()
        await until(lambda: client.connection.is_connected, BACK_S)
        await submit(client, job("after"))
        await until(lambda: _count(pool, 2))
        await take(client, registry.JOBS_REJECTED, 3)
        assert time.monotonic() - start < BACK_S
        assert not task.done()
    assert await effects(pool) == ["before", "after"]


async def test_pitfall_08_a_publish_that_timed_out_is_published_again_under_its_id(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    """The ack is lost on its way: the row goes out again, and the stream has it once."""
    async with Proxy(hub.port) as proxy:
        app = new_app(f"nats://127.0.0.1:{proxy.port}", pool)
        app.on(registry.JOBS_SUBMIT, record)
        async with running(app):
            await submit(client, job("one"))
            await take(client, registry.JOBS_REJECTED, 1)
            proxy.hang_back()
            async with app.transaction() as tx:
                say(tx, "two")
            await take(client, registry.JOBS_REJECTED, 2)
            assert not await _published(app)
            proxy.cut()
            proxy.heal()
            await until(lambda: _published(app), 10)
        assert len(await client.history([registry.JOBS_REJECTED])) == 2


async def _published(app: PgApp) -> bool:
    return (await app.ledger.counts()).waiting == 0


async def _handled(client: Client, pool: Pool, wanted: int) -> bool:
    return await _count(pool, wanted) and await _settled(client)


@pytest.mark.parametrize("how", ["stop", "kill", "pause"])
async def test_an_outage_of_postgres_while_pulling_loses_and_repeats_nothing(
    hub: NatsServer, client: Client, how: str
) -> None:
    names = [f"job-{number}" for number in range(60)]
    with PostgresServer() as server:
        pool = await new_pool(server.create_database())
        app = new_app(hub.url, pool)
        app.on(registry.JOBS_SUBMIT, record)
        async with running(app) as task:
            for number, name in enumerate(names):
                await submit(client, job(name))
                if number == 20:
                    {"stop": server.stop, "kill": server.kill, "pause": server.pause}[how]()
                if number == 40:
                    await until(lambda: not app.gate.is_open, 40)
                    info = await client.js.consumer_info("JOBS_CMD", "scheduler-jobs-submit")
                    assert (info.num_redelivered or 0) == 0, "nothing is refused while the store is away"
                    server.resume() if how == "pause" else server.start()
            await until(lambda: _handled(client, pool, len(names)), 30)
            await take(client, registry.JOBS_REJECTED, len(names))
            assert not task.done()
        assert sorted(await effects(pool)) == sorted(names)
        assert len(await client.history([registry.JOBS_REJECTED])) == len(names)
        assert await client.history([registry.DEADLETTERED]) == []
        pool.terminate()


async def test_while_the_store_is_away_nothing_is_pulled_and_requests_are_told_so(
    hub: NatsServer, client: Client
) -> None:
    async def nodes(tx: Tx[Connection], call: Call[NodesQuery]) -> NodesPage:
        del call
        await tx.conn.execute("SELECT 1")
        return NodesPage(nodes=[])

    with PostgresServer() as server:
        pool = await new_pool(server.create_database(), "inventory")
        app = new_app(hub.url, pool, service="inventory")
        app.serve(registry.QUERY_NODES, nodes)
        async with running(app):
            await client.request(registry.QUERY_NODES, NodesQuery(), key="_")
            server.stop()
            with pytest.raises(Problem, match="unavailable"):
                await client.request(registry.QUERY_NODES, NodesQuery(), key="_", timeout_s=1)
            with pytest.raises(Problem, match="the store does not answer"):
                await client.request(registry.STATUS["inventory"], StatusQuery(), key="_", timeout_s=1)
            server.start()
            await client.request(registry.QUERY_NODES, NodesQuery(), key="_", timeout_s=5)
        pool.terminate()


async def test_a_task_is_started_again_after_an_outage(hub: NatsServer, client: Client) -> None:
    del client
    with PostgresServer() as server:
        pool = await new_pool(server.create_database())
        app = new_app(hub.url, pool)
        rounds: list[int] = []

        async def cycle() -> None:
            while True:
                async with app.transaction() as tx:
                    await tx.conn.execute("SELECT 1")
                rounds.append(1)
                await asyncio.sleep(0.02)  # the cycle's own rhythm

        app.task(cycle)
        async with running(app) as task:
            await until(lambda: len(rounds) > 2)
            server.stop()
            await until(lambda: not app.gate.is_open)
            server.start()
            before = len(rounds)
            await until(lambda: len(rounds) > before + 2)
            assert not task.done()
        pool.terminate()


async def test_a_task_that_crashes_ends_the_process(
    hub: NatsServer, client: Client, pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    del client
    app = new_app(hub.url, pool)

    async def crash() -> None:
        text = "boom"
        raise ValueError(text)

    app.task(crash)
    async with running(app, started=False) as task:
        assert await asyncio.wait_for(task, 10) == 1
    assert "boom" in capsys.readouterr().err


async def test_a_task_that_fails_again_and_again_with_a_passing_kind_of_error_ends_the_process_too(
    hub: NatsServer, client: Client, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    del client
    monkeypatch.setattr("libs.bus.app.TASK_RESTART_S", 0.01)
    app = new_app(hub.url, pool)
    tries: list[int] = []

    async def missing() -> None:
        tries.append(1)
        raise FileNotFoundError

    app.task(missing)
    async with running(app, started=False) as task:
        assert await asyncio.wait_for(task, 20) == 1
    assert 1 < len(tries) <= 20


async def test_a_request_survives_a_restart_of_the_server(hub: NatsServer, client: Client, pool: Pool) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def nodes(tx: Tx[Connection], call: Call[NodesQuery]) -> NodesPage:
        del tx, call
        if not asked.is_set():
            asked.set()
            await release.wait()  # the reply is lost with the connection
        return NodesPage(nodes=[])

    app = new_app(hub.url, pool, service="inventory")
    app.serve(registry.QUERY_NODES, nodes)
    async with running(app):
        start = time.monotonic()
        asking = asyncio.create_task(client.request(registry.QUERY_NODES, NodesQuery(), key="_", timeout_s=20))
        await asked.wait()
        hub.stop()
        hub.start()
        assert await asking == NodesPage(nodes=[])
        assert time.monotonic() - start < 10
        release.set()


async def test_pitfall_12_closing_ends_a_reconnect_that_swallows_its_cancellation(
    hub: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.wait_for` of Python 3.11 does so when an attempt fails just as it is cancelled."""

    async def refuse(self: NatsClient, s: object) -> None:
        del self, s
        try:
            await asyncio.sleep(0.2)  # an attempt
        except asyncio.CancelledError:
            raise ConnectionRefusedError from None

    connection = await connect(Address(hub.url, "x"), Callbacks())
    monkeypatch.setattr(NatsClient, "_connect_to_server", refuse)
    hub.stop()
    await until(lambda: connection.is_reconnecting)
    before = asyncio.all_tasks()
    async with asyncio.timeout(10):
        await close(connection)
    assert not [task for task in before if not task.done() and "_attempt_reconnect" in repr(task)]


async def test_connecting_to_nobody_can_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libs.kit.tasks.AGAIN_S", 0.05)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.7):
            await connect(Address("nats://127.0.0.1:1", "x"), Callbacks())


async def test_pitfall_12_stopping_while_the_hub_is_away_ends_in_good_order(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    del client
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app) as task:
        hub.stop()
        await until(lambda: not app.client.connection.is_connected)
        app.stop()
        assert await asyncio.wait_for(task, 15) == 0
