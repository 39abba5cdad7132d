"""Spans of the bus: each step below the one that caused it, across the outbox, outages of habit and outsiders."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from contracts import registry
from contracts.attempts import AttemptProgressed
from contracts.jobs import JobSpec
from contracts.nodes import NodeHeartbeat
from contracts.requests import ClaimReply, ClaimRequest, ProblemCode
from libs.bus import Call, Client, Event, Problem, Refused, Tx, deadletters
from libs.db import Connection, Pool
from libs.kit import logs
from libs.kit.ids import new_id
from libs.kit.settings import ServiceSettings
from libs.telemetry import context
from libs.telemetry.process import telemetry
from libs.telemetry.spans import span
from tests.bus.rig import NOW, TENANT, job, new_app, record, running, submit, submit_raw, take
from tests.bus.test_calls import claim, grant
from tests.bus.test_latency import report
from tests.bus.traced import Seen, named, spans_in
from tests.servers import NatsServer
from tests.waiting import until

SUBMIT = "jobs.v1.submit.{tenant}"
REJECTED = "jobs.v1.rejected.{tenant}"
PROGRESSED = "attempts.v1.progressed.{node}"
CLAIM = "call.v1.scheduler.claim.{node}"
OUTSIDE = f"00-{'ab' * 16}-{'cd' * 8}-01"


@pytest.fixture
def traces(tmp_path: Path) -> Iterator[Path]:
    """The folder to which this process writes its spans."""
    folder = tmp_path / "traces"
    with telemetry("test", ServiceSettings(trace_dir=folder)):
        yield folder


async def seen(folder: Path, name: str, count: int = 1) -> list[Seen]:
    """So many spans of a name, once they are there."""
    return await until(lambda: found if len(found := named(folder, name)) >= count else None, what=name)


async def only(folder: Path, name: str) -> Seen:
    found = await seen(folder, name)
    assert len(found) == 1
    return found[0]


async def test_pitfall_30_each_step_is_below_the_one_that_caused_it(
    hub: NatsServer, client: Client, pool: Pool, traces: Path
) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    spec = job("traced")
    async with running(app):
        sequence = await submit(client, spec)
        (event,) = await take(client, registry.JOBS_REJECTED, 1)
        told = await only(traces, f"publish {REJECTED}")
    sent, handled = await only(traces, f"publish {SUBMIT}"), await only(traces, f"process {SUBMIT}")
    assert (sent.kind, handled.kind, told.kind) == ("producer", "consumer", "producer")
    assert (sent.parent, handled.parent, told.parent) == ("", sent.id, handled.id)
    assert {sent.trace, handled.trace, told.trace} == {sent.trace}
    assert event.traceparent == sent.traceparent, "the life of the job begins where it is submitted"
    assert sent.attributes["messaging.nats.sequence"] == sequence
    attributes = {name: value for name, value in handled.attributes.items() if name != "farside.stored_at"}
    assert attributes == {
        "messaging.system": "nats",
        "messaging.destination.name": SUBMIT,
        "messaging.message.id": sent.attributes["messaging.message.id"],
        "messaging.nats.stream": "JOBS_CMD",
        "messaging.nats.consumer": "scheduler-jobs-submit",
        "messaging.nats.sequence": sequence,
        "messaging.nats.deliveries": 1,
        "farside.source": "/farside/test",
        "farside.job": spec.job_id,
        "farside.tenant": TENANT,
        "farside.outcome": "done",
    }
    assert handled.attributes["farside.stored_at"].endswith("Z")


async def test_the_header_names_the_step_that_published_and_the_life_stays(
    hub: NatsServer, client: Client, pool: Pool, traces: Path
) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app):
        with span("upstream"):
            life = context.current()
            await submit(client, job())
        (event,) = await take(client, registry.JOBS_REJECTED, 1)
        told = await only(traces, f"publish {REJECTED}")
        headers = await _newest(client, "JOBS", registry.JOBS_REJECTED.subject(TENANT))
    assert life is not None
    assert headers["ce-traceparent"] == life.life == event.traceparent
    assert headers["traceparent"] == told.traceparent


async def _newest(client: Client, stream: str, subject: str) -> dict[str, str]:
    message: Any = await client.js.get_last_msg(stream, subject)
    return dict(message.headers or {})


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT"])
async def test_pitfall_29_an_outsider_may_name_the_parent_in_any_case(
    hub: NatsServer, client: Client, pool: Pool, traces: Path, name: str
) -> None:
    """Nobody here has the outsider's span, so the life begins at ours: what acts for the job finds its parent."""
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app):
        await _publish(client, job(), {name: OUTSIDE})
        (event,) = await take(client, registry.JOBS_REJECTED, 1)
        handled = await only(traces, f"process {SUBMIT}")
    assert (handled.trace, handled.parent) == ("ab" * 16, "cd" * 8)
    assert handled.attributes["farside.outside_parent"] is True
    assert event.traceparent is not None
    assert event.traceparent.split("-")[1:3] == ["ab" * 16, handled.id]


