"""`farside bill list` and `show` against the real service."""

import re
from decimal import Decimal

import pytest

from libs.cli.errors import FAILED
from tests.billing.commands import farside
from tests.billing.play import HOUR, HOUR_MS, STANDARD, START, Billing, Closing, write_card
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

THIRDS = STANDARD.replace('price: "2.5"', 'price: "0.333333"')


async def a_bill(billing: Billing, tenant: str) -> Closing:
    """A closing whose three lines are a third of a dollar each, before rounding."""
    write_card(billing.rates, text=THIRDS.format(version=9, until="null"))
    await until(lambda: "standard version 9" in billing.stage.log(), 20, "the card")
    closing = Closing(tenant)
    for index, job in enumerate(("one", "two", "three")):
        made = closing.add(HOUR_MS, hour=START + index * HOUR)
        entry = made.entries[0].model_copy(update={"job_name": job, "job_id": made.rollup_id})
        closing.rollups[-1] = made.model_copy(update={"entries": [entry]})
    await billing.tell_all(closing)
    await billing.until_invoiced(closing)
    return closing


async def test_the_lines_visibly_add_up(billing: Billing) -> None:
    await a_bill(billing, "lines")
    ran = await farside(billing.stage, "bill", "show", "lines-0001", "--lines")
    assert (ran.status, ran.err) == (0, "")
    *lines, total = [line for line in ran.out.splitlines() if re.search(r" \d+\.\d{6} +\d+\.\d\d$", line)]
    columns = [[Decimal(part) for part in line.split()[-2:]] for line in (*lines, total)]
    assert columns[-1] == [sum(column) for column in zip(*columns[:-1], strict=True)]
    assert columns[-1] == [Decimal("0.999999"), Decimal("1.00")]
    assert [line.split()[1] for line in lines] == ["one", "three", "two"]
    assert all("1.000000  GPU hour  0.333333" in line for line in lines)
    assert [line.split()[4] for line in lines] == [f"{START + hour * HOUR:%Y-%m-%dT%HZ}" for hour in (0, 2, 1)]


async def test_an_invoice_is_found_by_number_id_and_beginning(billing: Billing) -> None:
    closing = await a_bill(billing, "found")
    invoice = await billing.until_invoiced(closing)
    for name in ("found-0001", invoice.invoice_id, invoice.invoice_id[:-4]):
        ran = await farside(billing.stage, "bill", "show", name, "--json")
        assert (ran.data["invoice_id"], ran.data["reference"]) == (invoice.invoice_id, "found-0001")
    ran = await farside(billing.stage, "bill", "show", "--last", "--tenant", "found", "--lines", "--json")
    assert len(ran.data["lines"]) == ran.data["lines"][-1]["line"] == 3
    ran = await farside(billing.stage, "bill", "show", "found-0002")
    assert ran.status == FAILED
    assert "no invoice with the number or id 'found-0002'" in ran.err


async def test_the_list_tells_what_is_held(billing: Billing) -> None:
    await a_bill(billing, "listed")
    held = Closing("listed", number=2)
    held.add(HOUR_MS, hour=START - 100_000 * HOUR)
    await billing.tell_all(held)
    await billing.until_held(held, "no price")
    ran = await farside(billing.stage, "bill", "list", "--tenant", "listed")
    assert re.search(r"^listed-0001  .* 1\.00 USD  180 ", ran.out, re.MULTILINE)
    assert f"held: close {held.close_id} of listed: rate card standard version 9 has no price" in ran.err
    ran = await farside(billing.stage, "bill", "list", "--tenant", "listed", "--json")
    assert [each["close_id"] for each in ran.data["held"]] == [held.close_id]
    assert [each["number"] for each in ran.data["invoices"]] == [1]
