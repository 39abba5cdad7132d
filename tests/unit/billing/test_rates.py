"""Rate card files: what is taken, and what is said of a wrong one."""

import os
from pathlib import Path

import pytest

from contracts.base import Tier
from libs.kit.start import BAD_SETTINGS, read_settings
from services.billing.core.cards import PriceItem
from services.billing.rates import RateBook, RateCardError, read_rates
from services.billing.settings import BillingSettings
from tests.unit.billing.make import START

REPOSITORY = Path(__file__).parents[3]
GOOD = """\
rate_card: standard
version: 3
currency: USD
exponent: 2
prices:
  - {item: gpu_hour, accelerator: "*", tier: "*", price: "2.5", from: 2026-01-01T00:00:00Z, until: 2026-07-01T00:00:00Z}
  - {item: gpu_hour, accelerator: "*", tier: "*", price: "3", from: 2026-07-01T00:00:00Z, until: null}
  - item: gpu_memory_gib_hour
    accelerator: H100
    tier: remote
    price: "0.001001"
    from: 2026-01-01T00:00:00Z
    until: null
"""
OTHER = GOOD.replace("standard", "special").replace("prices:", "tenants: [beta]\nprices:")


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(RateCardError) as refused:
        read_rates(folder)
    return str(refused.value)


def test_prices_are_exact(tmp_path: Path) -> None:
    [card] = read_rates(write(tmp_path, standard=GOOD))
    assert [price.price_micro for price in card.prices] == [2_500_000, 3_000_000, 1_001]
    assert card.prices[0].valid_until == card.prices[1].valid_from
    assert card.text == GOOD


