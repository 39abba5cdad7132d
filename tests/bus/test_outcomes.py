"""The four outcomes of a message: done once, dead letter with a reason, held while the store is away, tried again."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from contracts import registry
from contracts.base import MAX_BODY_BYTES, Reason, ReasonCode
from contracts.deadletters import DeadReason
from contracts.jobs import JobRejected, JobSpec
from libs.bus import Client, Event, Invalid, NotYet, PgLedger, Refused, Tx, deadletters
from libs.bus.codec import encode_value
from libs.db import Connection, Pool
from libs.kit.ids import new_id
from tests.bus.rig import (
    QUICK,
    TENANT,
    PgApp,
    effects,
    job,
    new_app,
    record,
    rejected,
    running,
    submit,
    submit_raw,
    take,
)
from tests.servers import NatsServer
from tests.waiting import until


async def test_an_effect_and_its_event_happen_once(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app):
        await submit(client, job("one"))
        events = await take(client, registry.JOBS_REJECTED, 1)
    assert await effects(pool) == ["one"]
    assert events[0].body.name == "one"
    assert events[0].actor == "test"
    assert events[0].sequence == 1


async def test_a_duplicate_is_acknowledged_and_does_nothing(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    spec, message_id = job("twice"), new_id()
    async with running(app):
        first = await submit(client, spec, id=message_id)
        await until(lambda: effects(pool))
        await asyncio.sleep(registry.JOBS_CMD.dedup_s * 2)  # past the server's own window, so that it is stored again
        second = await submit(client, spec, id=message_id)
        await submit(client, job("after"))
        await until(lambda: _done(pool, 2))
    assert second > first
    assert await effects(pool) == ["twice", "after"]


async def _done(pool: Pool, count: int) -> bool:
    return len(await effects(pool)) >= count


async def test_a_message_id_of_another_tenant_takes_nothing_away(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    message_id = new_id()
    async with running(app):
        await submit(client, job("mine", tenant="evil"), id=message_id)
        await asyncio.sleep(
            registry.JOBS_CMD.dedup_s * 2
        )  # the window in which the server itself drops it is this short
        await submit(client, job("yours", tenant="good"), id=message_id)
        await until(lambda: _done(pool, 2))
    assert await effects(pool) == ["mine", "yours"]


POISON: dict[str, tuple[bytes, dict[str, str | None], DeadReason]] = {
    "unknown type": (b"{}", {"type": "io.farside.jobs.explode.v1"}, DeadReason.UNKNOWN_TYPE),
    "type of another subject": (b"{}", {"type": registry.JOBS_CANCEL.type}, DeadReason.UNKNOWN_TYPE),
    "missing id": (b"{}", {"id": None}, DeadReason.MISSING_ATTRIBUTE),
    "missing source": (b"{}", {"source": None}, DeadReason.MISSING_ATTRIBUTE),
    "missing type": (b"{}", {"type": None}, DeadReason.MISSING_ATTRIBUTE),
    "wrong version": (b"{}", {"type": "io.farside.jobs.submit.v2"}, DeadReason.WRONG_VERSION),
    "old CloudEvents": (b"{}", {"specversion": "0.3"}, DeadReason.WRONG_VERSION),
    "bad time": (b"{}", {"time": "yesterday"}, DeadReason.BAD_ATTRIBUTE),
    "not UTF-8": (b"\xff\xfe{}", {}, DeadReason.NOT_UTF8),
    "not JSON": (b"{", {}, DeadReason.NOT_JSON),
    "not the schema": (b'{"job_id": 5}', {}, DeadReason.SCHEMA),
    "a time without a zone": (b"{}", {"time": "2026-01-01T00:00:00"}, DeadReason.BAD_ATTRIBUTE),
    "a time beyond the calendar": (b"{}", {"time": "9999-12-31T23:59:59-23:00"}, DeadReason.BAD_ATTRIBUTE),
    "NUL in an attribute": (b"{}", {"source": "a%00b"}, DeadReason.BAD_ATTRIBUTE),
    "NUL in the body": (b'{"command":["\\u0000"]}', {}, DeadReason.SCHEMA),
    "bad sequence": (b"{}", {"sequence": "-1"}, DeadReason.BAD_ATTRIBUTE),
    "another content type": (b"{}", {"datacontenttype": "text/plain"}, DeadReason.BAD_ATTRIBUTE),
    "bytes that are no text in a header": (b"{}", {"source": "%ff"}, DeadReason.BAD_ATTRIBUTE),
    "too large": (b"[" + b" " * MAX_BODY_BYTES + b"]", {}, DeadReason.TOO_LARGE),
    "as large as may be": (b"[" + b" " * (MAX_BODY_BYTES - 2) + b"]", {}, DeadReason.SCHEMA),
    "another tenant": (job(tenant="victim").model_dump_json().encode(), {}, DeadReason.KEY_MISMATCH),
    "a tenant that cannot be": (b"{}", {"on": "jobs.v1.submit.ACME"}, DeadReason.BAD_ATTRIBUTE),
}


async def test_poison_becomes_a_dead_letter_with_its_reason_and_blocks_nothing(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    sent: dict[int, str] = {}
    async with running(app):
        for name, (data, changes, _) in POISON.items():
            sent[await submit_raw(client, data, **changes)] = name
        await submit(client, job("after"))
        await until(lambda: effects(pool))
        letters = await take(client, registry.DEADLETTERED, len(POISON))
    found = {sent[event.body.stream_sequence]: event.body for event in letters}
    assert {name: letter.reason for name, letter in found.items()} == {
        name: reason for name, (_, _, reason) in POISON.items()
    }
    assert all(letter.message and letter.consumer == "scheduler-jobs-submit" for letter in found.values())
    assert found["not JSON"].data == b"{"
    assert found["too large"].data.startswith(b"[ ")
    assert len(found["as large as may be"].data) == MAX_BODY_BYTES


async def test_headers_that_are_no_text_are_poison_too(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app):
        await _send_raw(hub.port, b"NATS/1.0\r\nce-id: \xff\xfe\r\nStatus: 408\r\n\r\n", b"")
        await _send_raw(hub.port, b"NATS/1.0 408\r\n\r\n", b"")
        await submit(client, job("after"))
        await until(lambda: effects(pool))
        letters = await take(client, registry.DEADLETTERED, 2)
    assert {event.body.reason for event in letters} <= {DeadReason.BAD_ATTRIBUTE, DeadReason.MISSING_ATTRIBUTE}


async def _send_raw(port: int, header: bytes, data: bytes) -> None:
    """Publish bytes that no client library would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    subject = registry.JOBS_SUBMIT.subject(TENANT).encode()
    sizes = f"{len(header)} {len(header) + len(data)}".encode()
    writer.write(b'CONNECT {"headers":true,"verbose":false}\r\n')
    writer.write(b"HPUB " + subject + b" " + sizes + b"\r\n" + header + data + b"\r\nPING\r\n")
    assert await reader.readline() == b"PONG\r\n"
    writer.close()
    await writer.wait_closed()