async def test_an_outsider_with_two_traces_leaves_one_and_a_link(
    hub: NatsServer, client: Client, pool: Pool, traces: Path
) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app):
        await _publish(client, job(), {"traceparent": OUTSIDE, "ce-traceparent": f"00-{'ef' * 16}-{'01' * 8}-01"})
        (event,) = await take(client, registry.JOBS_REJECTED, 1)
        handled = await only(traces, f"process {SUBMIT}")
    assert handled.trace == "ab" * 16
    assert handled.links == [("ef" * 16, "01" * 8)]
    assert event.traceparent is not None
    assert context.trace_id(event.traceparent) == "ab" * 16


async def test_a_message_without_any_context_begins_a_life(
    hub: NatsServer, client: Client, pool: Pool, traces: Path
) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app):
        await _publish(client, job(), {})
        (event,) = await take(client, registry.JOBS_REJECTED, 1)
        handled = await only(traces, f"process {SUBMIT}")
    assert handled.parent == ""
    assert "farside.outside_parent" not in handled.attributes
    assert event.traceparent == handled.traceparent


async def test_without_an_exporter_nobody_names_a_parent(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app):
        await submit(client, job())
        (event,) = await take(client, registry.JOBS_REJECTED, 1)
        await _publish(client, job(), {"traceparent": OUTSIDE})
        _, other = await take(client, registry.JOBS_REJECTED, 2)
    assert event.traceparent is None
    assert other.traceparent == OUTSIDE, "what came goes on as it came"


async def _publish(client: Client, spec: JobSpec, headers: dict[str, str]) -> None:
    attributes = {"id": new_id(), "source": "/elsewhere", "type": registry.JOBS_SUBMIT.type, "specversion": "1.0"}
    sent = {f"ce-{name}": value for name, value in attributes.items()} | headers
    await client.js.publish(
        registry.JOBS_SUBMIT.subject(TENANT), spec.model_dump_json().encode(), headers={**sent}, stream="JOBS_CMD"
    )


async def test_outcomes_are_told(hub: NatsServer, client: Client, pool: Pool, traces: Path) -> None:
    async def handle(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        if event.body.name == "refused":
            text = "no such thing"
            raise Refused(text)
        if event.body.name == "failing" and event.delivery is not None and event.delivery.deliveries == 1:
            text = "once"
            raise ValueError(text)
        await record(tx, event)

    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, handle)
    async with running(app):
        await submit(client, job("refused"))
        await submit(client, job("failing"))
        await submit_raw(client, b"{")
        found = await seen(traces, f"process {SUBMIT}", 4)
    by_outcome = {one.attributes["farside.outcome"]: one for one in found}
    assert set(by_outcome) == {"refused", "failed", "done", "invalid"}
    failed, again = by_outcome["failed"], by_outcome["done"]
    assert failed.error == "ValueError: once"
    assert failed.events == ["exception"]
    assert (failed.parent, failed.trace) == (again.parent, again.trace)
    assert again.attributes["messaging.nats.deliveries"] == 2
    assert by_outcome["refused"].error is None
    assert by_outcome["invalid"].parent == ""


async def test_a_duplicate_is_told(hub: NatsServer, client: Client, pool: Pool, traces: Path) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    spec, message_id = job("twice"), new_id()
    async with running(app):
        first = await submit(client, spec, id=message_id)
        second = await until(lambda: _stored_again(client, spec, message_id, first))
        found = await seen(traces, f"process {SUBMIT}", 2)
    outcomes = {one.attributes["messaging.nats.sequence"]: one.attributes["farside.outcome"] for one in found}
    assert outcomes == {first: "done", second: "duplicate"}


async def _stored_again(client: Client, spec: JobSpec, message_id: str, first: int) -> int:
    """Send again until it is past the server's own window, so that it is stored once more."""
    sequence = await submit(client, spec, id=message_id)
    return sequence if sequence != first else 0


async def test_a_replayed_dead_letter_goes_on_in_its_trace(
    hub: NatsServer, client: Client, pool: Pool, traces: Path
) -> None:
    broken = True

    async def fragile(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        if broken:
            text = "broken"
            raise Refused(text)
        await record(tx, event)

    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, fragile)
    async with running(app):
        await submit(client, job("phoenix"))
        (letter,) = await take(client, registry.DEADLETTERED, 1)
        broken = False
        await deadletters.replay(client, await deadletters.find(client, letter.id))
        first, again = await seen(traces, f"process {SUBMIT}", 2)
    sent = await only(traces, f"publish {SUBMIT}")
    assert (first.parent, again.parent) == (sent.id, sent.id)
    assert letter.traceparent == sent.traceparent
    assert (first.attributes["farside.outcome"], again.attributes["farside.outcome"]) == ("refused", "done")
    assert again.attributes["messaging.nats.stream"] == "REPLAYS"
    assert again.attributes["messaging.nats.consumer"] == "scheduler-jobs-submit"


