"""A small closing, from measured rows to the invoice, that a test may alter at one place before it is audited."""

import gzip
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from contracts.base import Tier
from contracts.invoices import Invoice, InvoiceLine
from contracts.usage import RollUpEntry, UsageItem, UsageMeasured, UsagePeriodClosed, UsageRolledUp, UsageRow
from libs.audit import Dossier, Findings, Identity, Replay, check, identity
from libs.audit.extracts import read_extract
from libs.audit.gathered import Extract
from services.billing.core.cards import Price, PriceItem, RateCard
from services.billing.core.rating import Rated, make_invoice, rate

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
CUTOFF = START + timedelta(hours=3)
MINUTE = timedelta(minutes=1)
TENANT = "acme"
MEMORY_MIB = 81_559
CARD = """\
rate_card: standard
version: 1
currency: USD
exponent: 2
prices:
  - {item: gpu_hour, accelerator: "*", tier: "*", price: "2.718281", from: 2026-01-01T00:00:00Z, until: 2026-03-01T13:00:00Z}
  - {item: gpu_hour, accelerator: "*", tier: "*", price: "3.141592", from: 2026-03-01T13:00:00Z, until: null}
  - {item: gpu_memory_gib_hour, accelerator: "*", tier: "*", price: "0.001", from: 2026-01-01T00:00:00Z, until: null}
"""  # noqa: E501 - an entry is a line


def uuid(number: int) -> str:
    return f"01a22b77-0000-7000-8000-{number:012d}"


def row(minute: int, *, job: int = 1, item: UsageItem = UsageItem.GPU_MS, seconds: int = 60) -> UsageRow:
    start = START + minute * MINUTE
    return UsageRow(
        job_id=uuid(job),
        tenant=TENANT,
        attempt=1,
        member=0,
        card=0,
        card_uuid="GPU-0",
        accelerator="H100",
        share_milli=1000,
        item=item,
        quantity=seconds * 1000 * (MEMORY_MIB if item is UsageItem.GPU_MEMORY_MIB_MS else 1),
        window_start=start,
        window_end=start + timedelta(seconds=seconds),
    )


def pack(rows: Sequence[UsageRow]) -> bytes:
    return gzip.compress(lines_of(rows), mtime=0)


def lines_of(rows: Sequence[UsageRow]) -> bytes:
    return "".join(f"{each.model_dump_json()}\n" for each in rows).encode()


def book() -> RateCard:
    """The card of the text above, as billing reads it."""
    start, change = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, 13, tzinfo=UTC)
    gpu, memory = PriceItem.GPU_HOUR, PriceItem.GPU_MEMORY_GIB_HOUR
    prices = (
        Price(gpu, "*", "*", 2_718_281, start, change),
        Price(gpu, "*", "*", 3_141_592, change, None),
        Price(memory, "*", "*", 1_000, start, None),
    )
    return RateCard("standard", 1, "USD", 2, prices, frozenset(), hashlib.sha256(CARD.encode()).hexdigest(), CARD)


def roll_up(number: int, rows: Sequence[UsageRow]) -> UsageRolledUp:
    entries: dict[tuple[str, UsageItem], RollUpEntry] = {}
    for each in rows:
        known = entries.get((each.job_id, each.item))
        entries[each.job_id, each.item] = RollUpEntry(
            job_id=each.job_id,
            job_name=f"job-{each.job_id[-1]}",
            item=each.item,
            accelerator=each.accelerator,
            tier=Tier.CENTRAL,
            quantity=each.quantity + (known.quantity if known else 0),
            samples=1 + (known.samples if known else 0),
        )
    hour = rows[0].window_start.replace(minute=0)
    return UsageRolledUp(
        rollup_id=uuid(100 + number),
        close_id=uuid(99),
        tenant=TENANT,
        hour=hour,
        number=1,
        entries=list(entries.values()),
        samples=len(rows),
        extract=f"s3://farside/usage/{TENANT}/{number}.jsonl.gz",
        sha256=hashlib.sha256(lines_of(rows)).hexdigest(),
    )


