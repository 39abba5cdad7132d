"""Billing against real servers: order, repetition, what is held, numbers without gaps, invoices that never change."""

import hashlib
from contextlib import aclosing

import asyncpg
import pytest

from contracts import registry
from contracts.invoices import LinesQuery
from contracts.requests import ProblemCode
from libs.bus import Problem
from libs.kit.ids import new_id
from tests.billing.play import HOUR, HOUR_MS, STANDARD, START, Billing, Closing, write_card
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_invoice_comes_about(billing: Billing) -> None:
    closing = Closing("acme")
    closing.add(2 * HOUR_MS)
    closing.add(HOUR_MS, hour=START + HOUR)
    await billing.tell_all(closing)
    invoice = await billing.until_invoiced(closing)
    assert (invoice.number, invoice.total_micro, invoice.total_minor) == (1, 7_500_000, 750)
    assert (invoice.rollups, invoice.samples, invoice.lines) == (2, 120, 1)
    text = STANDARD.format(version=1, until="null")
    assert invoice.rate_card_sha256 == hashlib.sha256(text.encode()).hexdigest()
    digests = "".join(f"{each.sha256}\n" for each in sorted(closing.rollups, key=lambda each: each.rollup_id))
    assert invoice.sha256 == hashlib.sha256(digests.encode()).hexdigest()
    [line] = await billing.lines(invoice)
    assert (line.quantity, line.amount, line.amount_minor) == (3 * HOUR_MS, "7.5", 750)


async def test_the_event_is_the_invoice(billing: Billing) -> None:
    closing = Closing("event")
    closing.add(1)
    await billing.tell_all(closing)
    invoice = await billing.until_invoiced(closing)
    [event] = await until(lambda: billing.issued("event"), 20, "the event")
    assert (event.body, event.subject, event.sequence) == (invoice, invoice.invoice_id, 1)
    assert event.actor == "/farside/metering"


async def test_any_order_will_do(billing: Billing) -> None:
    closing = Closing("order")
    rollups = [closing.add(HOUR_MS, hour=START + index * HOUR) for index in range(3)]
    await billing.tell(closing.closed)
    for rollup in reversed(rollups[1:]):
        await billing.tell(rollup)
    assert (await billing.page("order")).invoices == []
    await billing.tell(rollups[0])
    assert (await billing.until_invoiced(closing)).total_micro == 7_500_000


async def test_what_comes_again_changes_nothing(billing: Billing) -> None:
    closing = Closing("again")
    rollup = closing.add(HOUR_MS)
    for _ in range(3):
        await billing.tell_all(closing)
    invoice = await billing.until_invoiced(closing)
    await billing.tell_all(closing)
    other = Closing("again", number=2)
    other.add(HOUR_MS)
    await billing.tell_all(other)
    await billing.until_invoiced(other)
    assert (await billing.page("again", close_id=closing.close_id)).invoices == [invoice]
    assert len(await billing.issued("again")) == 2
    await billing.tell(rollup.model_copy(update={"samples": 1}))
    await billing.until_refused(f"roll-up {rollup.rollup_id} came before with another content")
    await billing.tell(closing.closed.model_copy(update={"samples": 1}))
    await billing.until_refused(f"close {closing.close_id} came before with another content")


async def test_a_late_roll_up_changes_nothing(billing: Billing) -> None:
    closing = Closing("late")
    closing.add(HOUR_MS)
    await billing.tell_all(closing)
    invoice = await billing.until_invoiced(closing)
    late = closing.add(HOUR_MS)
    await billing.tell(late)
    await billing.until_refused(f"roll-up {late.rollup_id} comes after close {closing.close_id} was billed")
    assert (await billing.page("late")).invoices == [invoice]


