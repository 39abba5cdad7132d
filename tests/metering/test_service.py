"""Metering on real NATS, PostgreSQL and object store: each sample counts once, garbage is kept, closings are exact."""

from datetime import timedelta

import pytest

from contracts.usage import RowFault, UsageItem
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from tests.metering.play import PERIOD_S, WINDOW_MS, Node
from tests.objects.proxy import S3Proxy
from tests.waiting import until

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]


async def test_mb2_mb3_mb4_mb5_a_sample_that_comes_again_is_the_same_sample(node: Node) -> None:
    await node.place()
    bodies = [await node.measure(node.row(window)) for window in range(3)]
    await node.until_samples(3)
    for body in bodies:
        await node.say(body)
        await node.say(body, id=new_id())
    await node.measure(node.row(3))
    usage = await node.until_samples(4)
    assert (usage.windows, usage.gpu_ms) == (4, 4 * WINDOW_MS)
    assert usage.unbilled == []


async def test_mb1_what_is_redelivered_after_a_kill_counts_once(node: Node) -> None:
    await node.place()
    await node.measure(node.row(0))
    await node.until_samples(1)
    node.stage.service.kill()
    for window in range(1, 40):
        await node.measure(node.row(window))
    node.stage.service.start()
    node.stage.service.kill()
    node.stage.service.start()
    usage = await node.until_samples(40)
    assert usage.gpu_ms == 40 * WINDOW_MS


async def test_mb13_a_gap_is_a_gap_and_what_fills_it_fills_the_right_window(node: Node) -> None:
    await node.place()
    await node.measure(node.row(0))
    await node.measure(node.row(2))
    await node.until_samples(2)
    assert [row.window_start for row in await node.samples()] == [node.row(0).window_start, node.row(2).window_start]
    await node.measure(node.row(1))
    usage = await node.until_samples(3)
    assert usage.gpu_ms == 3 * WINDOW_MS


async def test_an_attempt_never_heard_of_is_kept_shown_and_billed_once_it_is_placed(node: Node) -> None:
    await node.measure(node.row(0), node.row(0, card=7))
    [one, other] = await node.until_refused(2)
    assert {one.fault, other.fault} == {RowFault.UNKNOWN_ATTEMPT}
    usage = await node.usage()
    assert usage is not None
    assert (usage.job_name, usage.samples, usage.gpu_ms) == (None, 0, 0)
    assert [(item.fault, item.samples) for item in usage.unbilled] == [(RowFault.UNKNOWN_ATTEMPT, 2)]
    await node.place()
    usage = await node.until_samples(1)
    assert (usage.job_name, usage.team) == ("train", "vision")
    assert [row.fault for row in await node.refused()] == [RowFault.CARD_NOT_HELD]


@pytest.mark.parametrize(
    ("changes", "fault", "words"),
    [
        ({"window_end": 0}, RowFault.WRONG_WINDOW, "not after it begins"),
        ({"window_end": PERIOD_S + 1}, RowFault.WRONG_WINDOW, "not inside the message's window"),
        ({"quantity": WINDOW_MS + 1}, RowFault.WRONG_QUANTITY, "60001 gpu_ms"),
        ({"item": UsageItem.GPU_MEMORY_MIB_MS, "quantity": 7}, RowFault.WRONG_QUANTITY, "7 gpu_memory_mib_ms"),
        ({"card": 1}, RowFault.CARD_NOT_HELD, "never held card 1: it holds 0"),
        ({"member": 3}, RowFault.CARD_NOT_HELD, "has no member 3"),
        ({"tenant": "somebody"}, RowFault.TENANT_MISMATCH, "the row says somebody"),
    ],
)
async def test_a_row_that_is_wrong_is_kept_with_its_reason(
    node: Node, changes: dict[str, object], fault: RowFault, words: str
) -> None:
    await node.place()
    row = node.row(0)
    if isinstance(end_s := changes.get("window_end"), int):
        changes = {**changes, "window_end": row.window_start + timedelta(seconds=end_s)}
    owner = Node(node.stage, tenant="somebody") if "tenant" in changes else node
    before = len(await owner.refused())
    await node.measure(node.row(0, **changes), node.row(1, window_start=row.window_start, window_end=row.window_end))
    refused = (await owner.until_refused(before + 1))[0]
    assert refused.fault is fault
    assert words in refused.message
    assert (await node.until_samples(1)).gpu_ms == WINDOW_MS


async def test_mb12_a_clock_that_jumps_is_kept_and_not_billed(node: Node) -> None:
    await node.place()
    days = timedelta(days=2)
    ahead = node.row(0)
    await node.measure(
        node.row(0, window_start=ahead.window_start + days, window_end=ahead.window_end + days),
    )
    long_ago = timedelta(days=100)
    await node.measure(
        node.row(0, window_start=ahead.window_start - long_ago, window_end=ahead.window_end - long_ago),
    )
    assert {row.fault for row in await node.until_refused(2)} == {RowFault.CLOCK_JUMP}
    assert (await node.usage() or pytest.fail("it was placed")).samples == 0


async def test_a_node_cannot_speak_of_what_another_node_holds(node: Node) -> None:
    await node.place(node="central-2")
    await node.measure(node.row(0), node="central-9")
    [refused] = await node.until_refused()
    assert (refused.fault, refused.node) == (RowFault.NODE_MISMATCH, "central-9")


