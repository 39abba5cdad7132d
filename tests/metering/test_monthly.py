"""The past month is closed by itself once its grace is over; shown on rows of last month, without waiting for one."""

from datetime import datetime, timedelta

import pytest

from contracts import registry
from contracts.usage import UsagePeriodClosed
from libs.kit.clock import SystemClock
from tests.checkpoint.stage import Stage
from tests.metering.conftest import NEVER_S
from tests.metering.play import PERIOD_S, Node
from tests.waiting import until

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

GRACE = "FARSIDE_METERING_CLOSE_GRACE_S"
HOUR = timedelta(hours=1)


def month_begin() -> datetime:
    return SystemClock().now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def restart(stage: Stage, grace_s: int) -> None:
    stage.service.environment[GRACE] = str(grace_s)
    stage.restart()


async def closings(node: Node) -> list[UsagePeriodClosed]:
    found = await node.stage.client.history([registry.USAGE_PERIOD_CLOSED], key=node.tenant)
    return [event.body for event in found]


async def until_closings(node: Node, count: int) -> list[UsagePeriodClosed]:
    async def there() -> list[UsagePeriodClosed]:
        found = await closings(node)
        return found if len(found) >= count else []

    return await until(there, 40, f"{count} closings of {node.tenant}")


async def a_round_passes(stage: Stage) -> None:
    """Another tenant's closing is carried out: the closer has been round."""
    other = Node(stage)
    await other.until_closed((await other.close()).close_id)


async def test_mb6_mb7_the_past_month_is_closed_after_its_grace_and_this_month_is_not(stage: Stage) -> None:
    end = month_begin()
    old, idle = Node(stage, begin=end - 2 * HOUR), Node(stage)
    now = SystemClock().now().replace(second=0, microsecond=0)
    minute = timedelta(seconds=PERIOD_S)
    restart(stage, NEVER_S)
    await old.place()
    await idle.place()
    for window in (5, 118, 119):
        await old.measure(old.row(window))
    await old.measure(old.row(0, window_start=now, window_end=now + minute))
    await idle.measure(idle.row(0, window_start=now, window_end=now + minute))
    await old.until_samples(4)
    await a_round_passes(stage)
    assert await closings(old) == []

    restart(stage, 0)
    [closed] = await until_closings(old, 1)
    assert (closed.period_start, closed.period_end) == (end - 2 * HOUR, end)
    assert (closed.number, closed.samples, closed.rollups) == (1, 3, 2)
    assert closed.cutoff > end
    rows = [row for rollup in await old.rollups(closed.close_id) for row in old.extract(rollup)]
    assert sorted(row.window_start for row in rows) == [old.row(window).window_start for window in (5, 118, 119)]
    assert await closings(idle) == []

    await old.measure(old.row(6))
    await old.until_samples(5)
    await a_round_passes(stage)
    assert len(await closings(old)) == 1
    late = await old.until_closed((await old.close()).close_id)
    assert (late.number, late.period_start, late.samples) == (2, end, 2)
    hours = {rollup.hour: rollup.number for rollup in await old.rollups(late.close_id)}
    assert hours[end - 2 * HOUR] == 2


async def test_a_month_that_an_operator_has_closed_is_not_closed_again(stage: Stage) -> None:
    restart(stage, NEVER_S)
    node = Node(stage, begin=month_begin() - 2 * HOUR)
    await node.place()
    await node.measure(node.row(0))
    await node.until_samples(1)
    await node.until_closed((await node.close()).close_id)
    await node.measure(node.row(1))
    await node.until_samples(2)
    restart(stage, 0)
    await a_round_passes(stage)
    assert len(await closings(node)) == 1


async def test_many_tenants_are_closed_each_once_through_kills(stage: Stage) -> None:
    restart(stage, NEVER_S)
    nodes = [Node(stage, begin=month_begin() - 2 * HOUR) for _ in range(12)]
    for node in nodes:
        await node.place()
        await node.measure(node.row(0), node.row(1, window_start=node.begin, window_end=node.row(0).window_end, card=0))
    for node in nodes:
        await node.until_samples(1)
    restart(stage, 0)
    await until_closings(nodes[0], 1)
    stage.service.kill()
    stage.service.start()
    for node in nodes:
        [closed] = await until_closings(node, 1)
        assert (closed.number, closed.samples, closed.period_end) == (1, 1, month_begin())
