"""A node bills its cards once, at their own price and while they are held, whatever it says."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from contracts import registry
from contracts.jobs import JobPhase, JobState, Outcome
from contracts.usage import RowFault, UsageItem
from tests.metering.play import PERIOD_S, WINDOW_MS, Node

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

MIB = 1024 * 1024
HALF = timedelta(seconds=PERIOD_S / 2)
AHEAD = timedelta(seconds=300)  # FARSIDE_METERING_AHEAD_S as it is by default


def others(node: Node, count: int) -> list[Node]:
    """More jobs, of other tenants, on the same node."""
    return [Node(node.stage, name=node.name) for _ in range(count)]


async def finish(node: Node, at: datetime, attempts: int = 1) -> None:
    """`jobs.finished`."""
    state = JobState(
        job_id=node.job_id,
        tenant=node.tenant,
        spec=node.spec(),
        version=9,
        state=JobPhase.FINISHED,
        outcome=Outcome.SUCCEEDED,
        attempts=attempts,
        submitted_at=node.begin,
        updated_at=at,
    )
    await node.stage.client.publish(
        registry.JOBS_FINISHED, state, key=node.tenant, subject=node.job_id, actor="test", sequence=9
    )


@pytest.mark.parametrize("together", [True, False])
async def test_a_card_that_a_node_bills_to_two_jobs_at_once_is_billed_once(node: Node, *, together: bool) -> None:
    [other] = others(node, 1)
    await node.place()
    await other.place()
    if together:
        await node.measure(node.row(0), other.row(0))
    else:
        await node.measure(node.row(0))
        await node.until_samples(1)
        await other.measure(other.row(0, window_start=node.begin + HALF, quantity=WINDOW_MS // 2))
    [refused] = await other.until_refused()
    assert refused.fault is RowFault.OVERLAP
    assert f"other attempts hold too much of card 0 of node {node.name}" in refused.message
    await other.measure(other.row(1), other.row(1, item=UsageItem.GPU_MEMORY_MIB_MS))
    assert (await other.until_samples(2)).gpu_ms == WINDOW_MS
    assert (await node.until_samples(1)).gpu_ms == WINDOW_MS


@pytest.mark.parametrize(("shares", "billed"), [((500, 500), 2), ((500, 501), 1), ((400, 400, 300), 2)])
async def test_shares_of_a_card_are_billed_up_to_the_whole(node: Node, shares: Sequence[int], billed: int) -> None:
    jobs = [node, *others(node, len(shares) - 1)]
    for number, (job, share) in enumerate(zip(jobs, shares, strict=True)):
        await job.place(share_milli=share, share_millionths=share * 1000)
        await job.measure(job.row(0, share_milli=share, quantity=WINDOW_MS * share // 1000))
        await (job.until_samples(1) if number < billed else job.until_refused())


async def test_two_members_of_one_job_on_one_card_are_billed_their_shares_and_no_more(node: Node) -> None:
    await node.place(members=2, share_milli=400, share_millionths=400_000)
    part = WINDOW_MS * 400 // 1000
    await node.measure(*(node.row(0, member=member, share_milli=400, quantity=part) for member in range(2)))
    assert (await node.until_samples(2)).gpu_ms == 2 * part
    await node.measure(node.row(1, member=1, share_milli=401, quantity=WINDOW_MS * 401 // 1000))
    [more] = await node.until_refused()
    assert more.fault is RowFault.CARD_NOT_HELD
    assert "was given 400 thousandths of a card, the row says 401" in more.message


async def test_a_dearer_card_than_was_placed_is_not_billed(node: Node) -> None:
    await node.place(accelerator="h200", card_memory_bytes=80 * MIB)
    memory = node.row(0, item=UsageItem.GPU_MEMORY_MIB_MS, quantity=80 * WINDOW_MS)
    await node.measure(node.row(0), memory)
    await node.measure(node.row(1, accelerator="B300"))
    await node.measure(node.row(2, item=UsageItem.GPU_MEMORY_MIB_MS, quantity=81 * WINDOW_MS))
    larger, dearer = await node.until_refused(2)
    assert {larger.fault, dearer.fault} == {RowFault.CARD_NOT_HELD}
    assert "was given cards of model h200, the row says B300" in dearer.message
    assert "was given cards of 80 MiB at most, the row makes 81" in larger.message
    usage = await node.until_samples(2)
    assert (usage.gpu_ms, usage.gpu_memory_mib_ms) == (WINDOW_MS, 80 * WINDOW_MS)


@pytest.mark.parametrize("finish_first", [True, False])
async def test_what_a_node_says_of_a_job_long_after_its_end_is_not_billed(node: Node, *, finish_first: bool) -> None:
    await node.place()
    end = node.row(2).window_start
    rows = [node.row(0), node.row(6), node.row(7), node.row(30)]
    assert [row.window_start < end + AHEAD for row in rows] == [True, True, False, False]
    if finish_first:
        await finish(node, end)
    for row in rows:
        await node.measure(row)
    if not finish_first:
        await node.until_samples(4)
        await finish(node, end)
    assert {row.fault for row in await node.until_refused(2)} == {RowFault.FENCED}
    assert [row.window_start for row in await node.samples()] == [row.window_start for row in rows[:2]]
