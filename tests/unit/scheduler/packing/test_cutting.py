"""Prices of shares: against programs whose solution is known, and against what must hold for any mix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.core.arrays import CARD
from services.scheduler.core.packing.cutting import NOTCHES, rest_worth

HUNDREDTH = CARD // NOTCHES


def worth_of(mix: dict[int, float]) -> list[float]:
    """Of each rest in hundredths; the mix by hundredths."""
    sizes = np.array(list(mix), dtype=np.int64) * HUNDREDTH
    return rest_worth(sizes, np.array(list(mix.values()), dtype=np.float64)).tolist()


def test_pairs_are_worth_half_a_card_each() -> None:
    worth = worth_of({47: 1.0})
    assert worth[46] == 0
    assert worth[47] == worth[93] == pytest.approx(0.5)
    assert worth[94] == worth[100] == pytest.approx(1)


def test_a_rest_that_hardly_any_task_asks_for_is_worth_nothing() -> None:
    worth = worth_of({81: 35.0, 16: 2.4})
    assert worth[19] == pytest.approx(0)
    assert worth[81] == pytest.approx(1)


def test_a_rest_that_many_ask_for_is_worth_what_they_would_else_take() -> None:
    worth = worth_of({81: 1.0, 16: 30.0})
    assert worth[16] == pytest.approx(1 / 6)
    assert worth[81] == pytest.approx(5 / 6)


def test_unlike_shares_that_fill_a_card_together_split_it() -> None:
    worth = worth_of({65: 1.0, 32: 2.0})
    assert worth[65] == pytest.approx(2 / 3)
    assert worth[32] == worth[35] == pytest.approx(1 / 3)


def test_without_fractions_a_rest_is_worth_what_it_is() -> None:
    assert worth_of({}) == pytest.approx([rest / NOTCHES for rest in range(NOTCHES + 1)])


def test_shares_are_rounded_up_so_that_no_rest_is_promised_too_much() -> None:
    worth = rest_worth(np.array([500_001], dtype=np.int64), np.ones(1))
    assert worth[50] == 0
    assert worth[51] == worth[100] == 1


@given(st.dictionaries(st.integers(1, 99), st.floats(0.01, 100), min_size=1, max_size=60))
def test_more_rest_is_never_worth_less_and_two_are_worth_no_more_than_both(mix: dict[int, float]) -> None:
    worth = np.array(worth_of(mix))
    assert worth[0] == 0
    assert worth[-1] == 1
    assert (np.diff(worth) >= 0).all()
    for one in range(1, NOTCHES):
        both = worth[one] + worth[1 : NOTCHES - one + 1]
        assert (both <= worth[one + 1 : NOTCHES + 1] + 1e-6).all()
