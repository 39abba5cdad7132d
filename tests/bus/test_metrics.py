"""Metrics: what Prometheus finds after real messages, and a port that somebody else has."""

import asyncio
import json
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from contracts import registry
from contracts.jobs import JobSpec
from deploy.local.ports import free_port
from libs.bus import App, Client, Event, PgLedger, Refused, Tx
from libs.db import Connection, Pool
from libs.kit import logs
from libs.kit.settings import ServiceSettings
from libs.telemetry.metrics import counter, gauge
from tests.bus.rig import QUICK, SERVICE, PgApp, job, outcome, record, running, submit, submit_raw, take
from tests.bus.test_calls import claim, grant
from tests.servers import NatsServer
from tests.waiting import until

SUBMIT = {"template": "jobs.v1.submit.{tenant}", "consumer": "scheduler-jobs-submit"}
CLAIM = "call.v1.scheduler.claim.{node}"
OWN = counter("farside.test.weighed", "By", "What the test weighed.")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def measured(hub: NatsServer, pool: Pool, port: int) -> PgApp:
    settings = ServiceSettings(nats_url=hub.url, metrics_port=port)
    return App(SERVICE, settings, PgLedger(pool, SERVICE), policy=QUICK)


async def scrape(port: int) -> Samples:
    """Every sample by name and attributes; each family must have its HELP and TYPE."""

    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()

    families = list(text_string_to_metric_families(await asyncio.to_thread(get)))
    for family in families:
        assert family.documentation, family.name
        assert family.type in {"counter", "gauge", "histogram"}, (family.name, family.type)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


async def handle(tx: Tx[Connection], event: Event[JobSpec]) -> None:
    if event.body.name == "refused":
        text = "no such thing"
        raise Refused(text)
    if event.body.name == "failing" and event.delivery is not None and event.delivery.deliveries == 1:
        text = "once"
        raise ValueError(text)
    OWN.add(7)
    await record(tx, event)


async def test_what_happened_is_counted_under_bounded_names(hub: NatsServer, client: Client, pool: Pool) -> None:
    port = free_port()
    app = measured(hub, pool, port)
    app.on(registry.JOBS_SUBMIT, handle)
    app.serve(registry.CALL_CLAIM, grant)
    async with running(app):
        gauge("farside.test.level", lambda: [(3, {"side": "left"})], "", "What the test shows.")
        for name in ("one", "two", "refused", "failing"):
            await submit(client, job(name))
        await submit_raw(client, b"{")
        await client.request(registry.CALL_CLAIM, claim(), key="central-1", timeout_s=60.0)  # asked once
        await take(client, registry.JOBS_REJECTED, 4)
        await take(client, registry.DEADLETTERED, 2)
        await until(lambda: _settled(port))
        samples = await scrape(port)
    processed = {
        what: value(samples, "farside_messages_processed_total", outcome=what, **SUBMIT)
        for what in ("done", "refused", "failed", "invalid", "duplicate")
    }
    assert processed == {"done": 3, "refused": 1, "failed": 1, "invalid": 1, "duplicate": None}
    assert value(samples, "farside_messages_redelivered_total", **SUBMIT) == 1
    assert value(samples, "farside_processing_duration_seconds_count", **SUBMIT) == 6
    durable = SUBMIT["consumer"]
    assert value(samples, "farside_dead_letters_total", consumer=durable, reason="refused") == 1
    assert value(samples, "farside_dead_letters_total", consumer=durable, reason="not_json") == 1
    assert value(samples, "farside_requests_answered_total", template=CLAIM, code="ok") == 1
    assert value(samples, "farside_request_duration_seconds_count", template=CLAIM) == 1
    assert value(samples, "farside_messages_published_total", template="jobs.v1.rejected.{tenant}") == 4
    assert value(samples, "farside_outbox_rows", state="parked") == 0
    assert value(samples, "farside_bus_connected") == 1
    assert value(samples, "farside_loop_age_seconds") is not None
    assert value(samples, "farside_gate_open") == 1
    assert value(samples, "farside_gate_leading") == 1
    assert value(samples, "farside_build_info", service=SERVICE, version="0.1.0") == 1
    assert value(samples, "farside_test_weighed_bytes_total") == 21
    assert value(samples, "farside_test_level", side="left") == 3
    socket.create_server(("127.0.0.1", port)).close()  # free: the server has gone with the App


async def _settled(port: int) -> bool:
    """Whether all six deliveries have their outcome and the outbox was counted."""
    samples = await scrape(port)
    counted = value(samples, "farside_outbox_rows", state="parked")
    return value(samples, "farside_processing_duration_seconds_count", **SUBMIT) == 6 and counted is not None


async def test_a_row_that_cannot_be_published_is_counted(hub: NatsServer, client: Client, pool: Pool) -> None:
    del client
    port = free_port()
    app = measured(hub, pool, port)
    app.on(registry.JOBS_SUBMIT, handle)
    async with running(app):
        await app.client.js.delete_stream("JOBS")
        await submit(app.client, job("untold"))
        template = "jobs.v1.rejected.{tenant}"

        async def failed() -> float | None:
            return value(await scrape(port), "farside_publish_failures_total", template=template)

        assert await until(failed)


async def test_a_taken_port_is_named(
    hub: NatsServer, client: Client, pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    del client
    logs.configure("test")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert await outcome(measured(hub, pool, port)) == 1
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    line = next(line for line in lines if line["event"] == "app.failed")
    assert f"metrics cannot be served at 127.0.0.1:{port}" in line["error"]
    assert "FARSIDE_METRICS_PORT" in line["error"]
