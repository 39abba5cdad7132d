"""Which measured rows count, whatever an agent says and in whatever order it comes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.base import INT64_MAX, Tier
from contracts.usage import RowFault, UsageItem
from services.metering.core import judge
from services.metering.core.model import Placement, Refused, Sample, Seat, identity
from tests.unit.metering.make import (
    DAY_S,
    LIMITS,
    LONG_BEFORE,
    MINUTE,
    NODE,
    PLACEMENT,
    START,
    measured,
    row,
    sample,
    verdict,
)

HOUR_MS = 3_600_000
FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
moments = st.datetimes(timezones=st.just(UTC))
windows = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(0, 1)), max_size=12
)  # begin, length, card


def placed(seat: Seat) -> Placement:
    return Placement("acme", {0: seat}, LONG_BEFORE)


def fault_of(found: Sample | Refused) -> RowFault | None:
    return found.fault if isinstance(found, Refused) else None


@given(st.integers(0, 59_999), st.integers(1, 60_000), st.integers(1, 1000))
def test_a_share_of_a_part_of_a_window_counts_with_its_exact_quantity(start: int, held: int, share: int) -> None:
    end = min(60_000, start + held)
    right = share * (end - start) // 1000
    assert isinstance(verdict(row(start, end, share_milli=share, quantity=right)), Sample)
    for wrong in (right + 1, right - 1):
        if wrong >= 0:
            assert fault_of(verdict(row(start, end, share_milli=share, quantity=wrong))) is RowFault.WRONG_QUANTITY


@given(st.integers(1, 60_000), st.integers(1, 1000), st.integers(0, 200_000))
def test_memory_is_the_held_time_of_the_share_times_the_cards_memory(held: int, share: int, mib: int) -> None:
    quantity = share * held // 1000 * mib
    said = row(0, held, share_milli=share, item=UsageItem.GPU_MEMORY_MIB_MS, quantity=quantity)
    assert isinstance(verdict(said), Sample)


@pytest.mark.parametrize("quantity", [1, 60_001, 16 * 1024 * 1024 * 60_000 + 60_000, INT64_MAX])
def test_memory_that_no_card_has_is_no_quantity(quantity: int) -> None:
    said = row(item=UsageItem.GPU_MEMORY_MIB_MS, quantity=quantity)
    assert fault_of(verdict(said)) is RowFault.WRONG_QUANTITY


@given(moments, moments, moments, moments, st.integers(1, 3600), st.integers(0, INT64_MAX))
def test_mb12_no_time_however_wild_breaks_the_judge(
    grid: datetime, start: datetime, end: datetime, stored: datetime, period_s: int, quantity: int
) -> None:
    said = row(window_start=start, window_end=end, quantity=quantity)
    found = verdict(said, window_start=grid, stored_at=stored, period_s=period_s)
    if isinstance(found, Sample):
        assert grid <= start < end <= grid + timedelta(seconds=period_s)
        assert (end - stored).total_seconds() <= LIMITS.ahead_s
        assert (stored - end).total_seconds() <= LIMITS.late_s


@pytest.mark.parametrize(("grid", "period_s"), [(FIRST, 3600), (LAST, 3600), (LAST, 1)])
def test_mb12_the_ends_of_time_are_refused_with_words(grid: datetime, period_s: int) -> None:
    said = row(window_start=grid, window_end=grid)
    found = verdict(said, window_start=grid, stored_at=START, period_s=period_s)
    assert fault_of(found) is RowFault.WRONG_WINDOW


@pytest.mark.parametrize(
    ("late_s", "fault"),
    [
        (-300, None),
        (-301, RowFault.CLOCK_JUMP),
        (0, None),
        (30 * DAY_S, None),
        (30 * DAY_S + 1, RowFault.CLOCK_JUMP),
    ],
)
def test_mb12_a_window_counts_within_its_limits_by_the_time_of_the_stream(late_s: int, fault: RowFault | None) -> None:
    said = row()
    assert fault_of(verdict(said, stored_at=said.window_end + timedelta(seconds=late_s))) is fault


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "changes", "words"),
    [
        (0, 60_000, {"window_start": START + timedelta(seconds=7)}, "off the grid of 60 s"),
        (0, 60_000, {"window_start": START + MINUTE}, "is not inside the message's window"),
        (0, 60_001, {"window_start": START}, "is not inside the message's window"),
        (5, 5, {"window_start": START}, "not after it begins"),
        (6, 5, {"window_start": START}, "not after it begins"),
    ],
)
def test_a_window_off_its_grid_is_refused(start_ms: int, end_ms: int, changes: dict[str, Any], words: str) -> None:
    found = verdict(row(start_ms, end_ms), **changes)
    assert isinstance(found, Refused)
    assert found.fault is RowFault.WRONG_WINDOW
    assert words in found.message


def test_a_window_cut_within_a_millisecond_is_refused() -> None:
    said = row(0, 60_000, window_start=START + timedelta(microseconds=1))
    assert fault_of(verdict(said, window_start=START)) is RowFault.WRONG_WINDOW


@pytest.mark.parametrize(
    ("changes", "placement", "fault"),
    [
        ({}, None, RowFault.UNKNOWN_ATTEMPT),
        ({"quantity": 1}, None, RowFault.WRONG_QUANTITY),
        ({"item": "gpu_energy_mj"}, PLACEMENT, RowFault.UNKNOWN_ITEM),
        ({"tenant": "beta"}, PLACEMENT, RowFault.TENANT_MISMATCH),
        ({"member": 1}, PLACEMENT, RowFault.CARD_NOT_HELD),
        ({"card": 2}, PLACEMENT, RowFault.CARD_NOT_HELD),
        (
            {},
            Placement("acme", {0: Seat("central-2", Tier.CENTRAL, frozenset({0}))}, LONG_BEFORE),
            RowFault.NODE_MISMATCH,
        ),
        ({}, Placement("acme", {0: Seat(NODE, Tier.CENTRAL, frozenset())}, LONG_BEFORE), RowFault.CARD_NOT_HELD),
    ],
)
def test_a_row_counts_only_as_its_attempt_was_placed(
    changes: dict[str, Any], placement: Placement | None, fault: RowFault
) -> None:
    assert fault_of(verdict(row(**changes), placement)) is fault


@given(st.integers(-120_000, 120_000))
def test_windows_that_begin_at_the_fence_or_later_are_fenced_and_no_others(fence_ms: int) -> None:
    fence = START + timedelta(milliseconds=fence_ms)
    placement = Placement("acme", PLACEMENT.seats, LONG_BEFORE, fence)
    for window in range(-2, 2):
        said = row(window * 60_000, (window + 1) * 60_000)
        assert (fault_of(verdict(said, placement)) is RowFault.FENCED) == (said.window_start >= fence)


def test_the_tier_of_a_sample_is_that_of_its_seat() -> None:
    found = verdict(row(), placed(Seat(NODE, Tier.SHARED, frozenset({0}))))
    assert isinstance(found, Sample)
    assert found.tier is Tier.SHARED


def test_mb2_mb4_the_same_row_in_another_message_is_the_same_sample() -> None:
    one, again = sample(0, 1000), Sample(measured(row(0, 1000), message_id="m-2"), Tier.CENTRAL)
    assert judge.distinct([one, again], {}) == ([one], [])
    assert judge.distinct([again], {identity(one.measured.row): one.measured.row}) == ([], [])


def test_another_content_under_the_same_identity_is_a_conflict_with_the_first() -> None:
    one, other = sample(0, 1000), sample(0, 2000)
    fresh, [refused] = judge.distinct([one, other], {})
    assert fresh == [one]
    assert (refused.fault, refused.measured) == (RowFault.CONFLICT, other.measured)


def test_a_conflict_hides_no_overlap_with_the_row_that_stands() -> None:
    whole, shorter, inside = sample(0, 60_000), sample(0, 30_000), sample(30_000, 60_000)
    fresh, _ = judge.distinct([whole, shorter, inside], {})
    assert list(judge.overlapping(fresh)) == [1]


def test_a_row_that_is_a_conflict_takes_no_moment_from_another() -> None:
    stored, longer, beside = sample(0, 30_000), sample(0, 60_000), sample(30_000, 60_000)
    fresh, _ = judge.distinct([longer, beside], {identity(stored.measured.row): stored.measured.row})
    assert fresh == [beside]


@given(windows)
def test_one_moment_of_a_card_is_in_one_sample(spans: list[tuple[int, int, int]]) -> None:
    said = [sample(begin * 1000, (begin + length) * 1000, card=card) for begin, length, card in spans]
    fresh, _ = judge.distinct(said, {})
    clashes = set(judge.overlapping(fresh))
    counting = [one.measured.row for place, one in enumerate(fresh) if place not in clashes]
    for card in (0, 1):
        of_card = sorted((one for one in counting if one.card == card), key=lambda one: one.window_start)
        assert all(one.window_end <= other.window_start for one, other in pairwise(of_card))
    for place in clashes:
        lost = fresh[place].measured.row
        assert any(
            one.card == lost.card and one.window_start < lost.window_end and lost.window_start < one.window_end
            for one in counting
        )


@given(st.permutations(range(60)), st.integers(0, 20))
def test_mb13_windows_that_were_measured_count_each_and_no_other(order: list[int], count: int) -> None:
    minutes = order[:count]
    said = [sample(minute * 60_000, (minute + 1) * 60_000) for minute in minutes]
    fresh, conflicts = judge.distinct(said + said, {})
    assert (conflicts, list(judge.overlapping(fresh))) == ([], [])
    assert [(one.measured.row.window_start - START) // MINUTE for one in fresh] == minutes
    assert sum(one.measured.row.quantity for one in fresh) == count * 60_000


@pytest.mark.parametrize(("placed_after_s", "fault"), [(-60, None), (0, None), (300, None), (301, RowFault.CLOCK_JUMP)])
def test_mb12_a_window_from_long_before_the_placement_is_a_clock_jump(
    placed_after_s: int, fault: RowFault | None
) -> None:
    placement = replace(PLACEMENT, placed_at=START + timedelta(seconds=placed_after_s))
    assert fault_of(verdict(row(), placement)) is fault


def test_a_period_that_does_not_divide_the_hour_is_a_wrong_window() -> None:
    assert fault_of(verdict(row(end_ms=7000), period_s=7, window_start=START)) is RowFault.WRONG_WINDOW
