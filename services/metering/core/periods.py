"""Periods of closings: half-open, in UTC, contiguous (MB7). Months are those of UTC, of whatever length."""

from datetime import datetime, timedelta


def hour_of(moment: datetime) -> datetime:
    """The beginning of the hour of a moment in UTC."""
    return moment.replace(minute=0, second=0, microsecond=0)


def month_of(moment: datetime) -> datetime:
    """The beginning of the month of a moment in UTC."""
    return hour_of(moment).replace(day=1, hour=0)


def period_start(last_end: datetime | None, first_sample: datetime | None, now: datetime) -> datetime:
    """Where a period begins: at the end of the one before; the first, at the hour of the first sample."""
    return last_end or hour_of(first_sample or now)


def month_due(now: datetime, grace_s: float) -> datetime | None:
    """The end of the past month, once `grace_s` has passed since; usage that comes later goes into the next closing."""
    end = month_of(now)
    return end if now - end >= timedelta(seconds=grace_s) else None