@dataclass
class World:
    """What each party holds. `billed` may differ from `measured` only where a test has made it so."""

    measured: list[UsageRow]
    rollups: list[UsageRolledUp]
    published: dict[str, UsageRolledUp]
    extracts: dict[str, Extract]
    raw: dict[str, list[UsageRow]]
    invoice: Invoice
    lines: list[InvoiceLine]
    card_text: str = CARD
    refused: list[UsageRow] = field(default_factory=list[UsageRow])
    held: list[UsageRow] = field(default_factory=list[UsageRow])
    earlier: list[UsageRow] = field(default_factory=list[UsageRow])
    late: list[UsageRow] = field(default_factory=list[UsageRow])
    reach: datetime | None = None

    def audit(self) -> Findings:
        billed: dict[Identity, UsageRow] = {
            identity(each): each for extract in self.extracts.values() for each in extract.rows
        }
        earlier = {identity(each): each for each in self.earlier}
        replay = Replay(TENANT, CUTOFF, billed, earlier, frozenset(self.refused))
        for rows, stored_at in ((self.measured, CUTOFF), (self.late, CUTOFF + MINUTE)):
            for each in rows:
                replay.add(message(each), stored_at)
        return check(
            Dossier(
                self.invoice,
                self.lines,
                self.card_text,
                self.rollups,
                self.published,
                self.extracts,
                self.raw,
                replay,
                frozenset(self.held),
                self.reach,
            )
        )


def message(each: UsageRow) -> UsageMeasured:
    return UsageMeasured(
        node="central-1",
        incarnation=uuid(7),
        period_s=60,
        window_start=each.window_start,
        rows=[each],
        measured_at=each.window_end,
    )


def rows() -> list[UsageRow]:
    """Two hours of two jobs, in the order of identities."""
    made = [row(minute, job=job, item=item) for job in (1, 2) for item in UsageItem for minute in (0, 59, 60, 61, 119)]
    return sorted(made, key=identity)


def world(alter: Callable[[list[UsageRow]], list[UsageRow]] = list) -> World:
    """The invoice of what was measured; `alter` changes what metering bills of it."""
    measured, billed = rows(), alter(rows())
    hours = [[each for each in billed if each.window_start.hour == hour] for hour in (12, 13)]
    rollups = [roll_up(number, each) for number, each in enumerate(hours)]
    extracts = {each.rollup_id: read_extract(pack(hours[number])) for number, each in enumerate(rollups)}
    closing = UsagePeriodClosed(
        close_id=uuid(99),
        tenant=TENANT,
        number=1,
        period_start=START,
        period_end=CUTOFF,
        cutoff=CUTOFF,
        rollups=len(rollups),
        samples=len(billed),
    )
    rated = rate(closing, rollups, book())
    assert isinstance(rated, Rated)
    invoice = make_invoice(closing, rated, invoice_id=uuid(50), number=1, issued_at=CUTOFF)
    raw = {each.rollup_id: list(hours[number]) for number, each in enumerate(rollups)}
    published = {each.rollup_id: each for each in rollups}
    return World(measured, rollups, published, extracts, raw, invoice, list(rated.lines))


def first_extract(made: World, data: bytes) -> None:
    """Put another content where the first extract lies."""
    made.extracts[made.rollups[0].rollup_id] = read_extract(data)


def more(each: UsageRow, by: int = 1) -> UsageRow:
    """The same sample with more in it."""
    return each.model_copy(update={"quantity": each.quantity + by})


def other_entry(rollup: UsageRolledUp) -> UsageRolledUp:
    """The roll-up with a little more in its first entry."""
    first = rollup.entries[0]
    bigger = first.model_copy(update={"quantity": first.quantity + 1})
    return rollup.model_copy(update={"entries": [bigger, *rollup.entries[1:]]})