def test_the_local_card_prices_everything() -> None:
    [card] = read_rates(REPOSITORY / "deploy" / "local" / "rates")
    found = [card.price(PriceItem.GPU_HOUR, "H100", tier.value, START) for tier in Tier]
    assert [price.price_micro for price in found if price] == [2_500_000, 4_000_000, 1_200_000]
    for tier in Tier:
        memory = card.price(PriceItem.GPU_MEMORY_GIB_HOUR, "H100", tier.value, START)
        assert memory is not None
        assert memory.price_micro == 1_000


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"2.5"', "2.5", "line 6: prices[0].price is 2.5; write the price in quotes"),
        ('"2.5"', "2", "write the price in quotes"),
        ('"2.5"', '"-2.5"', 'line 6: prices[0].price is "-2.5"; expected a price in quotes'),
        ('"2.5"', '"2.5000001"', 'line 6: prices[0].price is "2.5000001"; expected a price'),
        ('"2.5"', '"1e3"', 'line 6: prices[0].price is "1e3"; expected a price'),
        ("gpu_hour, acc", "gpu_month, acc", 'line 6: prices[0].item is "gpu_month"; expected one of gpu_hour, '),
        ("tier: remote", "tier: cloud", 'line 10: prices[2].tier is "cloud"; expected one of *, central, '),
        ("2026-07-01T00:00:00Z}", "2026-07-01T00:30:00Z}", "a UTC time on a whole hour"),
        ("2026-07-01T00:00:00Z}", "2026-07-01T00:00:00+02:00}", "a UTC time on a whole hour"),
        ("2026-07-01T00:00:00Z}", "2026-07-01}", "a UTC time on a whole hour"),
        ("2026-07-01T00:00:00Z}", '"soon"}', "a UTC time on a whole hour"),
        (
            "until: 2026-07-01T00:00:00Z}",
            "until: 2026-01-01T00:00:00Z}",
            "line 6: prices[0].until is 2026-01-01T00:00Z: it must be later than `from`, 2026-01-01T00:00Z",
        ),
        (", until: null", "", "line 7: prices[1].until is missing; expected a UTC time"),
        ("version: 3", "version: 0", "line 2: version is 0; expected a whole number from 1"),
        ("version: 3", "version: 3\nversion: 4", "line 3: version is given twice; keep one"),
        ("exponent: 2", "exponent: 0", "line 4: exponent is 0: USD has 2 decimals"),
        ("currency: USD", "currency: JPY", "line 4: exponent is 2: JPY has 0 decimals"),
        ("currency: USD", "currency: usd", 'line 3: currency is "usd"; expected'),
        ("prices:", "valid: yes\nprices:", "line 5: valid is no field of a rate card; known are rate_card, version, "),
        ("prices:", "tenants: []\nprices:", "line 5: tenants is []; expected a list of at least 1 item"),
        ("rate_card: standard", "rate_card: [", "line 3: the file is not YAML: "),
        (GOOD, "- just\n- a list\n", 'the file is ["just", "a list"]; expected a mapping with at least rate_card, '),
    ],
)
def test_a_wrong_file_is_named_with_field_and_value(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    text = refusal(write(tmp_path, standard=GOOD.replace(old, new, 1)))
    assert text.startswith(str(tmp_path / "standard.yaml"))
    assert said in text


def test_an_overlap_names_both_entries_and_the_remedy(tmp_path: Path) -> None:
    text = refusal(write(tmp_path, standard=GOOD.replace("until: 2026-07-01T00:00:00Z", "until: 2026-07-01T01:00:00Z")))
    assert "standard.yaml, line 6: prices[0] (gpu_hour * * from 2026-01-01T00:00Z until 2026-07-01T01:00Z)" in text
    assert "and prices[1] (gpu_hour * * from 2026-07-01T00:00Z for good) overlap" in text
    assert "end the earlier one where the later one begins" in text


def test_two_versions_at_once_are_refused(tmp_path: Path) -> None:
    text = refusal(write(tmp_path, a=GOOD, b=GOOD.replace("version: 3", "version: 4")))
    assert f"{tmp_path / 'a.yaml'} and {tmp_path / 'b.yaml'}: version 3 and version 4 of rate card 'standard'" in text


def test_two_cards_for_one_tenant_are_refused(tmp_path: Path) -> None:
    third = OTHER.replace("special", "third").replace("[beta]", "[gamma, beta]")
    text = refusal(write(tmp_path, a=OTHER, b=third))
    assert "a.yaml and" in text
    assert "both claim tenant 'beta'" in text


def test_two_cards_for_everybody_are_refused(tmp_path: Path) -> None:
    assert "both are for everybody" in refusal(write(tmp_path, a=GOOD, b=GOOD.replace("standard", "other")))


def test_a_tenant_has_the_card_that_names_it(tmp_path: Path) -> None:
    book = RateBook.read(write(tmp_path, a=GOOD, b=OTHER))
    found = [book.card_for(tenant) for tenant in ("beta", "acme")]
    assert [card.name for card in found if card] == ["special", "standard"]
    assert RateBook.read(write(tmp_path, a=OTHER.replace("special", "x").replace("beta", "y"))).card_for("acme") is None


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert f"FARSIDE_RATES is {tmp_path}" in refusal(tmp_path)
    assert "expected a folder" in refusal(tmp_path / "absent")


def touch(path: Path, text: str) -> None:
    """Write, with another time of change for sure."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def test_a_wrong_change_keeps_the_last_good_cards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = RateBook.read(write(tmp_path, standard=GOOD))
    file = tmp_path / "standard.yaml"
    assert not book.refresh()
    touch(file, GOOD.replace('"2.5"', "2.5"))
    assert not book.refresh()
    assert book.cards[0].version == 3
    said = capsys.readouterr()
    assert "rates.refused" in said.out + said.err
    touch(file, GOOD.replace("version: 3", "version: 4"))
    assert book.refresh()
    assert book.cards[0].version == 4


def test_the_service_does_not_start_with_a_wrong_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FARSIDE_PG_DSN", "postgresql://nobody@127.0.0.1/nothing")
    monkeypatch.setenv("FARSIDE_RATES", str(write(tmp_path, standard=GOOD.replace("USD", "JPY"))))
    with pytest.raises(SystemExit) as ended:
        read_settings("billing", BillingSettings)
    assert ended.value.code == BAD_SETTINGS
    said = capsys.readouterr()
    assert "JPY has 0 decimals" in said.out + said.err
