"""Money without floats: integers of a named unit, and fractions of integers until they are rounded, once.

`micro` is a millionth of the currency, `minor` its smallest coin by the currency's exponent (2 for cents, 0 for yen).
"""

from collections.abc import Sequence

MICRO_DIGITS = 6
MICRO = 10**MICRO_DIGITS
EXACT_DIGITS = 30


def round_half_even(numerator: int, denominator: int) -> int:
    """The nearest whole number to a fraction of two numbers that are not negative; a half goes to the even one."""
    assert numerator >= 0
    assert denominator > 0
    whole, rest = divmod(numerator, denominator)
    up = rest * 2 > denominator or (rest * 2 == denominator and whole % 2 == 1)
    return whole + up


def decimal_text(numerator: int, denominator: int) -> str:
    """A fraction as a decimal: exact where it ends, else half-even at EXACT_DIGITS decimals (a third has no end)."""
    scaled = round_half_even(numerator * 10**EXACT_DIGITS, denominator)
    whole, decimals = divmod(scaled, 10**EXACT_DIGITS)
    text = f"{decimals:0{EXACT_DIGITS}d}".rstrip("0")
    return f"{whole}.{text}" if text else str(whole)


def to_minor(micro: int, exponent: int) -> int:
    """An amount in the currency's smallest coin."""
    return round_half_even(micro, _micro_per_minor(exponent))


def split_minor(amounts_micro: Sequence[int], exponent: int) -> list[int]:
    """Each part in the smallest coin, so that the parts add up to the rounded sum of all.

    Largest remainder (Hamilton): each part gets its whole coins, and the coins still missing go one each to the parts
    that lost most by that; of equal ones, to the earlier.
    """
    size = _micro_per_minor(exponent)
    parts = [amount // size for amount in amounts_micro]
    missing = to_minor(sum(amounts_micro), exponent) - sum(parts)
    by_loss = sorted(range(len(parts)), key=lambda index: (-(amounts_micro[index] % size), index))
    for index in by_loss[:missing]:
        parts[index] += 1
    return parts


def _micro_per_minor(exponent: int) -> int:
    assert 0 <= exponent <= MICRO_DIGITS
    return 10 ** (MICRO_DIGITS - exponent)
