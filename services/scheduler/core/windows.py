"""Windows: the hours of the week in which work of low priority may start. All times are UTC."""

from dataclasses import dataclass
from datetime import datetime, timedelta

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MIN = 24 * 60
WEEK = len(DAYS)


@dataclass(frozen=True)
class Span:
    """From minute `begin` to minute `end` of each of `days` (0 is Monday); past midnight where `end` is not later."""

    days: frozenset[int]
    begin: int
    end: int

    def covers(self, at: datetime) -> bool:
        """Whether it is open."""
        minute, day = at.hour * 60 + at.minute, at.weekday()
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        return (day in self.days and minute >= self.begin) or ((day - 1) % WEEK in self.days and minute < self.end)


@dataclass(frozen=True)
class Window:
    """Open whenever one of its spans is."""

    name: str
    spans: tuple[Span, ...]

    def covers(self, at: datetime) -> bool:
        """Whether it is open."""
        return any(span.covers(at) for span in self.spans)

    def turns(self, at: datetime) -> datetime | None:
        """When it opens or closes next; None when it never does."""
        midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
        edges = sorted(
            moment
            for ahead in range(WEEK + 1)
            for minute in {0, *(edge for span in self.spans for edge in (span.begin, span.end % DAY_MIN))}
            if (moment := midnight + timedelta(days=ahead, minutes=minute)) > at
        )
        open_now = self.covers(at)
        return next((moment for moment in edges if self.covers(moment) != open_now), None)
