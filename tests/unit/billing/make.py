"""Closings, roll-ups and rate cards for tests, with everything but the point of the test filled in."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from contracts.base import Tier
from contracts.usage import RollUpEntry, UsageItem, UsagePeriodClosed, UsageRolledUp
from services.billing.core.cards import ANY, Price, PriceItem, RateCard
from services.billing.core.rating import Hold, Nothing, Rated, rate

HOUR_MS = 3_600_000
GIB_HOUR = 1024 * HOUR_MS
START = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TENANT = "acme"
SHA256 = "c" * 64


def uuid(number: int) -> str:
    return f"01a22b77-0000-7000-8000-{number:012d}"


CLOSE_ID = uuid(999)
JOB_ID = uuid(1)


def price(
    micro: int,
    *,
    item: PriceItem = PriceItem.GPU_HOUR,
    accelerator: str = ANY,
    tier: str = ANY,
    start: datetime = START,
    end: datetime | None = None,
) -> Price:
    return Price(item, accelerator, tier, micro, start, end)


def card(*prices: Price, currency: str = "USD", exponent: int = 2, tenants: Sequence[str] = ()) -> RateCard:
    return RateCard("standard", 1, currency, exponent, prices, frozenset(tenants), SHA256, "text")


def entry(
    quantity: int,
    *,
    job: int = 1,
    item: UsageItem = UsageItem.GPU_MS,
    accelerator: str = "H100",
    tier: Tier = Tier.CENTRAL,
    samples: int = 1,
) -> RollUpEntry:
    return RollUpEntry(
        job_id=uuid(job),
        job_name=f"job-{job}",
        item=item,
        accelerator=accelerator,
        tier=tier,
        quantity=quantity,
        samples=samples,
    )


def rollup(*entries: RollUpEntry, hour: datetime = START, number: int = 1, rollup_id: int = 0) -> UsageRolledUp:
    made = uuid(rollup_id or int(hour.timestamp()) + number)
    return UsageRolledUp(
        rollup_id=made,
        close_id=CLOSE_ID,
        tenant=TENANT,
        hour=hour,
        number=number,
        entries=list(entries),
        samples=sum(each.samples for each in entries),
        extract=f"s3://farside/usage/{TENANT}/{made}.jsonl.gz",
        sha256=f"{int(made[-12:]):064x}",
    )


def closing(*rollups: UsageRolledUp, number: int = 1) -> UsagePeriodClosed:
    return UsagePeriodClosed(
        close_id=CLOSE_ID,
        tenant=TENANT,
        number=number,
        period_start=START,
        period_end=START + 31 * 24 * HOUR,
        cutoff=START + 31 * 24 * HOUR,
        rollups=len(rollups),
        samples=sum(each.samples for each in rollups),
    )


def rated(rollups: Sequence[UsageRolledUp], book: RateCard) -> Rated:
    """Rate what must have a price."""
    outcome = rate(closing(*rollups), rollups, book)
    assert isinstance(outcome, Rated), outcome
    return outcome


def held(rollups: Sequence[UsageRolledUp], book: RateCard | None) -> str:
    """Rate what can have none; the reason."""
    outcome = rate(closing(*rollups), rollups, book)
    assert isinstance(outcome, Hold), outcome
    return outcome.message


def is_nothing(rollups: Sequence[UsageRolledUp], book: RateCard | None) -> bool:
    return isinstance(rate(closing(*rollups), rollups, book), Nothing)
