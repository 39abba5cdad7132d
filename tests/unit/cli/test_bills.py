"""`farside bill`: what is said without a stack."""

from datetime import timedelta

import pytest
from click.testing import CliRunner

from libs.audit import reference
from libs.cli import bills, main
from libs.cli.errors import USAGE
from services.billing.core.rating import make_invoice
from tests.unit.billing.make import HOUR_MS, START, card, closing, entry, price, rated, rollup, uuid


@pytest.mark.parametrize("command", ["show", "verify"])
@pytest.mark.parametrize("words", [[], ["acme-0001", "--last"]])
def test_an_invoice_is_named_once(command: str, words: list[str]) -> None:
    result = CliRunner().invoke(main.cli, ["bill", command, *words])
    assert result.exit_code == USAGE
    assert "name an INVOICE (acme-0001, its id or the beginning of it), or give --last" in result.output


def test_a_close_needs_a_tenant() -> None:
    result = CliRunner(env={"FARSIDE_TENANT": ""}).invoke(main.cli, ["bill", "close"])
    assert result.exit_code == USAGE
    assert "--tenant" in result.output


def test_a_line_names_its_job_and_its_hours() -> None:
    rollups = [rollup(entry(HOUR_MS)), rollup(entry(HOUR_MS), hour=START + timedelta(hours=2))]
    line = rated(rollups, card(price(2_500_000))).lines[0]
    cells = bills.line_row(line, 2)
    assert line.job_id is not None
    assert cells[2] == line.job_id[:8]
    assert cells[4] == f"{START:%Y-%m-%dT%H}Z..{START + timedelta(hours=2):%Y-%m-%dT%H}Z"
    one = bills.line_row(line.model_copy(update={"last_hour": line.first_hour}), 2)
    assert one[4] == f"{START:%Y-%m-%dT%H}Z"


def test_a_line_of_a_later_release_is_shown_in_its_own_unit() -> None:
    line = rated([rollup(entry(HOUR_MS))], card(price(2_500_000))).lines[0]
    nobodys = dict.fromkeys(("job_id", "job_name", "accelerator", "tier"))
    later = line.model_copy(update={"item": "storage_mib_ms", "quantity": 7, "unit": "GiB month", **nobodys})
    cells = bills.line_row(later, 2)
    assert (cells[1], cells[2], cells[5], cells[6], cells[8]) == ("", "", "", "", "GiB month")
    assert cells[7].startswith("7")


@pytest.mark.parametrize(
    ("number", "said"),
    [(1, "nothing billable was ever measured for tenant nosuch"), (2, "nothing was used since the last closing")],
)
def test_a_closing_of_nothing_says_whether_there_ever_was_anything(number: int, said: str) -> None:
    assert bills.nothing("nosuch", number).startswith(said)


@pytest.mark.parametrize(
    ("currency", "exponent", "shown"), [("USD", 2, "2.50 USD"), ("JPY", 0, "2 JPY"), ("KWD", 3, "2.500 KWD")]
)
def test_mb10_money_is_shown_in_the_currency_s_own_coins(currency: str, exponent: int, shown: str) -> None:
    rollups = [rollup(entry(HOUR_MS))]
    found = rated(rollups, card(price(2_500_000), currency=currency, exponent=exponent))
    invoice = make_invoice(closing(*rollups), found, invoice_id=uuid(1), number=12, issued_at=START)
    assert bills.money(invoice) == shown
    assert reference(invoice) == "acme-0012"