async def test_a_batch_is_a_trace_of_its_own_linked_to_its_messages(
    hub: NatsServer, client: Client, pool: Pool, traces: Path
) -> None:
    async def handle(tx: Tx[Connection], events: Sequence[Event[AttemptProgressed]]) -> None:
        del tx
        if any(event.body.points[0].step == 13 for event in events):
            text = "unlucky"
            raise Refused(text)

    app = new_app(hub.url, pool)
    app.on_batch(registry.ATTEMPTS_PROGRESSED, handle)
    for step in (12, 13, 14):
        await report(client, step)
    async with running(app):
        (letter,) = await take(client, registry.DEADLETTERED, 1)
        found = await until(lambda: _batch_and_single(traces))
    sent = named(traces, f"publish {PROGRESSED}")
    batch, single = found
    assert batch.parent == ""
    assert set(batch.links) == {(one.trace, one.id) for one in sent}
    assert batch.attributes["messaging.batch.message_count"] == 3
    unlucky = next(one for one in sent if one.traceparent == letter.traceparent)
    assert (single.trace, single.parent) == (unlucky.trace, unlucky.id), "its dead letter is told in its own life"
    assert single.attributes["farside.outcome"] == "refused"


def _batch_and_single(traces: Path) -> tuple[Seen, Seen] | None:
    found = named(traces, f"process {PROGRESSED}")
    batches = [one for one in found if "messaging.batch.message_count" in one.attributes]
    singles = [one for one in found if one.attributes.get("farside.outcome") == "refused"]
    return (batches[0], singles[0]) if batches and singles else None


async def test_a_request_and_its_answer(hub: NatsServer, client: Client, pool: Pool, traces: Path) -> None:
    app = new_app(hub.url, pool)
    app.serve(registry.CALL_CLAIM, grant)
    asked = claim()
    async with running(app):
        await client.request(registry.CALL_CLAIM, asked, key="central-1")
        await take(client, registry.JOBS_REJECTED, 1)
        told = await only(traces, f"publish {REJECTED}")
    ask, answer = await only(traces, f"ask {CLAIM}"), await only(traces, f"answer {CLAIM}")
    assert (ask.kind, answer.kind) == ("client", "server")
    assert (ask.parent, answer.parent, told.parent) == ("", ask.id, answer.id)
    assert ask.events == ["ask"]
    for one in (ask, answer):
        assert one.attributes["farside.job"] == asked.job_id
        assert one.attributes["farside.node"] == "central-1"
        assert one.attributes["farside.attempt"] == 1
    assert answer.attributes["farside.code"] == "ok"


async def test_a_request_asked_again_is_one_span(hub: NatsServer, client: Client, pool: Pool, traces: Path) -> None:
    asked = 0

    async def busy(tx: Tx[Connection], call: Call[ClaimRequest]) -> ClaimReply:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise Problem(ProblemCode.UNAVAILABLE, "ask again")
        return await grant(tx, call)

    app = new_app(hub.url, pool)
    app.serve(registry.CALL_CLAIM, busy)
    async with running(app):
        await client.request(registry.CALL_CLAIM, claim(), key="central-1")
        answers = await seen(traces, f"answer {CLAIM}", 2)
    ask = await only(traces, f"ask {CLAIM}")
    assert ask.events == ["ask", "ask"]
    assert [one.attributes["farside.code"] for one in answers] == ["unavailable", "ok"]
    assert {one.parent for one in answers} == {ask.id}


async def test_heartbeats_leave_no_span(client: Client, traces: Path) -> None:
    body = NodeHeartbeat(node="central-1", incarnation=new_id(), counter=1, lease_s=240, attempts=[], sent_at=NOW)
    await client.publish(registry.NODES_HEARTBEAT, body, key=body.node, subject=body.node, actor="test")
    headers = await _newest(client, "HEARTBEATS", registry.NODES_HEARTBEAT.subject(body.node))
    assert spans_in(traces) == []
    assert "traceparent" not in headers


async def test_log_lines_say_trace_and_whom_they_are_about_and_forget_it(
    hub: NatsServer, client: Client, pool: Pool, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def handle(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        logs.get_logger().info("test.handled", name=event.body.name)
        await record(tx, event)

    logs.configure("test")
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, handle)
    jobs = {name: job(name) for name in ("one", "two", "three")}
    async with running(app):
        for spec in jobs.values():
            await submit(client, spec)
        found = await seen(traces, f"process {SUBMIT}", 3)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    handled = {line["name"]: line for line in lines if line["event"] == "test.handled"}
    by_job = {one.attributes["farside.job"]: one for one in found}
    for name, spec in jobs.items():
        assert handled[name]["trace"] == by_job[spec.job_id].trace
        assert (handled[name]["job"], handled[name]["tenant"]) == (spec.job_id, TENANT)
    stopped = next(line for line in lines if line["event"] == "app.stopped")
    assert not {"trace", "job", "tenant"} & set(stopped)