async def test_on_invalid_tells_the_sender_instead_of_a_dead_letter(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    async def tell(tx: Tx[Connection], invalid: Invalid) -> bool:
        if invalid.id is None or invalid.reason is not DeadReason.SCHEMA:
            return False
        body = JobRejected(
            submission_id=invalid.id,
            tenant=invalid.key,
            reason=Reason(code=ReasonCode.INVALID, message=invalid.message),
            rejected_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        tx.emit(registry.JOBS_REJECTED, body, key=invalid.key, subject=invalid.id, sequence=1, actor="scheduler")
        return True

    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record, on_invalid=tell)
    async with running(app):
        await submit_raw(client, b'{"job_id": 5}', id="x%20y")
        await submit_raw(client, b"{")
        events = await take(client, registry.JOBS_REJECTED, 1)
        letters = await take(client, registry.DEADLETTERED, 1)
    assert events[0].body.submission_id == "x y"
    assert "job_id" in events[0].body.reason.message
    assert letters[0].body.reason is DeadReason.NOT_JSON
    assert len(await client.history([registry.DEADLETTERED])) == 1


async def test_a_refusal_of_the_handler_leaves_no_effect(hub: NatsServer, client: Client, pool: Pool) -> None:
    async def refuse(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        await record(tx, event)
        text = "not on my watch"
        raise Refused(text)

    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, refuse)
    async with running(app):
        await submit(client, job())
        letters = await take(client, registry.DEADLETTERED, 1)
    assert letters[0].body.reason is DeadReason.REFUSED
    assert letters[0].body.message == "not on my watch"
    assert await effects(pool) == []


async def test_a_message_that_comes_early_waits_longer_than_failures_may_and_not_for_ever(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    tries: list[str] = []
    needed = QUICK.max_failures + 2

    async def early(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        await record(tx, event)
        tries.append(event.body.name)
        if event.body.name == "never" or tries.count("soon") < needed:
            text = "not placed, as far as is known"
            raise NotYet(text)

    app = new_app(hub.url, pool, policy=replace(QUICK, max_early=needed + 1))
    app.on(registry.JOBS_SUBMIT, early)
    async with running(app):
        await submit(client, job("soon"))
        await submit(client, job("never"))
        [letter] = await take(client, registry.DEADLETTERED, 1)
        await until(lambda: _acked(client))
    assert (letter.body.reason, letter.body.deliveries) == (DeadReason.REFUSED, needed + 1)
    assert letter.body.message == f"not placed, as far as is known (it came {needed + 1} times)"
    assert await effects(pool) == ["soon"]
    assert tries.count("soon") == needed
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM failures") == 0


async def test_a_failing_message_is_tried_with_growing_delay_then_buried_once(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    tries: list[float] = []

    async def fail(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        if event.body.name == "good":
            await record(tx, event)
            return
        tries.append(asyncio.get_running_loop().time())
        await record(tx, event)
        text = "cannot"
        raise ValueError(text)

    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, fail)
    async with running(app):
        await submit(client, job("bad"))
        await submit(client, job("good"))
        letters = await take(client, registry.DEADLETTERED, 1)
        await until(lambda: effects(pool))
        await until(lambda: _acked(client))
    assert len(tries) == 3
    assert tries[1] - tries[0] >= 0.05
    assert tries[2] - tries[1] >= 0.1
    assert letters[0].body.reason is DeadReason.HANDLER_FAILED
    assert letters[0].body.message == "ValueError: cannot"
    assert await effects(pool) == ["good"]
    assert len(await client.history([registry.DEADLETTERED])) == 1
    async with pool.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM failures") == 0


async def _acked(client: Client) -> bool:
    info = await client.js.consumer_info("JOBS_CMD", "scheduler-jobs-submit")
    return info.num_ack_pending == 0 and info.num_pending == 0


async def test_a_dead_letter_is_buried_once_however_often_it_is_tried(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    ledger = PgLedger(pool, "scheduler")
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app):
        await submit_raw(client, b"{")
        await take(client, registry.DEADLETTERED, 1)
    async with pool.acquire() as connection:
        await connection.execute("DELETE FROM inbox")  # as if the first burial had committed but its ack was lost
    info = await client.js.stream_info("JOBS_CMD")
    assert info.state.messages == 0
    counts = await ledger.counts()
    assert (counts.waiting, counts.parked) == (0, 0)
    again = new_app(hub.url, pool)
    again.on(registry.JOBS_SUBMIT, record)
    async with running(again):
        await submit_raw(client, b"{")
        await take(client, registry.DEADLETTERED, 2)


async def test_a_dead_letter_is_replayed_to_the_consumer_that_failed_and_to_no_other(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    broken = True
    cancels: list[str] = []

    async def fragile(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        if broken:
            text = "broken"
            raise Refused(text)
        assert event.key == TENANT
        await record(tx, event)

    async def cancel(tx: Tx[Connection], event: Event[registry.Model]) -> None:
        del tx
        cancels.append(event.id)

    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, fragile)
    app.on(registry.JOBS_CANCEL, cancel)
    async with running(app):
        await submit(client, job("phoenix"))
        letters = await take(client, registry.DEADLETTERED, 1)
        buried = await deadletters.find(client, letters[0].id[:8])
        assert buried.letter.reason is DeadReason.REFUSED
        broken = False
        await deadletters.replay(client, buried)
        await until(lambda: effects(pool))
        await deadletters.replay(client, buried)  # twice: the inbox takes it once
        await until(lambda: _replays_done(client))
        events = await take(client, registry.JOBS_REJECTED, 1)
    assert await effects(pool) == ["phoenix"]
    assert cancels == []
    assert events[0].key == TENANT


async def _replays_done(client: Client) -> bool:
    return (await client.js.stream_info("REPLAYS")).state.messages == 0


async def test_messages_of_one_aggregate_are_handled_in_the_order_they_came(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    busy: set[str] = set()
    release = asyncio.Event()

    async def slow_first(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        assert event.subject is not None
        assert event.subject not in busy
        busy.add(event.subject)
        await release.wait()
        await record(tx, event)
        busy.remove(event.subject)

    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, slow_first)
    ids = [new_id() for _ in range(3)]
    async with running(app):
        for number in range(5):
            for index, job_id in enumerate(ids):
                await submit(client, job(f"{index}-{number}", job_id=job_id))
        await until(lambda: len(busy) == 3)
        release.set()
        await until(lambda: _done(pool, 15))
    done = await effects(pool)
    for index in range(3):
        assert [name for name in done if name.startswith(f"{index}-")] == [f"{index}-{number}" for number in range(5)]


async def test_values_are_percent_encoded_once(hub: NatsServer, client: Client, pool: Pool) -> None:
    seen: list[Event[JobSpec]] = []

    async def look(tx: Tx[Connection], event: Event[JobSpec]) -> None:
        seen.append(event)
        await record(tx, event)

    app: PgApp = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, look)
    source = '/Köln 100% "quoted" 日本'
    async with running(app):
        await submit_raw(client, job().model_dump_json().encode(), source=encode_value(source), id="a%2525b")
        await until(lambda: seen)
    assert seen[0].source == source
    assert seen[0].id == "a%25b"
    assert rejected(seen[0]).submission_id == "a%25b"


@pytest.mark.parametrize("text", ["plain", "ä ö", "100%", 'say "hi"', "tab\tnew\nline"])
def test_encoded_values_are_printable_ascii(text: str) -> None:
    encoded = encode_value(text)
    assert all(0x21 <= ord(char) <= 0x7E for char in encoded)
    assert '"' not in encoded
