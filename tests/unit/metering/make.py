"""Measured rows and placements for tests, with everything but the point of the test filled in."""

from datetime import UTC, datetime, timedelta
from typing import Any

from contracts.base import Tier
from contracts.usage import UsageItem, UsageRow
from services.metering.core.judge import judge
from services.metering.core.model import Limits, Measured, Placement, Refused, Sample, Seat

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_BEFORE = datetime(2000, 1, 1, tzinfo=UTC)
PERIOD_S = 60
DAY_S = 24 * 3600
LIMITS = Limits(ahead_s=300, late_s=30 * DAY_S)
JOB_ID = "01a22b77-0000-7000-8000-000000000001"
NODE = "central-1"
PLACEMENT = Placement("acme", {0: Seat(NODE, Tier.CENTRAL, frozenset({0, 1}))}, LONG_BEFORE)
MINUTE = timedelta(minutes=1)


def row(start_ms: int = 0, end_ms: int = PERIOD_S * 1000, **changes: Any) -> UsageRow:
    """Card 0 held whole, from `start_ms` to `end_ms` after START."""
    start, end = START + timedelta(milliseconds=start_ms), START + timedelta(milliseconds=end_ms)
    whole = UsageRow(
        job_id=JOB_ID,
        tenant="acme",
        attempt=1,
        member=0,
        card=0,
        card_uuid="GPU-0",
        accelerator="H200",
        share_milli=1000,
        item=UsageItem.GPU_MS,
        quantity=max(0, end_ms - start_ms),
        window_start=start,
        window_end=end,
    )
    return whole.model_copy(update=changes)


def measured(said: UsageRow, **changes: Any) -> Measured:
    """The row in a message of its grid window, stored as the row's window ended."""
    period_s = changes.get("period_s", PERIOD_S)
    since = (said.window_start - START) // timedelta(seconds=period_s)
    fields: dict[str, Any] = {
        "row": said,
        "source": "/farside/agent/central-1",
        "message_id": "m-1",
        "place": 0,
        "node": NODE,
        "period_s": period_s,
        "window_start": START + since * timedelta(seconds=period_s),
        "stored_at": said.window_end,
        "trace": None,
    }
    return Measured(**(fields | changes))


def verdict(said: UsageRow, placement: Placement | None = PLACEMENT, **changes: Any) -> Sample | Refused:
    return judge(measured(said, **changes), placement, LIMITS)


def sample(start_ms: int, end_ms: int, **changes: Any) -> Sample:
    """A row that counts, in a window of the grid of an hour."""
    found = verdict(row(start_ms, end_ms, **changes), period_s=3600)
    assert isinstance(found, Sample), found
    return found
