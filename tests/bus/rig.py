"""What the bus tests share: an App on real servers, messages to send, and ways to see what became of them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from nats.errors import Error as NatsError

from contracts import registry
from contracts.base import Reason, ReasonCode
from contracts.jobs import JobKind, JobRejected, JobSpec
from libs.bus import App, Client, Event, PgLedger, Policy, Tx, actor_of
from libs.bus.provision import provision
from libs.db import Connection, Pool, connect, connect_once, migrate
from libs.kit.ids import new_id
from libs.kit.settings import ServiceSettings
from tests.servers import NatsServer
from tests.waiting import until

NODES = ("central-1", "remote-1")
TENANT = "acme"
SERVICE = "scheduler"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUICK = Policy(max_failures=3, first_delay_s=0.05, delay_cap_s=0.2, handler_timeout_s=10.0)

PgApp = App[Connection]


def job(name: str = "job", *, tenant: str = TENANT, job_id: str | None = None) -> JobSpec:
    return JobSpec(
        job_id=job_id or new_id(),
        tenant=tenant,
        name=name,
        kind=JobKind.BATCH,
        command=["true"],
        max_runtime_s=60,
    )


def rejected(event: Event[JobSpec], text: str = "no") -> JobRejected:
    return JobRejected(
        submission_id=event.id,
        tenant=event.key,
        job_id=event.body.job_id,
        name=event.body.name,
        reason=Reason(code=ReasonCode.INVALID, message=text),
        rejected_at=NOW,
    )


def say(tx: Tx[Any], text: str, *, aggregate: str | None = None, sequence: int = 1) -> str:
    """Emit an event of no importance."""
    body = JobRejected(
        submission_id=new_id(),
        tenant=TENANT,
        reason=Reason(code=ReasonCode.INVALID, message=text),
        rejected_at=NOW,
    )
    subject = aggregate or new_id()
    return tx.emit(registry.JOBS_REJECTED, body, key=TENANT, subject=subject, sequence=sequence, actor="test")


async def submit(client: Client, spec: JobSpec, *, id: str | None = None) -> int:  # noqa: A002
    """Publish a submission; returns its stream sequence."""
    ack = await client.publish(
        registry.JOBS_SUBMIT, spec, key=spec.tenant, subject=spec.job_id, actor="test", id=id, timeout_s=5.0
    )
    return ack.sequence


async def tell(client: Client, text: str, *, key: str = TENANT) -> None:
    """Publish an event of no importance, as often as it takes, under one id."""
    body = JobRejected(
        submission_id=new_id(),
        tenant=key,
        reason=Reason(code=ReasonCode.INVALID, message=text),
        rejected_at=NOW,
    )
    message_id = new_id()

    async def told() -> bool:
        try:
            await client.publish(
                registry.JOBS_REJECTED,
                body,
                key=key,
                subject=body.submission_id,
                actor="test",
                id=message_id,
                timeout_s=1.0,
            )
        except (NatsError, OSError):
            return False
        return True

    await until(told, 30)


async def submit_raw(client: Client, data: bytes, **changes: str | None) -> int:
    """Publish a submission with a body and headers of one's own; a change of None drops that attribute."""
    headers = {
        "specversion": "1.0",
        "id": new_id(),
        "source": "/test",
        "type": registry.JOBS_SUBMIT.type,
        "time": "2026-01-01T00:00:00Z",
        "datacontenttype": "application/json",
    }
    subject = changes.pop("on", None) or registry.JOBS_SUBMIT.subject(TENANT)
    merged: dict[str, str | None] = {**headers, **changes}
    sent: dict[str, Any] = {f"ce-{name}": value for name, value in merged.items() if value is not None}
    ack = await client.js.publish(subject, data, stream=registry.JOBS_CMD.name, headers=sent)
    return int(ack.seq)


async def new_pool(dsn: str, service: str = SERVICE) -> Pool:
    """A pool on a fresh database, with the bus's tables and one table `effects (id, name)`."""
    admin = await connect_once(dsn)
    await admin.execute(f"CREATE SCHEMA IF NOT EXISTS {service}")
    await admin.close()
    pool = await connect(dsn, service)
    await migrate(pool, service)
    async with pool.acquire() as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS effects (id text, name text, number bigserial)")
    return pool


async def effects(pool: Pool) -> list[str]:
    """The names of the jobs whose effect has committed, in the order of their insertion."""
    async with pool.acquire() as connection:
        return [str(row["name"]) for row in await connection.fetch("SELECT name FROM effects ORDER BY number")]


async def record(tx: Tx[Connection], event: Event[JobSpec]) -> None:
    """A handler with one effect and one event."""
    await tx.conn.execute("INSERT INTO effects VALUES ($1, $2)", event.id, event.body.name)
    tx.emit(
        registry.JOBS_REJECTED,
        rejected(event),
        key=event.key,
        subject=event.body.job_id,
        sequence=1,
        actor=actor_of(event),
    )


def new_app(hub_url: str, pool: Pool, *, leader: bool = False, policy: Policy = QUICK, service: str = SERVICE) -> PgApp:
    settings = ServiceSettings(nats_url=hub_url)
    return App(service, settings, PgLedger(pool, service), leader=leader, policy=policy)


async def outcome(app: App[Any]) -> int:
    """Run an App to its end; its exit code, which as an exception would end the tests' own loop."""
    try:
        await app.run()
    except SystemExit as error:
        return int(error.code or 0)
    return 0


@asynccontextmanager
async def running(app: App[Any], *, started: bool = True) -> AsyncGenerator[asyncio.Task[int], None]:
    """Run an App for as long as the block."""
    task = asyncio.create_task(outcome(app))
    try:
        if started:
            waiting = asyncio.create_task(app.wait_started())
            done, _ = await asyncio.wait([task, waiting], timeout=20, return_when=asyncio.FIRST_COMPLETED)
            assert waiting in done, f"the App did not start: {task}"
        yield task
    finally:
        app.stop()
        await asyncio.wait([task], timeout=20)
        assert task.done(), "the App did not stop"


@asynccontextmanager
async def provisioned(server: NatsServer, name: str = "test") -> AsyncGenerator[Client, None]:
    """A hub's client, with all streams and durables there."""
    await provision(server.url, NODES)
    async with await Client.connect(server.url, name=name) as client:
        yield client


async def take(client: Client, message: registry.Message[Any], count: int, timeout_s: float = 10.0) -> list[Event[Any]]:
    """The first `count` messages of a kind."""
    found: list[Event[Any]] = []
    reading = client.events([message], since="all")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            async for event in reading:
                found.append(event)
                if len(found) == count:
                    break
    await reading.aclose()
    assert len(found) == count, f"{len(found)} of {count} messages {message.id} came"
    return found
