"""The meter on a journal of its own: its clock, restarts, and what each transaction tells."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from contracts.attempts import ExitCause
from libs.telemetry import context
from services.agent import holds
from services.agent.core import usage
from services.agent.core.model import (
    Claimed,
    NotStored,
    Offered,
    StopAsked,
    StopOrder,
)
from services.agent.meter import WINDOWS_AT_ONCE
from tests.unit.agent.metered import LIFE, START, Node, held_ms, job, joined, key_of


async def test_steps_of_the_wall_clock_change_nothing_of_what_is_held(node: Node) -> None:
    run, machine = job(1, 0, 1), node.machine
    await node.run_task(run)
    for step_s in (3600.0, -7200.0, 30.0, -45.0, 1e6, -1e6):
        machine.passes(40)
        machine.steps(step_s)
        await node.look(run)
    node.agent()
    machine.passes(10.5)
    await node.look(run)
    await node.end(run)
    rows = [row for row in await node.rows(run) if row.card == 0]
    assert held_ms(await node.rows(run)) == 2 * 250_500
    assert joined(rows)
    assert usage.to_ms(rows[0].window_start) == usage.to_ms(START)


async def test_a_wrong_clock_heals_once_nothing_is_held(node: Node) -> None:
    first, second, third, machine = job(1, 0), job(2, 0), job(3, 0), node.machine
    machine.steps(86_400)
    await node.run_task(first)
    machine.passes(5)
    machine.steps(-86_400)
    await node.end(first)
    await node.run_task(second)
    machine.passes(1)
    await node.end(second)
    machine.steps(-0.5)
    await node.run_task(third)
    machine.passes(1)
    await node.end(third)
    [a], [b], [c] = await node.rows(first), await node.rows(second), await node.rows(third)
    assert a.window_start - b.window_start == timedelta(seconds=86_400 - 5)
    assert c.window_start == b.window_end, "a clock put back a little makes no overlap on the card"
    assert (a.quantity, b.quantity, c.quantity) == (5000, 1000, 1000)


async def test_attempts_that_share_a_card_are_measured_side_by_side(node: Node) -> None:
    small, large, machine = job(1, 0, share_milli=250), job(2, 0, share_milli=500), node.machine
    await node.run_task(small)
    await node.run_task(large)
    machine.passes(10)
    node.agent()
    await node.end(small)
    await node.end(large)
    [one], [other] = await node.rows(small), await node.rows(large)
    assert (one.share_milli, one.quantity, other.share_milli, other.quantity) == (250, 2500, 500, 5000)
    assert one.card_uuid == other.card_uuid


async def test_an_exit_tells_its_own_part_at_once_and_others_wait_for_the_grid(node: Node) -> None:
    one, other, machine = job(1, 0), job(2, 1), node.machine
    await node.run_task(one)
    await node.run_task(other)
    machine.passes(10)
    await node.end(one)
    assert held_ms(await node.rows(one)) == 10_000
    assert await node.rows(other) == []
    machine.passes(30)
    assert not await node.look(other)
    [row] = await node.rows(other)
    assert (row.window_start, row.window_end) == (
        START.replace(microsecond=123_000),
        datetime(2026, 11, 30, 9, 1, tzinfo=UTC),
    )
    bodies = await node.sent()
    assert [body.window_start for body in bodies] == [datetime(2026, 11, 30, 9, 0, tzinfo=UTC)] * 2


async def test_claimed_and_never_started_is_held_all_the_same_and_no_cards_are_no_rows(node: Node) -> None:
    run, bare, machine = job(1, 0), job(2), node.machine
    await node.claim(run)
    await node.claim(bare)
    machine.passes(3.25)
    for one in (run, bare):
        await node.apply(one, StopAsked(key_of(one), one.tenant, StopOrder(ExitCause.STOPPED, 1, "cancelled")))
    assert held_ms(await node.rows(run)) == 3250
    assert await node.rows(bare) == []


async def test_nothing_is_held_before_the_claim(node: Node) -> None:
    run, machine = job(1, 0), node.machine
    with context.use(LIFE):
        await node.apply(run, Offered(run, "127.0.0.1:1"))
    machine.passes(9)
    await node.apply(run, Claimed(granted=False, go=False, rendezvous=None, message="no", epoch=1))
    assert await node.sent() == []


async def test_long_past_windows_come_one_by_one_and_bounded(node: Node) -> None:
    run, machine = job(1, 0), node.machine
    await node.run_task(run)
    machine.passes(3 * 3600)
    node.agent()
    assert await node.look(run)
    assert len(await node.sent()) == WINDOWS_AT_ONCE
    while await node.look(run):
        pass
    bodies = await node.sent()
    assert len(bodies) == 180
    starts = [body.window_start for body in bodies]
    assert starts == sorted(set(starts))
    assert joined(await node.rows(run))


async def test_what_ended_while_the_agent_was_away_ends_then_and_the_rest_follows(node: Node) -> None:
    run, machine = job(1, 0), node.machine
    await node.run_task(run)
    machine.passes(2 * 3600)
    ended_at = machine.now()
    machine.passes(1800)
    node.agent()
    await node.end(run, ended_at=ended_at)
    assert len(await node.sent()) == WINDOWS_AT_ONCE, "the transaction of an exit stays small"
    while await node.look():
        pass
    assert held_ms(await node.rows(run)) == 2 * 3_600_000


async def test_an_agent_killed_at_any_commit_repeats_nothing(node: Node) -> None:
    run, machine = job(1, 0, 1), node.machine
    await node.run_task(run)
    for _ in range(20):
        machine.passes(37.777)
        with crash():
            async with node.ledger.transaction() as tx:
                node.meter.measure(tx, {key_of(run)}, node.meter.now(tx.conn))
                raise KilledError
        node.agent()
        await node.look(run)
    await node.end(run)
    rows = await node.rows(run)
    async with node.ledger.transaction() as tx:
        assert holds.owed(tx.conn) == []
    assert held_ms(rows) == 2 * (usage.to_ms(rows[-1].window_end) - usage.to_ms(START))
    assert held_ms(rows) // 2 in (755_540, 755_541)
    outbox = await node.ledger.waiting(10_000, ())
    numbers = [int(row.headers["ce-sequence"]) for row in outbox if ".measured." in row.subject]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_what_is_told_belongs_to_the_trace_of_the_job(node: Node) -> None:
    run, machine = job(1, 0), node.machine
    await node.run_task(run)
    await node.apply(run, NotStored(40, "the store is away"))
    machine.passes(1)
    await node.end(run)
    outbox = {row.subject: row.headers for row in await node.ledger.waiting(100, ())}
    for name in ("started", "unsaved", "exited"):
        headers = outbox[f"attempts.v1.{name}.central-1"]
        assert headers["ce-traceparent"] == LIFE.life
    assert outbox["usage.v1.measured.central-1"].get("ce-traceparent") != LIFE.life


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_the_samples_are_the_held_time(node: Node, seed: int) -> None:
    """Steps of the clock, restarts and looks at random; every attempt's samples follow each other without a gap."""
    chance, machine = np.random.default_rng(seed), node.machine
    begun: dict[int, float] = {}
    truth: dict[int, float] = {}
    for number in range(60):
        machine.passes(float(chance.integers(0, 200_000)) / 1000)
        machine.steps(float(chance.integers(-100_000, 100_000)))
        if chance.random() < 0.3:
            node.agent()
        if chance.random() < 0.6 or len(begun) == 4:
            await node.look(*(job(one, 0, 1) for one in begun))
        if chance.random() < 0.4:
            await node.run_task(job(number, 0, 1))
            begun[number] = machine.boot_s
        elif begun:
            ending = int(chance.choice(list(begun)))
            await node.end(job(ending, 0, 1))
            truth[ending] = machine.boot_s - begun.pop(ending)
    while await node.look():
        pass
    for number, held_s in truth.items():
        rows = await node.rows(job(number, 0, 1))
        assert abs(held_ms(rows) - 2000 * held_s) <= 2, "the clock counts whole milliseconds"
        assert joined([row for row in rows if row.card == 1])


class KilledError(Exception):
    pass


@contextmanager
def crash() -> Generator[None, None, None]:
    """What happens inside ends as if the process had died there."""
    with pytest.raises(KilledError):
        yield
