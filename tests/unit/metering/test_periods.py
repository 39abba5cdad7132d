"""MB7: periods in UTC, half-open, one after another; months as long as they are."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metering.core.periods import hour_of, month_due, month_of, period_start

HOUR = timedelta(hours=1)
moments = st.datetimes(datetime(2000, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - given UTC


def months(first: datetime, count: int) -> list[datetime]:
    """The ends of `count` months as a service that looks every hour sees them, with no grace."""
    now, found = first, list[datetime]()
    while len(found) < count:
        due = month_due(now, 0)
        if due is not None and due not in found:
            found.append(due)
        now += HOUR
    return found


@pytest.mark.parametrize(
    ("year", "minutes"),
    [
        (2024, [44_640, 41_760, 44_640, 43_200]),  # a leap year
        (2026, [44_640, 40_320, 44_640, 43_200]),  # clocks change in March in most of Europe and America
        (2100, [44_640, 40_320, 44_640, 43_200]),  # no leap year
    ],
)
def test_mb7_months_follow_one_another_and_have_their_real_minutes(year: int, minutes: list[int]) -> None:
    ends = months(datetime(year, 1, 1, tzinfo=UTC), 5)
    assert [(end - begin) // timedelta(minutes=1) for begin, end in pairwise(ends)] == minutes


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Kiritimati"])
def test_mb7_no_local_time_zone_moves_a_month(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    now = datetime(2026, 4, 1, 0, 30, tzinfo=UTC)
    assert month_due(now, 0) == datetime(2026, 4, 1, tzinfo=UTC)
    local_midnight = datetime(2026, 4, 1, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    assert month_of(local_midnight).tzinfo is UTC


@given(moments, st.integers(0, 28 * 24 * 3600))
def test_mb6_a_month_is_due_once_its_grace_is_over_and_not_before(now: datetime, grace_s: int) -> None:
    end = month_due(now, grace_s)
    since = now - month_of(now)
    assert end == (month_of(now) if since >= timedelta(seconds=grace_s) else None)


@given(moments)
def test_a_month_begins_at_midnight_of_its_first_day_and_holds_the_moment(moment: datetime) -> None:
    begin = month_of(moment)
    assert (begin.day, begin.hour, begin.minute, begin.second, begin.microsecond) == (1, 0, 0, 0, 0)
    assert begin <= moment < month_of(begin + timedelta(days=32))
    assert hour_of(moment) <= moment < hour_of(moment) + HOUR


@given(st.lists(moments, min_size=1, max_size=10))
def test_mb7_periods_of_a_tenant_are_contiguous_whenever_they_are_closed(closings: list[datetime]) -> None:
    first, last_end, periods = closings[0] - timedelta(days=3), None, list[tuple[datetime, datetime]]()
    for now in closings:
        begin = period_start(last_end, first, now)
        last_end = max(begin, now)
        periods.append((begin, last_end))
    assert periods[0][0] == hour_of(first)
    assert all(begin <= end for begin, end in periods)
    assert all(one[1] == other[0] for one, other in pairwise(periods))


def test_a_tenant_that_used_nothing_has_a_period_all_the_same() -> None:
    now = datetime(2026, 3, 1, 12, 34, tzinfo=UTC)
    assert period_start(None, None, now) == hour_of(now)
