"""`farside bill`: what is said without a stack."""

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


@pytest.mark.parametrize(
    ("currency", "exponent", "shown"), [("USD", 2, "2.50 USD"), ("JPY", 0, "2 JPY"), ("KWD", 3, "2.500 KWD")]
)
def test_mb10_money_is_shown_in_the_currency_s_own_coins(currency: str, exponent: int, shown: str) -> None:
    rollups = [rollup(entry(HOUR_MS))]
    found = rated(rollups, card(price(2_500_000), currency=currency, exponent=exponent))
    invoice = make_invoice(closing(*rollups), found, invoice_id=uuid(1), number=12, issued_at=START)
    assert bills.money(invoice) == shown
    assert reference(invoice) == "acme-0012"
