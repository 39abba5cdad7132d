"""Metering is killed again and again while usage, placements and closings come; afterwards the books are exact."""

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest

from contracts import registry
from contracts.base import PAGE_LIMIT
from contracts.requests import ProblemCode
from contracts.usage import AttemptUsage, CloseReply, RowFault, UsageMeasured, UsageRow
from libs.bus import Problem
from libs.kit.ids import new_id
from tests.checkpoint.stage import Stage
from tests.metering.play import WINDOW_MS, Node
from tests.waiting import until

pytestmark = [pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]

KILLS = 6
NODES = 3
WINDOWS = 60
CLOSES = 4
PATIENCE_S = 90
FENCE = 50  # the window from which attempt 1 of the last node is no longer billed
AGAIN = 0.2  # the share of messages that come twice


async def killer(stage: Stage, chance: np.random.Generator) -> None:
    """Kill at moments of no pattern, then leave it running."""
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.0, 2.5))
        stage.service.kill()
        stage.service.start()


async def close(node: Node, close_id: str) -> CloseReply:
    """Ask with the same id until there is an answer."""

    async def answered() -> CloseReply | None:
        try:
            return await node.close(close_id)
        except Problem as problem:
            if problem.code is not ProblemCode.UNAVAILABLE:
                raise
            return None

    return await until(answered, PATIENCE_S, f"an answer to closing {close_id}")


async def tell(node: Node, chance: np.random.Generator, *, fenced: bool) -> list[str]:
    """The whole life of a node, its placement somewhere in it; returns the closings that were asked for."""
    placed_at, closes = int(chance.integers(0, WINDOWS)), list[str]()
    bodies = list[UsageMeasured]()
    for window in range(WINDOWS):
        if window == placed_at:
            await node.place(cards=(0, 1))
        bodies.append(await node.measure(node.row(window), node.row(window, card=1)))
        if chance.uniform() < AGAIN:
            body = bodies[int(chance.integers(0, len(bodies)))]
            await node.say(body, id=new_id())
        if fenced and window == FENCE:
            await node.restore(2, node.row(FENCE).window_start)
        if window % (WINDOWS // CLOSES) == WINDOWS // CLOSES - 1:
            closes.append(new_id())
            await close(node, closes[-1])
    return closes


async def until_all_is_judged(node: Node, *, fenced: bool) -> int:
    """Wait for each sample to be stored, and each fenced one refused; returns how many are billable."""

    async def judged() -> int | None:
        usage = await asked(node)
        if usage is None:
            return None
        faults = {one.fault: one.samples for one in usage.unbilled}
        if RowFault.UNKNOWN_ATTEMPT in faults or set(faults) - {RowFault.FENCED}:
            return None
        expected = 2 * WINDOWS
        apart = usage.samples + (await fenced_rows(node) if fenced else 0)
        return usage.samples if apart == expected else None

    return await until(judged, PATIENCE_S, f"all of {node.job_id} to be judged")


async def asked(node: Node) -> AttemptUsage | None:
    try:
        return await node.usage()
    except Problem as problem:
        if problem.code is not ProblemCode.UNAVAILABLE:
            raise
        return None


async def fenced_rows(node: Node) -> int:
    """Distinct rows: one that came in two messages is kept twice."""
    rows = await node.refused()
    assert len(rows) < PAGE_LIMIT
    return len({(one.row.card, one.row.window_start) for one in rows if one.fault is RowFault.FENCED})


async def told(node: Node) -> dict[str, list[UsageRow]]:
    """The rows of the extract of each roll-up that was told; each roll-up and each period is told once."""
    history = await node.stage.client.history([registry.USAGE_ROLLED_UP], key=node.tenant)
    assert all(count == 1 for count in Counter(event.id for event in history).values())
    rollups = {event.body.rollup_id: event.body for event in history}
    assert len(rollups) == len(history)
    found = {rollup_id: node.extract(rollup) for rollup_id, rollup in rollups.items()}
    for rollup_id, rollup in rollups.items():
        rows = found[rollup_id]
        assert rollup.samples == len(rows) == sum(entry.samples for entry in rollup.entries)
        assert sum(entry.quantity for entry in rollup.entries) == sum(row.quantity for row in rows)
        assert all(rollup.hour <= row.window_start < rollup.hour + timedelta(hours=1) for row in rows)
    return found


@pytest.mark.parametrize("seed", [1, 2])
async def test_mb1_mb5_killed_at_any_moment_every_sample_is_in_one_roll_up(stage: Stage, seed: int) -> None:
    chance = np.random.default_rng(seed)
    nodes = [Node(stage) for _ in range(NODES)]
    killing = asyncio.create_task(killer(stage, chance))
    tellings = [tell(node, chance, fenced=node is nodes[-1]) for node in nodes]
    closes = await asyncio.gather(*tellings)
    await killing
    for node, asked_for in zip(nodes, closes, strict=True):
        fenced = node is nodes[-1]
        billable = await until_all_is_judged(node, fenced=fenced)
        last = new_id()
        await close(node, last)
        periods = [await node.until_closed(close_id) for close_id in [*asked_for, last]]
        assert [period.number for period in periods] == list(range(1, CLOSES + 2))
        assert all(one.period_end == other.period_start for one, other in pairwise(periods))
        rows = [row for rows in (await told(node)).values() for row in rows]
        assert len({(row.card, row.window_start) for row in rows}) == len(rows) == billable
        assert sum(period.samples for period in periods) == billable
        assert sum(row.quantity for row in rows) == billable * WINDOW_MS
        if not fenced:
            assert billable == 2 * WINDOWS
        usage = await node.usage()
        assert usage is not None
        assert (usage.samples, usage.closed_samples, usage.gpu_ms) == (billable, billable, billable * WINDOW_MS)
