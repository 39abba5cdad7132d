"""The outbox: order within an aggregate, all of it out, nothing stuck behind what the bus refuses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import PubAck

from contracts import registry
from contracts.base import MAX_BODY_BYTES
from contracts.requests import StatusQuery
from libs.bus import Client, OutboxCounts, PgLedger, SqliteLedger, TooLarge
from libs.bus.codec import Envelope
from libs.bus.outbox import OutboxRow, make_row
from libs.bus.publisher import Publisher
from libs.db import Pool
from libs.kit.ids import new_id
from libs.telemetry import context
from tests.bus.rig import NOW, TENANT, PgApp, job, new_app, running, say, take
from tests.servers import NatsServer
from tests.waiting import until


async def test_pitfall_26_rows_of_one_aggregate_are_published_in_order_across_failures(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    app = new_app(hub.url, pool)
    aggregates, rows = 20, 15
    async with running(app):
        for sequence in range(1, rows + 1):
            async with app.transaction() as tx:
                for aggregate in range(aggregates):
                    say(tx, str(sequence), aggregate=f"a{aggregate}", sequence=sequence)
            if sequence == rows // 2:
                hub.kill()
                hub.start()
        events = await take(client, registry.JOBS_REJECTED, aggregates * rows, 30)
    for aggregate in range(aggregates):
        sequences = [event.sequence for event in events if event.subject == f"a{aggregate}"]
        assert sequences == list(range(1, rows + 1))


async def test_pitfall_26_one_message_of_an_aggregate_is_in_flight_and_many_aggregates_are(
    hub: NatsServer, client: Client, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    del client
    app = new_app(hub.url, pool)
    flying: dict[str, int] = {}
    most: dict[str, int] = {}
    together = 0
    publish = Publisher.publish

    async def watched(self: Publisher, subject: str, data: bytes, headers: dict[str, str], **more: Any) -> PubAck:
        nonlocal together
        aggregate = headers["ce-subject"]
        flying[aggregate] = flying.get(aggregate, 0) + 1
        most[aggregate] = max(most.get(aggregate, 0), flying[aggregate])
        together = max(together, sum(flying.values()))
        try:
            return await publish(self, subject, data, headers, **more)
        finally:
            flying[aggregate] -= 1

    monkeypatch.setattr(Publisher, "publish", watched)
    async with running(app):
        async with app.transaction() as tx:
            for number in range(100):
                say(tx, str(number), aggregate=f"a{number % 10}", sequence=number)
        await until(lambda: _empty(pool))
    assert set(most.values()) == {1}
    assert together == 10


async def _empty(pool: Pool, service: str = "scheduler") -> bool:
    return (await PgLedger(pool, service).counts()).waiting == 0


async def test_a_row_that_the_bus_refuses_for_good_is_parked_and_blocks_nothing(
    hub: NatsServer, client: Client, pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    app = new_app(hub.url, pool, service="inventory")
    async with running(app):
        async with app.transaction() as tx:
            envelope = Envelope(new_id(), "/x", "a1", 1, "x", None, NOW)
            row = make_row(registry.JOBS_SUBMIT, job(), TENANT, envelope, None)
            too_large = OutboxRow(new_id(), "a1", row.stream, row.subject, row.headers, b" " * (3 * MAX_BODY_BYTES))
            elsewhere = OutboxRow(new_id(), "a1", "NODES", row.subject, row.headers, row.data)
            tx.rows.extend([too_large, elsewhere])
            say(tx, "after", aggregate="a1")
        await take(client, registry.JOBS_REJECTED, 1)
        await until(lambda: _empty(pool, "inventory"))
        status = await client.request(registry.STATUS["inventory"], StatusQuery(), key="_")
    assert status.parked_rows == 2
    assert status.outbox_rows == 0
    assert capsys.readouterr().err.count("relay.parked") == 2


async def test_a_body_above_the_limit_is_refused_where_it_enters_the_outbox(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    del client
    app = new_app(hub.url, pool)
    big = job().model_copy(update={"env": {f"V{n}": "x" * 4096 for n in range(256)}})
    async with running(app):
        with pytest.raises(TooLarge, match=r"has a body of \d+ bytes, the limit is 1048576"):
            async with app.transaction() as tx:
                tx.emit(registry.JOBS_SUBMIT, big, key=TENANT, subject=big.job_id, sequence=1, actor="x")
    assert await _empty(pool)


async def test_rows_without_a_stream_wait_and_are_never_given_up(hub: NatsServer, pool: Pool) -> None:
    """Nothing is provisioned: no stream answers. Rows wait, however often publishing fails."""
    app = new_app(hub.url, pool)
    async with running(app):
        async with app.transaction() as tx:
            say(tx, "patience")
        await until(lambda: len(app.paused_aggregates) == 1)
        await asyncio.sleep(0.5)  # several attempts
        counts = await app.ledger.counts()
        assert (counts.waiting, counts.parked) == (1, 0)


async def test_two_replicas_publish_each_row_once(hub: NatsServer, client: Client, pool: Pool) -> None:
    first, second = new_app(hub.url, pool), new_app(hub.url, pool)
    async with running(first), running(second):
        await until(lambda: first.gate.leading or second.gate.leading)
        for app in (first, second):
            for number in range(20):
                async with app.transaction() as tx:
                    say(tx, f"{number}")
        await until(lambda: _empty(pool))
    info = await client.js.stream_info("JOBS")
    assert info.state.last_seq == 40
    assert not (first.gate.leading and second.gate.leading)


async def test_a_stopping_app_publishes_what_it_has_committed(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    async with running(app):
        async with app.transaction() as tx:
            for number in range(200):
                say(tx, f"{number}", aggregate=f"a{number % 4}", sequence=number)
        app.stop()
    assert await _empty(pool)
    assert len(await client.history([registry.JOBS_REJECTED])) == 200


async def test_an_id_that_was_emitted_is_not_sent_twice(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    message_id = new_id()
    async with running(app):
        for _ in range(2):
            async with app.transaction() as tx:
                body = say(tx, "first")
                assert body
                tx.rows[0] = OutboxRow(
                    message_id, "a", tx.rows[0].stream, tx.rows[0].subject, tx.rows[0].headers, tx.rows[0].data
                )
            await until(lambda: _empty(pool))
        async with app.transaction() as tx:
            say(tx, "last")
        await take(client, registry.JOBS_REJECTED, 2)
    assert len(await client.history([registry.JOBS_REJECTED])) == 2


async def test_a_rolled_back_transaction_says_nothing(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    async with running(app):
        with pytest.raises(ValueError, match="no"):
            await _say_and_fail(app)
        async with app.transaction() as tx:
            say(tx, "said")
        events = await take(client, registry.JOBS_REJECTED, 1)
    assert events[0].body.reason.message == "said"


async def _say_and_fail(app: PgApp) -> None:
    async with app.transaction() as tx:
        say(tx, "never")
        text = "no"
        raise ValueError(text)


async def test_pitfall_30_the_trace_of_the_handler_travels_with_its_rows(
    hub: NatsServer, client: Client, pool: Pool
) -> None:
    trace = context.Trace(f"00-{'74' * 16}-{'73' * 8}-03", f"00-{'74' * 16}-{'75' * 8}-03")
    app = new_app(hub.url, pool)
    async with running(app):
        with context.use(trace):
            async with app.transaction() as tx:
                say(tx, "traced")
        raw = await until(lambda: _raw(client))
    assert raw["ce-traceparent"] == trace.life
    assert raw["traceparent"] == trace.hop


async def _raw(client: Client) -> dict[str, str]:
    try:
        message: Any = await client.js.get_last_msg("JOBS", registry.JOBS_REJECTED.subject(TENANT))
    except Exception:  # noqa: BLE001 - not there yet
        return {}
    return dict(message.headers or {})


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_old_rows_are_removed_and_unpublished_ones_never(pool: Pool, tmp_path: Path, kind: str) -> None:
    ledger: Any = PgLedger(pool, "scheduler") if kind == "postgres" else SqliteLedger(tmp_path / "x.db", "/x")
    async with ledger.transaction() as tx:
        for number in range(4):
            say(tx, f"{number}")
        assert await ledger.claim(tx, "c", "k", "/s", "1")
        assert not await ledger.claim(tx, "c", "k", "/s", "1")
        assert await ledger.claim(tx, "c", "other", "/s", "1")
    rows = await ledger.waiting(10, [])
    assert [row.number for row in rows] == sorted(row.number for row in rows)
    assert len(await ledger.waiting(10, [rows[0].aggregate])) == 3
    await ledger.mark_published([rows[0].number])
    await ledger.park(rows[1].number, "refused")
    await ledger.prune(outbox_keep_s=3600, inbox_keep_s=3600)
    assert await ledger.counts() == OutboxCounts(waiting=2, parked=1)
    await ledger.prune(outbox_keep_s=-1, inbox_keep_s=-1)
    assert await ledger.counts() == OutboxCounts(waiting=2, parked=1)
    async with ledger.transaction() as tx:
        assert await ledger.claim(tx, "c", "k", "/s", "1")
    assert await ledger.count_failure("c", "S", 1, "x") == 1
    assert await ledger.count_failure("c", "S", 1, "x") == 2
    async with ledger.transaction() as tx:
        await ledger.forget_failure(tx, "c", "S", 1)
    assert await ledger.count_failure("c", "S", 1, "x") == 1
    await ledger.ping()
    if kind == "sqlite":
        ledger.close()
