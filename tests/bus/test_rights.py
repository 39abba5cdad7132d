"""An App works with the least rights of a service (PITFALLS 7, 36b, 37), and a missing right is told, not fatal."""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from contracts import registry
from contracts.requests import JobsPage, JobsQuery, StatusQuery
from libs.bus import Call, Client, Tx
from libs.bus.accounts import Grants, service_grants
from libs.bus.provision import provision
from libs.db import Connection, Pool
from tests.bus.rig import NODES, effects, job, new_app, record, running, submit, submit_raw, take
from tests.servers import NatsServer
from tests.waiting import until

GRANTS = service_grants("scheduler")
MUTE = replace(GRANTS, publish=tuple(one for one in GRANTS.publish if one != registry.JOBS_REJECTED.subject("*")))


def _quoted(subjects: Iterable[str]) -> str:
    return ", ".join(f'"{subject}"' for subject in subjects)


def users(grants: Grants) -> str:
    """One account, an admin and a scheduler that has these grants and no more."""
    return f"""
        accounts {{ A {{ jetstream: enabled, users: [
          {{ user: admin, password: "a" }}
          {{ user: scheduler, password: "s", permissions: {{
            publish: {{ allow: [{_quoted(grants.publish)}] }}
            subscribe: {{ allow: [{_quoted(grants.subscribe)}] }}
          }} }}
        ] }} }}
    """


@pytest.fixture
def guarded() -> Iterator[NatsServer]:
    with NatsServer(extra=users(GRANTS)) as server:
        yield server


def _as(server: NatsServer, user: str, password: str) -> str:
    return server.url.replace("nats://", f"nats://{user}:{password}@")


async def test_pitfall_07_and_37_an_app_needs_no_more_than_its_own_subjects(
    guarded: NatsServer, pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def jobs(tx: Tx[Connection], call: Call[JobsQuery]) -> JobsPage:
        del tx, call
        return JobsPage(jobs=[])

    admin = _as(guarded, "admin", "a")
    await provision(admin, NODES)
    app = new_app(_as(guarded, "scheduler", "s"), pool, leader=True)
    app.on(registry.JOBS_SUBMIT, record)
    app.serve(registry.QUERY_JOBS, jobs)
    async with await Client.connect(admin, name="test") as client, running(app):
        await submit(client, job("one"))
        await submit_raw(client, b"{")
        await take(client, registry.JOBS_REJECTED, 1)
        await take(client, registry.DEADLETTERED, 1)
        assert await client.request(registry.QUERY_JOBS, JobsQuery(), key="acme") == JobsPage(jobs=[])
        status = await client.request(registry.STATUS["scheduler"], StatusQuery(), key="_")
        assert status.leader
        assert await effects(pool) == ["one"]
    assert "permissions violation" not in capsys.readouterr().err.lower()


async def test_a_right_that_is_missing_blocks_only_its_own_rows(
    guarded: NatsServer, pool: Pool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libs.bus.relay.PUBLISH_TIMEOUT_S", 0.5)
    guarded.extra = users(MUTE)
    guarded.reload()
    admin = _as(guarded, "admin", "a")
    await provision(admin, NODES)
    app = new_app(_as(guarded, "scheduler", "s"), pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with await Client.connect(admin, name="test") as client, running(app) as task:
        await submit(client, job("one"))
        await until(lambda: app.paused_aggregates)
        await submit_raw(client, b"{")
        await take(client, registry.DEADLETTERED, 1)
        guarded.extra = users(GRANTS)
        guarded.reload()
        await take(client, registry.JOBS_REJECTED, 1)
        assert not task.done()
    assert "permissions violation" in capsys.readouterr().err.lower()


async def test_the_command_line_provisions(hub: NatsServer) -> None:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "libs.bus.provision", "--nats", hub.url, "--node", "edge-7"],
        stderr=asyncio.subprocess.PIPE,
    )
    _, told = await process.communicate()
    assert process.returncode == 0
    assert b"provision.done" in told
    async with await Client.connect(hub.url, name="test") as client:
        await client.js.consumer_info("WORK_CMD", "agent-work-run-edge-7")
        await client.js.consumer_info("REPLAYS", "agent-replay-edge-7")