async def test_mb6_usage_after_the_close_comes_with_the_next_invoice(billing: Billing) -> None:
    first, second = Closing("mb6"), Closing("mb6", number=2)
    first.add(HOUR_MS)
    await billing.tell_all(first)
    before = await billing.until_invoiced(first)
    second.add(HOUR_MS // 4, number=2, samples=15)
    await billing.tell_all(second)
    after = await billing.until_invoiced(second)
    [line] = await billing.lines(after)
    assert (line.first_hour, line.amount, after.number) == (START, "0.625", 2)
    assert (await billing.page("mb6")).invoices == [after, before]


async def test_nothing_used_makes_no_invoice_and_takes_no_number(billing: Billing) -> None:
    empty, full = Closing("empty"), Closing("empty", number=2)
    await billing.tell(empty.closed)
    await until(lambda: _said(billing, empty.close_id), 20, "the log line closing.empty")
    full.add(1)
    await billing.tell_all(full)
    assert (await billing.until_invoiced(full)).number == 1
    assert len((await billing.page("empty")).invoices) == 1


async def _said(billing: Billing, close_id: str) -> bool:
    return any("closing.empty" in line and close_id in line for line in billing.stage.log().splitlines())


async def test_an_hour_without_a_price_is_held_until_the_card_has_one(billing: Billing) -> None:
    write_card(billing.rates, version=2, until="2026-03-01T01:00:00Z")
    closing = Closing("held")
    closing.add(HOUR_MS)
    closing.add(HOUR_MS, hour=START + HOUR)
    await until(lambda: _logged(billing, "standard version 2"), 20, "the new card")
    await billing.tell_all(closing)
    await billing.until_held(closing, "no price for gpu_hour on H100 in tier central at 2026-03-01T01:00Z")
    write_card(billing.rates, text="rate_card: standard\n")
    await until(lambda: _logged(billing, "rates.refused"), 20, "the refusal of the wrong card")
    await billing.until_held(closing, "version 2")
    write_card(billing.rates, version=3)
    invoice = await billing.until_invoiced(closing)
    assert (invoice.total_micro, invoice.rate_card_version, invoice.number) == (5_000_000, 3, 1)
    assert (await billing.page("held")).held == []


async def _logged(billing: Billing, words: str) -> bool:
    return words in billing.stage.log()


async def test_a_card_that_changed_under_its_version_is_not_used(billing: Billing) -> None:
    first, second = Closing("changed"), Closing("changed", number=2)
    for closing in (first, second):
        closing.add(HOUR_MS)
    write_card(billing.rates, version=7)
    await until(lambda: _logged(billing, "standard version 7"), 20, "the new card")
    await billing.tell_all(first)
    await billing.until_invoiced(first)
    write_card(billing.rates, text=STANDARD.format(version=7, until="null").replace("2.5", "9.5"))
    await until(lambda: billing.stage.log().count("standard version 7") > 1, 20, "the changed card")
    await billing.tell_all(second)
    await billing.until_held(second, "rate card standard version 7 was used before with another content")
    write_card(billing.rates, version=8)
    assert (await billing.until_invoiced(second)).total_micro == 2_500_000


async def test_numbers_have_no_gaps_and_survive_kills(billing: Billing) -> None:
    closings = [Closing("gapless", number=number) for number in range(1, 13)]
    for closing in closings:
        closing.add(HOUR_MS)
        await billing.tell_all(closing)
        if closing.number % 4 == 0:
            billing.stage.service.kill()
            billing.stage.service.start()
    invoices = [await billing.until_invoiced(closing) for closing in closings]
    assert sorted(invoice.number for invoice in invoices) == [*range(1, 13)]

    async def all_told() -> bool:
        return len(await billing.issued("gapless")) >= len(closings)

    await until(all_told, 20, "an event for each invoice")
    told = await billing.issued("gapless")
    assert sorted(event.subject for event in told) == sorted(invoice.invoice_id for invoice in invoices)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE invoices SET total_micro = 0",
        "DELETE FROM invoices",
        "UPDATE lines SET amount_micro = 0",
        "DELETE FROM lines",
        "TRUNCATE lines",
        "UPDATE rollups SET body = '{}'",
        "DELETE FROM rate_cards",
    ],
)
async def test_what_was_invoiced_never_changes(billing: Billing, statement: str) -> None:
    connection = await billing.connect()
    try:
        with pytest.raises(asyncpg.PostgresError, match="never changes"):
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_pages_of_invoices_lose_none(billing: Billing) -> None:
    closings = [Closing("pages", number=number) for number in range(1, 6)]
    for closing in closings:
        closing.add(1)
        await billing.tell_all(closing)
        await billing.until_invoiced(closing)
    seen: list[int] = []
    page = await billing.page("pages", limit=2)
    while page.cursor is not None:
        seen += [invoice.number for invoice in page.invoices]
        page = await billing.page("pages", limit=2, cursor=page.cursor)
    assert [*seen, *(invoice.number for invoice in page.invoices)] == [5, 4, 3, 2, 1]


async def test_what_is_not_there_is_a_problem(billing: Billing) -> None:
    query = LinesQuery(invoice_id=new_id())
    with pytest.raises(Problem, match="there is no invoice") as refused:
        await billing.stage.client.request(registry.QUERY_LINES, query, key="acme")
    assert refused.value.code is ProblemCode.NOT_FOUND
    with pytest.raises(Problem, match="is not one this service gave out"):
        await billing.page("acme", cursor="never")


async def test_a_tenant_sees_its_own_invoices_only(billing: Billing) -> None:
    closing = Closing("mine")
    closing.add(1)
    await billing.tell_all(closing)
    invoice = await billing.until_invoiced(closing)
    query = LinesQuery(invoice_id=invoice.invoice_id)
    with pytest.raises(Problem, match="there is no invoice"):
        await billing.stage.client.request(registry.QUERY_LINES, query, key="other")
    assert (await billing.page("other")).invoices == []
    async with aclosing(billing.stage.client.events([registry.INVOICES_ISSUED], key="mine", since="all")) as events:
        assert (await anext(events)).body == invoice
