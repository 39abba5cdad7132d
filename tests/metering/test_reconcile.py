"""The scheduler's ledger beside what was measured: real metering, a scheduler that may be away or slow to know."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from contracts.usage import AttemptUsage
from libs.kit.ids import new_id
from tests.checkpoint.stage import Stage
from tests.metering.play import WINDOW_MS, Node
from tests.metering.scheduler import Scheduler, open_scheduler
from tests.waiting import until

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

PATIENCE_S = 40
MINUTE = timedelta(minutes=1)


async def until_usage(node: Node, told: Callable[[AttemptUsage], bool], what: str, attempt: int = 1) -> AttemptUsage:
    async def found() -> AttemptUsage | None:
        usage = await node.usage(attempt)
        return usage if usage is not None and told(usage) else None

    return await until(found, PATIENCE_S, what)


async def until_settled(node: Node, scheduler: Scheduler, other: Node) -> None:
    """Wait until the job is no longer asked about while another one still is, twice."""
    seen = {"asked": -1, "other": 0}

    def quiet() -> bool:
        if scheduler.asked.get(node.job_id, 0) != seen["asked"]:
            seen.update(asked=scheduler.asked.get(node.job_id, 0), other=scheduler.asked.get(other.job_id, 0))
        return scheduler.asked.get(other.job_id, 0) >= seen["other"] + 3

    await until(quiet, PATIENCE_S, f"job {node.job_id} to be settled")


async def test_a_scheduler_that_is_away_is_said_and_asked_again(node: Node) -> None:
    await node.place()
    await node.measure(node.row(0))
    usage = await node.until_samples(1)
    assert (usage.held_gpu_ms, usage.holding, usage.difference_gpu_ms) == (None, False, None)
    await until(lambda: "usage.not_reconciled" in node.stage.log(), PATIENCE_S, "the scheduler to be missed")
    async with open_scheduler(node.stage) as scheduler:
        scheduler.hold(node, node.begin, node.begin + MINUTE)
        usage = await until_usage(node, lambda one: one.held_gpu_ms is not None, "the ledger to be heard")
    assert (usage.held_gpu_ms, usage.holding, usage.difference_gpu_ms) == (WINDOW_MS, False, 0)
    assert (await node.usage() or pytest.fail("it was placed")).held_gpu_ms == WINDOW_MS


async def test_what_is_held_grows_until_it_has_ended_and_the_difference_is_shown(node: Node) -> None:
    await node.place(cards=(0, 1))
    await node.measure(node.row(0), node.row(0, card=1))
    await node.measure(node.row(1))
    await node.until_samples(3)
    async with open_scheduler(node.stage) as scheduler:
        scheduler.hold(node, node.begin, None, cards=2)
        first = await until_usage(node, lambda one: one.holding, "the holding")
        assert first.held_gpu_ms is not None
        await until_usage(node, lambda one: (one.held_gpu_ms or 0) > (first.held_gpu_ms or 0), "the holding to grow")
        scheduler.hold(node, node.begin, node.begin + 2 * MINUTE, cards=2)
        ended = await until_usage(node, lambda one: not one.holding, "the end of the holding")
    assert (ended.gpu_ms, ended.held_gpu_ms) == (3 * WINDOW_MS, 4 * WINDOW_MS)
    assert ended.difference_gpu_ms == -WINDOW_MS


async def test_a_share_of_a_card_is_held_as_a_share(node: Node) -> None:
    await node.place(share_milli=250, share_millionths=250_999)
    await node.measure(node.row(0, share_milli=250, quantity=WINDOW_MS // 4))
    await node.until_samples(1)
    async with open_scheduler(node.stage) as scheduler:
        scheduler.hold(node, node.begin, node.begin + MINUTE, share_milli=250)
        usage = await until_usage(node, lambda one: one.held_gpu_ms is not None, "the ledger to be heard")
    assert (usage.gpu_ms, usage.held_gpu_ms, usage.difference_gpu_ms) == (WINDOW_MS // 4, WINDOW_MS // 4, 0)


async def test_members_come_on_several_pages_and_are_added_up(node: Node) -> None:
    await node.place(members=7)
    others = [Node(node.stage) for _ in range(4)]
    for other in others:
        await other.place()
    async with open_scheduler(node.stage) as scheduler:
        for member in range(7):
            scheduler.hold(node, node.begin, node.begin + MINUTE, member=member)
        for other in others:
            scheduler.hold(other, other.begin, other.begin + 2 * MINUTE)
        usage = await until_usage(node, lambda one: one.held_gpu_ms == 7 * WINDOW_MS, "seven members")
        assert usage.difference_gpu_ms == -7 * WINDOW_MS
        for other in others:
            await until_usage(other, lambda one: one.held_gpu_ms == 2 * WINDOW_MS, "each of the others")


async def test_a_settled_attempt_is_asked_about_no_more(node: Node) -> None:
    open_one = Node(node.stage)
    await node.place()
    await open_one.place()
    async with open_scheduler(node.stage) as scheduler:
        scheduler.hold(node, node.begin, node.begin + MINUTE)
        scheduler.hold(open_one, open_one.begin, None)
        await until_settled(node, scheduler, open_one)
        assert scheduler.asked[node.job_id] >= 1


async def test_members_that_never_claimed_are_given_up_once_a_later_attempt_exists(node: Node) -> None:
    open_one = Node(node.stage)
    await node.place(members=3)
    await open_one.place()
    async with open_scheduler(node.stage) as scheduler:
        scheduler.hold(node, node.begin, node.begin + MINUTE)
        scheduler.hold(open_one, open_one.begin, None)
        asked = await until(lambda: scheduler.asked.get(node.job_id, 0), PATIENCE_S, "the ledger to be asked")
        await until(lambda: scheduler.asked[node.job_id] > asked + 1, PATIENCE_S, "it to be asked again and again")
        await node.place(2)
        scheduler.hold(node, node.begin + 2 * MINUTE, node.begin + 3 * MINUTE, attempt=2)
        await until_settled(node, scheduler, open_one)
    usage = await until_usage(node, lambda one: one.held_gpu_ms == WINDOW_MS, "what the one member held")
    assert not usage.holding
    assert (await until_usage(node, lambda one: one.held_gpu_ms == WINDOW_MS, "attempt 2", attempt=2)).attempt == 2


async def test_an_attempt_that_never_claimed_holds_nothing_and_stops_no_other(node: Node) -> None:
    idle = Node(node.stage, job_id=new_id())
    await idle.place(members=2)
    await node.place()
    async with open_scheduler(node.stage) as scheduler:
        scheduler.hold(node, node.begin, node.begin + MINUTE)
        await until_usage(node, lambda one: one.held_gpu_ms == WINDOW_MS, "the other attempt's ledger")
    assert (await idle.usage() or pytest.fail("it was placed")).held_gpu_ms is None


async def test_a_ledger_that_is_asked_survives_a_kill(stage: Stage) -> None:
    node = Node(stage)
    async with open_scheduler(stage) as scheduler:
        await node.place()
        scheduler.hold(node, node.begin, None)
        await until_usage(node, lambda one: one.holding, "the holding")
        stage.service.kill()
        scheduler.hold(node, node.begin, node.begin + MINUTE)
        stage.service.start()
        usage = await until_usage(node, lambda one: not one.holding, "the end, heard after the kill")
    assert usage.held_gpu_ms == WINDOW_MS
