"""One of several replicas leads: the standby pulls nothing, takes over, and a former leader's work is void."""

import asyncio
from collections.abc import Sequence

import pytest
from nats.aio.msg import Msg

from contracts import registry
from contracts.attempts import AttemptProgressed
from contracts.requests import NodesPage, NodesQuery, StatusQuery
from libs.bus import Call, Client, Event, NotLeader, PgLedger, Tx
from libs.bus.connection import settle, subscribe
from libs.bus.publisher import Publisher
from libs.db import Connection, Pool
from tests.bus.rig import TENANT, effects, job, new_app, record, running, submit
from tests.bus.test_latency import report
from tests.servers import NatsServer
from tests.waiting import until


async def test_the_standby_pulls_nothing_and_takes_over(hub: NatsServer, client: Client, pool: Pool) -> None:
    first, second = new_app(hub.url, pool, leader=True), new_app(hub.url, pool, leader=True)
    for app in (first, second):
        app.on(registry.JOBS_SUBMIT, record)
    async with running(first):
        await until(lambda: first.gate.leading)
        async with running(second):
            for number in range(10):
                await submit(client, job(f"{number}"))
            await until(lambda: _count(pool, 10))
            assert not second.gate.is_open
            assert await _waiting_pulls(client) == 1
            first.stop()
            await until(lambda: second.gate.leading)
            await submit(client, job("after"))
            await until(lambda: _count(pool, 11))
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT epoch FROM leader") == 2


async def _count(pool: Pool, wanted: int) -> bool:
    return len(await effects(pool)) == wanted


async def _waiting_pulls(client: Client) -> int:
    info = await client.js.consumer_info("JOBS_CMD", "scheduler-jobs-submit")
    return info.num_waiting or 0


async def test_a_leader_that_lost_its_session_lets_the_standby_in(hub: NatsServer, client: Client, pool: Pool) -> None:
    first, second = new_app(hub.url, pool, leader=True), new_app(hub.url, pool, leader=True)
    for app in (first, second):
        app.on(registry.JOBS_SUBMIT, record)
    async with running(first):
        await until(lambda: first.gate.leading)
        async with running(second):
            await _end_sessions_with_locks(pool)
            await until(lambda: second.gate.leading or first.gate.leading)
            for number in range(5):
                await submit(client, job(f"{number}"))
            await until(lambda: _count(pool, 5))
            await until(lambda: first.gate.leading != second.gate.leading)


async def _end_sessions_with_locks(pool: Pool) -> None:
    async with pool.acquire() as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )


async def test_a_former_leaders_transaction_is_void(pool: Pool) -> None:
    ledger = PgLedger(pool, "scheduler")
    election = ledger.election()
    ledger.lead(await election.win(0.05))
    async with ledger.transaction() as tx:
        await tx.conn.execute("INSERT INTO effects VALUES ('1', 'good')")
    await election.resign()
    other = PgLedger(pool, "scheduler").election()
    await other.win(0.05)
    with pytest.raises(NotLeader, match="held epoch 1, the newest is 2"):
        async with ledger.transaction() as tx:
            await tx.conn.execute("INSERT INTO effects VALUES ('2', 'void')")
    await other.resign()
    assert await effects(pool) == ["good"]


async def test_a_transaction_from_before_another_led_is_void_though_its_leader_leads_again(pool: Pool) -> None:
    """What it has read is older than what the other has done."""
    ledger = PgLedger(pool, "scheduler")
    election, other = ledger.election(), PgLedger(pool, "scheduler").election()
    ledger.lead(await election.win(0.05))

    async def outlast_another() -> None:
        async with ledger.transaction() as tx:
            await tx.conn.execute("INSERT INTO effects VALUES ('1', 'void')")
            await election.resign()
            await other.win(0.05)
            await other.resign()
            ledger.lead(await election.win(0.05))

    with pytest.raises(NotLeader, match="held epoch 1, the newest is 3"):
        await outlast_another()
    async with ledger.transaction() as tx:
        await tx.conn.execute("INSERT INTO effects VALUES ('2', 'good')")
    await election.resign()
    assert await effects(pool) == ["good"]


