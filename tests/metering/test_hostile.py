"""What nobody should say is said: garbage, floods, cursors of somebody else. Metering keeps it and goes on."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from contracts import registry
from contracts.base import INT64_MAX
from contracts.registry import NO_KEY
from contracts.requests import ProblemCode
from contracts.usage import (
    CloseRequest,
    RefusedQuery,
    RollUpsPage,
    RollUpsQuery,
    RowFault,
    SamplesPage,
    SamplesQuery,
    UsageItem,
    UsageMeasured,
    UsageQuery,
)
from libs.bus import Problem
from libs.db import connect_once
from libs.kit.ids import new_id
from services.metering.store import LOCK_CLASS
from tests.metering.play import ASK_S, PERIOD_S, WIDTH, WINDOW_MS, Node
from tests.waiting import until

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

MANY = 400
LAST = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
CURSORS = [
    (registry.QUERY_USAGE, UsageQuery(), ["x", "a/b", f"a/{2**63}", "a/-1"]),
    (registry.QUERY_REFUSED, RefusedQuery(), ["x", "", str(2**63), "1" * 200]),
    (
        registry.QUERY_SAMPLES,
        SamplesQuery(job_id=new_id()),
        ["", "x", "a/1/0/0/gpu_ms", "a/1/0/0/gpu_ms/x", f"a/1/0/0/gpu_ms/{2**62}", f"a/{2**63}/0/0/gpu_ms/0"],
    ),
]


@pytest.mark.parametrize(
    ("request_", "query", "cursor"),
    [(request, query, cursor) for request, query, cursors in CURSORS for cursor in cursors],
)
async def test_a_cursor_of_somebody_else_is_a_problem_with_a_remedy(
    node: Node, request_: registry.Request[Any, Any], query: Any, cursor: str
) -> None:
    with pytest.raises(Problem, match="pass the cursor of the page before") as caught:
        await node.stage.client.request(
            request_, query.model_copy(update={"cursor": cursor}), key=node.tenant, timeout_s=ASK_S
        )
    assert caught.value.code is ProblemCode.INVALID


async def test_a_closing_of_no_tenant_is_refused_and_stops_no_other(node: Node) -> None:
    with pytest.raises(Problem, match="name it in the subject"):
        await node.stage.client.request(
            registry.CALL_CLOSE, CloseRequest(close_id=new_id()), key=NO_KEY, timeout_s=ASK_S
        )
    closed = await node.until_closed((await node.close()).close_id)
    assert (closed.samples, closed.rollups) == (0, 0)
    assert closed.period_start <= closed.period_end


async def test_a_closing_of_another_tenant_is_not_taken_for_ones_own(node: Node) -> None:
    reply = await node.close()
    with pytest.raises(Problem, match="choose a new close_id"):
        await Node(node.stage).close(reply.close_id)


async def test_usage_comes_in_however_long_a_closing_takes_to_open(node: Node) -> None:
    await node.place()
    session = await connect_once(node.stage.dsn)
    try:
        await session.execute("SELECT pg_advisory_lock($1, hashtext('closings'))", LOCK_CLASS)
        closing = asyncio.create_task(node.close())
        await node.measure(node.row(0))
        await node.until_samples(1)
        assert not closing.done()
    finally:
        await session.close()
    closed = await node.until_closed((await closing).close_id)
    assert (closed.samples, closed.period_start) == (1, node.begin)


async def test_a_job_of_more_kinds_of_card_than_a_roll_up_holds_is_closed_in_several(node: Node) -> None:
    await node.place(cards=tuple(range(MANY)))
    names = {card: f"{card}{'ä' * 250}" for card in range(MANY)}
    await node.measure(
        *(node.row(0, card=card, member=card // WIDTH, accelerator=name) for card, name in names.items())
    )
    await node.until_samples(MANY)
    reply = await node.close()
    closed = await node.until_closed(reply.close_id)
    assert closed.rollups > 1
    found, cursor = list[str | None](), None
    while not found or cursor is not None:
        page: RollUpsPage = await node.stage.client.request(
            registry.QUERY_ROLLUPS,
            RollUpsQuery(close_id=reply.close_id, cursor=cursor),
            key=node.tenant,
            timeout_s=ASK_S,
        )
        found += [entry.accelerator for rollup in page.rollups for entry in rollup.entries]
        cursor = page.cursor
    assert sorted(map(str, found)) == sorted(names.values())


async def test_samples_come_in_pages_that_fit_each_once_in_order(node: Node) -> None:
    await node.place(cards=tuple(range(MANY)))
    for window in range(2):
        long = {"card_uuid": "ü" * 256, "accelerator": "ß" * 256}
        rows = [node.row(window, card=card, member=card // WIDTH, **long) for card in range(MANY)]
        await node.measure(*rows)
    await node.until_samples(2 * MANY)
    closed = await node.until_closed((await node.close()).close_id)
    [rollup] = await node.rollups(closed.close_id)
    for query in (SamplesQuery(job_id=node.job_id), SamplesQuery(rollup_id=rollup.rollup_id)):
        found, cursor, pages = list[tuple[int, datetime]](), None, 0
        while pages == 0 or cursor is not None:
            page: SamplesPage = await node.stage.client.request(
                registry.QUERY_SAMPLES,
                query.model_copy(update={"cursor": cursor}),
                key=node.tenant,
                timeout_s=ASK_S,
            )
            found += [(row.card, row.window_start) for row in page.rows]
            cursor, pages = page.cursor, pages + 1
        assert pages > 1
        assert found == sorted({(card, node.row(window).window_start) for card in range(MANY) for window in range(2)})


async def test_quantities_beyond_all_bounds_are_kept_and_shown(node: Node) -> None:
    await node.place()
    for window in range(3):
        await node.measure(node.row(window, quantity=INT64_MAX))
    assert {row.fault for row in await node.until_refused(3)} == {RowFault.WRONG_QUANTITY}
    usage = await node.usage()
    assert usage is not None
    assert (usage.gpu_ms, usage.unbilled[0].gpu_ms, usage.unbilled[0].samples) == (0, INT64_MAX, 3)


async def test_the_end_of_time_is_kept_as_wrong(node: Node) -> None:
    await node.place()
    await node.measure(node.row(0, window_start=LAST, window_end=LAST), period_s=3600)
    [refused] = await node.until_refused()
    assert refused.fault is RowFault.WRONG_WINDOW


async def test_one_moment_is_billed_once_within_one_message(node: Node) -> None:
    await node.place()
    whole = node.row(0)
    middle = whole.window_start + (whole.window_end - whole.window_start) / 2
    shorter = node.row(0, window_end=middle, quantity=WINDOW_MS // 2)
    half = node.row(0, window_start=middle, quantity=WINDOW_MS // 2)
    await node.measure(whole, shorter, half)
    assert {row.fault for row in await node.until_refused(2)} == {RowFault.CONFLICT, RowFault.OVERLAP}
    assert (await node.until_samples(1)).gpu_ms == WINDOW_MS


async def test_a_message_that_cannot_be_kept_stops_none_beside_it(node: Node) -> None:
    await node.place()
    await node.measure(node.row(0, attempt=2**70))
    await node.measure(node.row(1))
    assert (await node.until_samples(1)).gpu_ms == WINDOW_MS


async def test_a_placement_that_is_told_again_otherwise_changes_nothing(node: Node) -> None:
    await node.place()
    await node.place(cards=(0, 1), node="central-2")
    await node.place(cards=(0, 1))
    await node.measure(node.row(0), node.row(0, card=1))
    [refused] = await node.until_refused()
    assert refused.fault is RowFault.CARD_NOT_HELD
    assert (await node.until_samples(1)).gpu_ms == WINDOW_MS


async def test_a_flood_of_rows_of_one_fault_is_one_line_of_log(node: Node) -> None:
    rows = [node.row(0, card=card) for card in range(MANY)]
    await node.measure(*rows, node.row(0, item=UsageItem.GPU_MEMORY_MIB_MS, quantity=1))
    await node.until_refused(100)

    def told() -> list[tuple[str, int]]:
        said = [json.loads(line) for line in node.stage.log().splitlines() if node.job_id in line]
        return [(line["fault"], line["rows"]) for line in said if line["event"] == "usage.refused"]

    await until(lambda: len(told()) >= 2, 20, "both faults to be told in the log")
    assert told() == [("unknown_attempt", MANY), ("wrong_quantity", 1)]


async def test_a_trace_that_is_none_is_passed_over(node: Node) -> None:
    await node.place()
    body = UsageMeasured(
        node=node.name,
        incarnation=new_id(),
        period_s=PERIOD_S,
        window_start=node.begin,
        rows=[node.row()],
        measured_at=node.row().window_end,
    )
    headers = {
        "content-type": "application/json",
        "ce-specversion": "1.0",
        "ce-type": registry.USAGE_MEASURED.type,
        "ce-id": new_id(),
        "ce-source": "/liar",
        "ce-time": "2030-01-01T00:00:00Z",
        "ce-subject": node.name,
        "ce-sequence": "1",
        "ce-actor": "liar",
        "ce-traceparent": "garbage",
    }
    await node.stage.client.js.publish(
        registry.USAGE_MEASURED.subject(node.name), body.model_dump_json().encode(), headers=headers
    )
    await node.until_samples(1)
    closed = await node.until_closed((await node.close()).close_id)
    assert closed.samples == 1


async def test_a_closing_that_cannot_be_carried_out_holds_up_no_other(node: Node) -> None:
    await node.place()
    await node.measure(node.row())
    await node.until_samples(1)
    connection = await connect_once(node.stage.dsn, "metering")
    try:
        await connection.execute(
            """
            INSERT INTO closes (close_id, tenant, number, period_start, period_end, cutoff, samples, state, actor,
              trace_life, trace_hop)
            VALUES ($1, 'damaged', 1, $2, $2, $2, 0, 'open', 'test', 'garbage', 'garbage')
            """,
            new_id(),
            node.begin,
        )
        closed = await node.until_closed((await node.close()).close_id)
        assert closed.samples == 1
        await until(lambda: "usage.close_failed" in node.stage.log(), 20, "the damaged closing to be told")
    finally:
        await connection.execute("DELETE FROM closes WHERE tenant = 'damaged'")
        await connection.close()