async def test_one_moment_of_a_card_is_billed_once(node: Node) -> None:
    await node.place()
    whole = node.row(0)
    await node.measure(whole)
    await node.until_samples(1)
    middle = whole.window_start + timedelta(seconds=20)
    half = node.row(0, window_start=middle, quantity=40_000)
    await node.measure(half, node.row(0, quantity=30_000, window_end=whole.window_start + timedelta(seconds=30)))
    assert {row.fault for row in await node.until_refused(2)} == {RowFault.OVERLAP, RowFault.CONFLICT}
    late, later = timedelta(seconds=PERIOD_S), timedelta(seconds=PERIOD_S + 30)
    first = node.row(1, window_end=whole.window_start + late + timedelta(seconds=40), quantity=40_000)
    await node.measure(first, node.row(1, window_start=whole.window_start + later, quantity=30_000))
    await node.until_refused(3)
    assert (await node.until_samples(2)).gpu_ms == WINDOW_MS + 40_000


@pytest.mark.parametrize("fence_first", [True, False])
async def test_windows_after_the_fence_are_kept_and_not_billed(node: Node, fence_first: bool) -> None:  # noqa: FBT001
    await node.place()
    fence = node.row(2).window_start
    if fence_first:
        await node.restore(2, fence)
        await node.place(2)
    for window in range(4):
        await node.measure(node.row(window))
    if not fence_first:
        await node.until_samples(4)
        await node.restore(2, fence)
    usage = await node.until_samples(2)
    refused = await node.until_refused(2)
    assert usage.gpu_ms == 2 * WINDOW_MS
    assert [row.fault for row in refused] == [RowFault.FENCED] * 2
    await node.measure(node.row(3))
    await node.measure(node.row(1))
    assert (await node.until_samples(2)).unbilled[0].fault is RowFault.FENCED


async def test_a_closing_holds_every_sample_once_by_the_hour(node: Node) -> None:
    await node.place(cards=(0, 1))
    rows = [node.row(window, card=card) for window in (0, 59, 60) for card in (0, 1)]
    for row in rows:
        await node.measure(row)
    await node.until_samples(6)
    reply = await node.close()
    closed = await node.until_closed(reply.close_id)
    assert (closed.samples, closed.rollups, closed.number) == (6, 2, 1)
    assert closed.period_start == node.begin
    assert closed.period_end == closed.cutoff == reply.cutoff
    rollups = sorted(await node.rollups(reply.close_id), key=lambda rollup: rollup.hour)
    assert [(rollup.hour, rollup.samples) for rollup in rollups] == [
        (node.begin, 4),
        (node.begin + timedelta(hours=1), 2),
    ]
    assert [rollup.entries[0].quantity for rollup in rollups] == [4 * WINDOW_MS, 2 * WINDOW_MS]
    extracted = [row for rollup in rollups for row in node.extract(rollup)]
    assert sorted(extracted, key=str) == sorted(rows, key=str)
    again = await node.close(reply.close_id)
    assert again == reply


async def test_mb6_mb7_late_usage_is_in_the_next_closing_and_periods_follow_one_another(node: Node) -> None:
    await node.place()
    await node.measure(node.row(0))
    await node.until_samples(1)
    first = await node.until_closed((await node.close()).close_id)
    await node.measure(node.row(1))
    await node.until_samples(2)
    reply = await node.close()
    second = await node.until_closed(reply.close_id)
    assert (second.number, second.samples, second.period_start) == (2, 1, first.period_end)
    [late] = await node.rollups(reply.close_id)
    assert (late.hour, late.number) == (node.begin, 2)
    empty = await node.until_closed((await node.close()).close_id)
    assert (empty.samples, empty.rollups) == (0, 0)


async def test_a_closing_survives_kills_and_an_object_store_that_is_away(node: Node, proxy: S3Proxy) -> None:
    await node.place()
    for window in range(5):
        await node.measure(node.row(window))
    await node.until_samples(5)
    gate = proxy.gate("PUT", "/usage/", "after", once=True)
    reply = await node.close()
    await until(gate.reached.is_set, 20, "the extract to be written")
    node.stage.service.kill()
    gate.open()
    proxy.away = True
    node.stage.service.start()
    await until(lambda: "usage.close_postponed" in node.stage.log(), 40, "the closing to be put off")
    proxy.away = False
    closed = await node.until_closed(reply.close_id)
    assert (closed.samples, closed.rollups) == (5, 1)
    [rollup] = await node.rollups(reply.close_id)
    assert sum(row.quantity for row in node.extract(rollup)) == 5 * WINDOW_MS


async def test_a_replay_of_the_whole_stream_changes_nothing(node: Node) -> None:
    await node.place()
    bodies = [await node.measure(node.row(window)) for window in range(4)]
    await node.until_samples(4)
    closed = await node.until_closed((await node.close()).close_id)
    for body in bodies:
        await node.say(body)
    await node.measure(node.row(4))
    await node.until_samples(5)
    again = await node.until_closed((await node.close()).close_id)
    assert (closed.samples, again.samples) == (4, 1)


async def test_what_is_measured_now_is_no_clock_jump(node: Node) -> None:
    await node.place()
    now = SystemClock().now().replace(second=0, microsecond=0)
    await node.measure(node.row(0, window_start=now, window_end=now + timedelta(seconds=PERIOD_S)))
    assert (await node.until_samples(1)).gpu_ms == WINDOW_MS
