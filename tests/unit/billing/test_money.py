"""Rounding: once, half to even, and parts that add up (cases MB9 and MB10)."""

from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from services.billing.core.money import MICRO, decimal_text, round_half_even, split_minor, to_minor

NUMBERS = st.integers(min_value=0, max_value=10**15)
AMOUNTS = st.lists(st.integers(min_value=0, max_value=10**12), max_size=100)
EXPONENTS = st.integers(min_value=0, max_value=6)


def test_a_half_goes_to_the_even_one() -> None:
    assert [round_half_even(number, 2) for number in (1, 3, 5, 7)] == [0, 2, 2, 4]
    assert (round_half_even(1_000_001, 2_000_000), round_half_even(999_999, 2_000_000)) == (1, 0)


@given(NUMBERS, st.integers(min_value=1, max_value=10**12))
def test_rounding_is_that_of_python_s_fractions(numerator: int, denominator: int) -> None:
    assert round_half_even(numerator, denominator) == round(Fraction(numerator, denominator))


@given(NUMBERS, st.integers(min_value=1, max_value=10**12))
def test_a_decimal_is_right_to_thirty_places(numerator: int, denominator: int) -> None:
    with localcontext(prec=100):
        exact = Decimal(numerator) / Decimal(denominator)
        assert Decimal(decimal_text(numerator, denominator)) == exact.quantize(Decimal(10) ** -30, ROUND_HALF_EVEN)


def test_decimals_end_where_they_end() -> None:
    assert [decimal_text(*each) for each in ((5, 2), (4, 2), (0, 7), (1, 3))] == ["2.5", "2", "0", f"0.{'3' * 30}"]


def test_mb9_eighty_one_rounded_lines_lose_no_cent() -> None:
    """81 parts of 12.34 dollars: rounded one by one they are 12.15 or 12.96, never 12.34."""
    parts = [12_340_000 // 81 + (1 if index < 12_340_000 % 81 else 0) for index in range(81)]
    assert sum(to_minor(part, 2) for part in parts) != 1234
    assert sum(split_minor(parts, 2)) == 1234


@given(AMOUNTS, EXPONENTS)
def test_mb9_parts_sum_to_the_total(amounts: list[int], exponent: int) -> None:
    parts = split_minor(amounts, exponent)
    assert sum(parts) == to_minor(sum(amounts), exponent)
    size = 10 ** (6 - exponent)
    assert all(0 <= part - amount // size <= 1 for part, amount in zip(parts, amounts, strict=True))


@given(AMOUNTS, EXPONENTS)
def test_mb9_who_lost_more_is_not_passed_over(amounts: list[int], exponent: int) -> None:
    size = 10 ** (6 - exponent)
    got = [part > amount // size for part, amount in zip(split_minor(amounts, exponent), amounts, strict=True)]
    losses = [amount % size for amount in amounts]
    least = min((loss for loss, more in zip(losses, got, strict=True) if more), default=size)
    assert all(loss <= least for loss, more in zip(losses, got, strict=True) if not more)


def test_mb10_yen_have_no_hundredths() -> None:
    assert to_minor(1_500 * MICRO, 0) == 1_500
    assert split_minor([500_000, 500_000, 500_000], 0) == [1, 1, 0]
    assert to_minor(1_500 * MICRO, 3) == 1_500_000
