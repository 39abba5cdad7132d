"""A small closing, from measured rows to the invoice, that a test may alter at one place before it is audited."""

import gzip
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from contracts.base import Tier
from contracts.invoices import Invoice, InvoiceLine
from contracts.jobs import Member
from contracts.usage import (
    RollUpEntry,
    SampleOrigin,
    UsageItem,
    UsageMeasured,
    UsagePeriodClosed,
    UsageRolledUp,
    UsageRow,
)
from libs.audit import (
    Difference,
    Dossier,
    Elsewhere,
    Findings,
    Identity,
    Placement,
    Published,
    Reach,
    Replay,
    check,
    identity,
)
from libs.audit.extracts import read_extract
from libs.audit.gathered import Extract
from services.billing.core.cards import Price, PriceItem, RateCard
from services.billing.core.rating import Rated, make_invoice, rate

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
CUTOFF = START + timedelta(hours=3)
MINUTE = timedelta(minutes=1)
TENANT = "acme"
NODE = "central-1"
CLOSE, OTHER_CLOSE = 99, 98
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
    entries: dict[tuple[str, str], RollUpEntry] = {}
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
        close_id=uuid(CLOSE),
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
    origins: dict[Identity, SampleOrigin]
    closed: UsagePeriodClosed | None
    issued: Invoice | None
    invoice: Invoice
    lines: list[InvoiceLine] | None
    placements: dict[tuple[str, int], Placement]
    card_text: str = CARD
    refused: list[UsageRow] = field(default_factory=list[UsageRow])
    held: list[UsageRow] = field(default_factory=list[UsageRow])
    elsewhere: list[Elsewhere] = field(default_factory=list[Elsewhere])
    late: list[UsageRow] = field(default_factory=list[UsageRow])
    reach: Reach = field(default_factory=Reach)
    faults: list[Difference] = field(default_factory=list[Difference])

    @property
    def kept_lines(self) -> list[InvoiceLine]:
        assert self.lines is not None
        return self.lines

    def audit(self, *messages: UsageMeasured) -> Findings:
        """Audit it; `messages` were measured besides."""
        billed: dict[Identity, UsageRow] = {
            identity(each): each for extract in self.extracts.values() for each in extract.rows
        }
        others: dict[Identity, list[Elsewhere]] = {}
        for other in self.elsewhere:
            others.setdefault(identity(other.row), []).append(other)
        replay = Replay(TENANT, CUTOFF, billed, others, frozenset(self.refused))
        for rows, stored_at in ((self.measured, CUTOFF), (self.late, CUTOFF + MINUTE)):
            for each in rows:
                replay.add(message(each), stored_at)
        for each in messages:
            replay.add(each, CUTOFF)
        return check(
            Dossier(
                self.invoice,
                self.lines,
                self.card_text,
                self.rollups,
                Published(self.issued, self.closed, self.published, self.placements, self.reach),
                self.extracts,
                self.raw,
                self.origins,
                replay,
                frozenset(self.held),
                self.faults,
            )
        )


def message(each: UsageRow) -> UsageMeasured:
    return UsageMeasured(
        node=NODE,
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
        close_id=uuid(CLOSE),
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
    origin = SampleOrigin(node=NODE, tier=Tier.CENTRAL, close_id=closing.close_id)
    return World(
        measured,
        rollups,
        published,
        extracts,
        raw,
        {identity(each): origin for each in billed},
        closing,
        invoice,
        invoice,
        list(rated.lines),
        {(each.job_id, each.attempt): placed() for each in billed},
    )


def placed(**changes: object) -> Placement:
    """Where every attempt of these tests was placed, but for `changes`."""
    member = Member(index=0, node=NODE, tier=Tier.CENTRAL, cards=[0, 1], accelerator="h100")
    return Placement(TENANT, {0: member.model_copy(update=changes)})


def elsewhere(each: UsageRow, *, later: bool) -> Elsewhere:
    """The sample in an extract of another closing."""
    return Elsewhere(each, uuid(200), uuid(OTHER_CLOSE), later)


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