async def test_a_leader_that_hangs_loses_its_session(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process answers nobody and still holds its connection: the server must be the one to let go."""
    monkeypatch.setattr("libs.bus.ledger_pg.SILENT_LEADER_S", 1)
    hanging, other = (PgLedger(pool, "scheduler").election() for _ in range(2))
    assert await hanging.win(0.05) == 1
    async with asyncio.timeout(10):
        assert await other.win(0.05) == 2
    holding = asyncio.create_task(other.hold(0.1))
    await hanging.hold(0.1)
    done, _ = await asyncio.wait([holding], timeout=2)
    assert not done, "a leader that asks now and then keeps its session"
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    for election in (hanging, other):
        await election.resign()


async def test_the_election_waits_for_transactions_of_the_former_leader(pool: Pool) -> None:
    """The new epoch is written only when nothing of the old one can commit any more."""
    ledger = PgLedger(pool, "scheduler")
    election = ledger.election()
    ledger.lead(await election.win(0.05))
    entered, leave = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with ledger.transaction() as tx:
            await tx.conn.fetchval("SELECT epoch FROM leader FOR SHARE")
            entered.set()
            await leave.wait()
            await tx.conn.execute("INSERT INTO effects VALUES ('1', 'just in time')")

    working = asyncio.create_task(work())
    await entered.wait()
    await election.resign()
    other = PgLedger(pool, "scheduler").election()
    winning = asyncio.create_task(other.win(0.05))
    done, _ = await asyncio.wait([winning], timeout=0.5)
    assert not done
    leave.set()
    await working
    assert await winning == 2
    await other.resign()


async def test_only_the_leader_answers_calls_and_every_replica_tells_its_status(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    answered: list[str] = []

    def nodes_of(name: str):  # noqa: ANN202 - a handler
        async def nodes(tx: Tx[Connection], call: Call[NodesQuery]) -> NodesPage:
            del tx, call
            answered.append(name)
            return NodesPage(nodes=[])

        return nodes

    first = new_app(hub.url, pool, leader=True, service="inventory")
    second = new_app(hub.url, pool, leader=True, service="inventory")
    first.serve(registry.QUERY_NODES, nodes_of("first"))
    second.serve(registry.QUERY_NODES, nodes_of("second"))
    async with running(first):
        await until(lambda: first.gate.leading)
        async with running(second):
            for _ in range(10):
                await client.request(registry.QUERY_NODES, NodesQuery(), key="_")
            assert set(answered) == {"first"}
            leaders = {
                (await client.request(registry.STATUS["inventory"], StatusQuery(), key="_")).leader for _ in range(30)
            }
            assert leaders == {True, False}
            first.stop()
            await client.request(registry.QUERY_NODES, NodesQuery(), key="_", timeout_s=10)
            await until(lambda: second.gate.leading)
            await client.request(registry.QUERY_NODES, NodesQuery(), key="_", timeout_s=10)
    assert answered[-1] == "second"


async def test_messages_come_to_the_replica_that_asked_for_them(hub: NatsServer, client: Client, pool: Pool) -> None:
    """A former leader that hung takes for a while beside the new one."""
    handled: list[str] = []

    async def handle(tx: Tx[Connection], events: Sequence[Event[AttemptProgressed]]) -> None:
        del tx
        handled.extend(event.id for event in events)

    first, second = new_app(hub.url, pool), new_app(hub.url, pool)
    for app in (first, second):
        app.on_batch(registry.ATTEMPTS_PROGRESSED, handle)
    async with running(first), running(second):
        for step in range(50):
            await report(client, step)
        await until(lambda: _settled(client))
    assert len(handled) == len(set(handled)) == 50


async def _settled(client: Client) -> bool:
    info = await client.js.consumer_info(registry.ATTEMPTS_PROGRESSED.stream.name, "scheduler-attempts-progressed")
    return (info.num_pending, info.num_ack_pending) == (0, 0)


async def test_a_puback_wakes_nobody_but_its_publisher(hub: NatsServer, client: Client) -> None:
    """Else one replica would mark a row by what another has published."""
    subject = registry.JOBS_REJECTED.subject(TENANT)
    async with (
        await Client.connect(hub.url, name="scheduler") as one,
        await Client.connect(hub.url, name="scheduler") as two,
    ):
        first, second = Publisher(one.connection), Publisher(two.connection)
        await first.open()
        await second.open()
        await subscribe(client.connection, "unanswered", _silent)
        await settle(client.connection, 5)
        lost = asyncio.create_task(first.publish("unanswered", b"{}", {}, stream="JOBS", timeout_s=1.0))
        while not lost.done():
            await second.publish(subject, b"{}", {}, stream="JOBS", timeout_s=5.0)
        with pytest.raises(TimeoutError):
            await lost


async def _silent(request: Msg) -> None:
    """Somebody is there, and says nothing."""
