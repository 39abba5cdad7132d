"""An agent at the edge: its outbox in SQLite, its bus through a leaf node without JetStream (PITFALLS 23)."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from contracts import registry
from contracts.attempts import AttemptStarted
from contracts.jobs import Member
from contracts.nodes import NodeHeartbeat
from contracts.requests import ClaimReply, ClaimRequest
from contracts.work import WorkRun, WorkStop
from libs.bus import App, Call, Client, Event, Nested, Refused, SqliteLedger, Tx, deadletters
from libs.bus.provision import provision
from libs.db import Connection, Pool
from libs.kit.ids import new_id
from libs.kit.settings import ServiceSettings
from tests.bus.rig import NODES, NOW, QUICK, job, new_app, running, take
from tests.proxy import Proxy
from tests.servers import LeafServer, NatsServer
from tests.waiting import until

NODE = "remote-1"
AgentApp = App[sqlite3.Connection]


def run_offer(*, job_id: str | None = None, node: str = NODE) -> WorkRun:
    spec = job(job_id=job_id)
    member = Member(index=0, node=node, tier=registry.nodes.Tier.REMOTE, cards=[0])
    return WorkRun(
        job_id=spec.job_id, tenant=spec.tenant, attempt=1, generation=1, member=0, members=[member], spec=spec
    )


def started(job_id: str) -> AttemptStarted:
    return AttemptStarted(
        job_id=job_id, tenant="acme", attempt=1, member=0, node=NODE, incarnation=new_id(), started_at=NOW
    )


async def offer(client: Client, body: WorkRun, message_id: str | None = None) -> None:
    node = body.members[0].node
    await client.publish(
        registry.WORK_RUN, body, key=node, subject=body.job_id, actor="test", sequence=1, id=message_id
    )


async def start(tx: Tx[sqlite3.Connection], event: Event[WorkRun]) -> None:
    tx.conn.execute("CREATE TABLE IF NOT EXISTS started (job TEXT)")
    tx.conn.execute("INSERT INTO started VALUES (?)", (event.body.job_id,))
    tx.emit(
        registry.ATTEMPTS_STARTED,
        started(event.body.job_id),
        key=NODE,
        subject=event.body.job_id,
        sequence=1,
        actor="agent",
        incarnation=new_id(),
    )


@dataclass
class Edge:
    """A leaf behind a link that can be cut, and an agent on it."""

    link: Proxy
    leaf: LeafServer
    app: AgentApp
    ledger: SqliteLedger

    def jobs(self) -> list[str]:
        try:
            return [row[0] for row in self.ledger.conn.execute("SELECT job FROM started").fetchall()]
        except sqlite3.OperationalError:
            return []


def agent(url: str, path: Path) -> tuple[AgentApp, SqliteLedger]:
    ledger = SqliteLedger(path, f"/farside/agent/{NODE}")
    settings = ServiceSettings(nats_url=url, js_api="$JS.hub.API")
    app: AgentApp = App("agent", settings, ledger, node=NODE, policy=QUICK)
    app.on(registry.WORK_RUN, start)
    return app, ledger


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@asynccontextmanager
async def edge(hub: NatsServer, path: Path) -> AsyncGenerator[Edge, None]:
    async with Proxy(hub.leaf_port) as link:
        with LeafServer(link.port) as leaf:
            app, ledger = agent(leaf.url, path)
            async with running(app):
                yield Edge(link, leaf, app, ledger)
            ledger.close()


async def test_pitfall_23_an_agent_behind_a_leaf_takes_work_and_reports(
    hub: NatsServer, client: Client, agent_file: Path
) -> None:
    async with edge(hub, agent_file) as site:
        body = run_offer()
        await offer(client, body)
        await offer(client, run_offer(node="central-1"))  # another node's
        events = await take(client, registry.ATTEMPTS_STARTED, 1)
        assert events[0].body.job_id == body.job_id
        assert events[0].key == NODE
        assert events[0].incarnation
        assert site.jobs() == [body.job_id]


async def test_pitfall_23_a_cut_link_loses_nothing_and_heals_promptly(
    hub: NatsServer, client: Client, agent_file: Path
) -> None:
    async with edge(hub, agent_file) as site:
        await offer(client, run_offer())
        await take(client, registry.ATTEMPTS_STARTED, 1)
        site.link.cut()
        for _ in range(5):
            async with site.app.transaction() as tx:
                job_id = new_id()
                tx.emit(registry.ATTEMPTS_STARTED, started(job_id), key=NODE, subject=job_id, sequence=1, actor="agent")
        await offer(client, run_offer())
        await until(lambda: len(site.app.paused_aggregates) == 5, 20)
        assert (await site.ledger.counts()).waiting == 5
        site.link.heal()
        await take(client, registry.ATTEMPTS_STARTED, 7, 15)
        assert len(site.jobs()) == 2
    assert len(await client.history([registry.ATTEMPTS_STARTED])) == 7


async def test_a_hung_link_heals_too(hub: NatsServer, client: Client, agent_file: Path) -> None:
    async with edge(hub, agent_file) as site:
        await offer(client, run_offer())
        await take(client, registry.ATTEMPTS_STARTED, 1)
        site.link.hang()
        async with site.app.transaction() as tx:
            job_id = new_id()
            tx.emit(registry.ATTEMPTS_STARTED, started(job_id), key=NODE, subject=job_id, sequence=1, actor="agent")
        await until(lambda: site.app.paused_aggregates, 20)
        site.link.heal()
        await take(client, registry.ATTEMPTS_STARTED, 2, 15)
        await offer(client, run_offer())
        await take(client, registry.ATTEMPTS_STARTED, 3, 15)
    assert len(await client.history([registry.ATTEMPTS_STARTED])) == 3


async def test_a_restarted_leaf_is_found_again(hub: NatsServer, client: Client, agent_file: Path) -> None:
    async with edge(hub, agent_file) as site:
        site.leaf.kill()
        await offer(client, run_offer())
        site.leaf.start()
        await take(client, registry.ATTEMPTS_STARTED, 1, 15)


async def test_what_an_agent_committed_outlives_its_process(hub: NatsServer, client: Client, agent_file: Path) -> None:
    app, ledger = agent("nats://127.0.0.1:1", agent_file)
    del app
    async with ledger.transaction() as tx:
        job_id = new_id()
        tx.emit(registry.ATTEMPTS_STARTED, started(job_id), key=NODE, subject=job_id, sequence=1, actor="agent")
    ledger.close()
    async with edge(hub, agent_file):
        events = await take(client, registry.ATTEMPTS_STARTED, 1)
    assert events[0].body.job_id == job_id


async def test_an_offer_sent_twice_is_taken_once(hub: NatsServer, client: Client, agent_file: Path) -> None:
    body, message_id = run_offer(), new_id()
    async with edge(hub, agent_file) as site:
        await offer(client, body, message_id)
        await take(client, registry.ATTEMPTS_STARTED, 1)
        await client.js.delete_stream("WORK_CMD")  # with what it knows of message ids
        await provision(hub.url, NODES)
        await offer(client, body, message_id)
        second = run_offer()
        await offer(client, second)
        await take(client, registry.ATTEMPTS_STARTED, 2)
        assert site.jobs() == [body.job_id, second.job_id]


async def test_heartbeats_keep_the_newest_only(hub: NatsServer, client: Client, agent_file: Path) -> None:
    async with edge(hub, agent_file) as site:
        for counter in range(5):
            body = NodeHeartbeat(node=NODE, incarnation=new_id(), counter=counter, lease_s=240, sent_at=NOW)
            await site.app.client.publish(
                registry.NODES_HEARTBEAT, body, key=NODE, subject=NODE, sequence=counter, actor=NODE
            )
    beats = await client.history([registry.NODES_HEARTBEAT])
    assert [beat.body.counter for beat in beats] == [4]


async def test_an_agent_asks_services_through_the_leaf(
    hub: NatsServer, client: Client, pool: Pool, agent_file: Path
) -> None:
    del client

    async def grant(tx: Tx[Connection], call: Call[ClaimRequest]) -> ClaimReply:
        del tx
        return ClaimReply(granted=True, message=call.key)

    scheduler = new_app(hub.url, pool)
    scheduler.serve(registry.CALL_CLAIM, grant)
    request = ClaimRequest(
        job_id=new_id(),
        tenant="acme",
        attempt=1,
        generation=1,
        member=0,
        node=NODE,
        incarnation=new_id(),
        endpoint="127.0.0.1:1",
    )
    async with running(scheduler), edge(hub, agent_file) as site:
        reply = await site.app.client.request(registry.CALL_CLAIM, request, key=NODE)
        assert reply == ClaimReply(granted=True, message=NODE)
        site.link.cut()
        asking = asyncio.create_task(site.app.client.request(registry.CALL_CLAIM, request, key=NODE, timeout_s=20))
        await asyncio.sleep(0.3)  # a few tries without an answer
        site.link.heal()
        assert (await asking).granted


async def test_a_dead_letter_of_an_agent_is_replayed_to_that_agent(
    hub: NatsServer, client: Client, agent_file: Path
) -> None:
    broken = True
    stopped: list[str] = []

    async def stop(tx: Tx[sqlite3.Connection], event: Event[WorkStop]) -> None:
        del tx
        if broken:
            text = "not now"
            raise Refused(text)
        stopped.append(event.body.job_id)

    async with Proxy(hub.leaf_port) as link:
        with LeafServer(link.port) as leaf:
            app, ledger = agent(leaf.url, agent_file)
            app.on(registry.WORK_STOP, stop)
            async with running(app):
                body = WorkStop(job_id=new_id(), tenant="acme", attempt=1, member=0, grace_s=1, reason="x")
                await client.publish(registry.WORK_STOP, body, key=NODE, subject=body.job_id, sequence=1, actor="test")
                letter = (await take(client, registry.DEADLETTERED, 1))[0]
                assert letter.key == f"agent-work-stop-{NODE}"
                broken = False
                await deadletters.replay(client, await deadletters.find(client, letter.id))
                await until(lambda: stopped)
            ledger.close()
    assert stopped == [body.job_id]


@pytest.fixture
def ledger(agent_file: Path) -> Iterator[SqliteLedger]:
    made = SqliteLedger(agent_file, "/farside/agent/x")
    yield made
    made.close()


async def test_the_agents_file_is_safe_against_power_cuts(ledger: SqliteLedger) -> None:
    assert ledger.conn.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert ledger.conn.execute("PRAGMA synchronous").fetchone()[0] == 2


async def test_a_failed_transaction_of_the_agent_leaves_nothing(ledger: SqliteLedger) -> None:
    async def fail() -> None:
        async with ledger.transaction() as tx:
            tx.emit(registry.ATTEMPTS_STARTED, started(new_id()), key=NODE, subject="x", sequence=1, actor="a")
            tx.conn.execute("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(sqlite3.OperationalError):
        await fail()
    assert (await ledger.counts()).waiting == 0


async def test_a_transaction_inside_a_transaction_is_refused_not_waited_for(ledger: SqliteLedger) -> None:
    async with ledger.transaction():
        with pytest.raises(Nested):
            async with ledger.transaction():
                pass


async def test_two_agents_never_share_a_file(agent_file: Path) -> None:
    first, second = SqliteLedger(agent_file, "/a").election(), SqliteLedger(agent_file, "/a").election()
    assert await first.win(0.01) == 1
    waiting = asyncio.create_task(second.win(0.01))
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    await first.resign()
    assert await waiting == 1
    await second.resign()
