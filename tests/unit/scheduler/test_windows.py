"""Hours of the week in which work may start."""

from datetime import UTC, datetime

import pytest

from services.scheduler.core.windows import Span, Window

MON, FRI, SUN = 0, 4, 6
DAY = Window("days", (Span(frozenset({MON, FRI}), 9 * 60, 17 * 60),))
NIGHT = Window("nights", (Span(frozenset({FRI, SUN}), 22 * 60, 6 * 60),))
ALWAYS = Window("always", (Span(frozenset(range(7)), 0, 24 * 60),))


def at(day: int, hour: int, minute: int = 0) -> datetime:
    """2026-03-02 is a Monday."""
    return datetime(2026, 3, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "moment", "is_open", "turns"),
    [
        (DAY, at(2, 8, 59), False, at(2, 9)),
        (DAY, at(2, 9), True, at(2, 17)),
        (DAY, at(2, 17), False, at(6, 9)),
        (DAY, at(6, 17), False, at(9, 9)),
        (NIGHT, at(6, 21, 59), False, at(6, 22)),
        (NIGHT, at(7, 0), True, at(7, 6)),
        (NIGHT, at(7, 22), False, at(8, 22)),
        (NIGHT, at(9, 5, 59), True, at(9, 6)),
        (ALWAYS, at(2, 0), True, None),
    ],
)
def test_a_window_is_open_from_its_begin_to_its_end_and_belongs_to_the_day_it_opens_on(
    window: Window, moment: datetime, turns: datetime | None, *, is_open: bool
) -> None:
    assert window.covers(moment) is is_open
    assert window.turns(moment) == turns
