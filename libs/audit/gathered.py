"""What an audit looks at: an invoice with all that led to it, and a replay of what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from contracts.invoices import Invoice, InvoiceLine
from contracts.jobs import Member
from contracts.usage import SampleOrigin, UsageMeasured, UsagePeriodClosed, UsageRolledUp, UsageRow
from libs.audit.findings import Difference

Identity: TypeAlias = tuple[str, int, int, int, str, datetime]
Attempt: TypeAlias = tuple[str, int]

MAX_UNEXPLAINED = 10_000


def identity(row: UsageRow) -> Identity:
    """What makes a sample the one it is."""
    return (row.job_id, row.attempt, row.member, row.card, str(row.item), row.window_start)


def words(key: Identity) -> str:
    """An identity for people."""
    job_id, attempt, member, card, item, start = key
    return f"job {job_id} attempt {attempt} member {member} card {card} {item} {start:%Y-%m-%dT%H:%M:%S.%fZ}"


@dataclass(frozen=True)
class Extract:
    """One roll-up's samples as the object store gives them, unpacked; `fault` says why there are none."""

    sha256: str = ""
    rows: Sequence[UsageRow] = ()
    fault: str | None = None


@dataclass(frozen=True)
class Elsewhere:
    """A sample in an extract of another closing of the tenant; `later` when that closing is after the invoice's."""

    row: UsageRow
    rollup_id: str
    close_id: str
    later: bool


@dataclass
class Replay:
    """Takes each measured message and keeps what it says of one tenant up to a cutoff.

    `billed` are the samples of the invoice, `others` those of other closings, `refused` the rows that metering keeps
    and does not bill. `nodes` names who measured each sample that was found as it is billed.
    """

    tenant: str
    cutoff: datetime
    billed: Mapping[Identity, UsageRow]
    others: Mapping[Identity, Sequence[Elsewhere]]
    refused: frozenset[UsageRow]
    nodes: dict[Identity, set[str]] = field(default_factory=dict[Identity, set[str]])
    billed_later: set[Identity] = field(default_factory=set[Identity])
    unexplained: list[UsageRow] = field(default_factory=list[UsageRow])

    def add(self, message: UsageMeasured, stored_at: datetime) -> None:
        """Take one message that the stream stored at `stored_at`."""
        if stored_at > self.cutoff:
            return
        for row in message.rows:
            if row.tenant == self.tenant:
                self._add(row, message.node)

    def _add(self, row: UsageRow, node: str) -> None:
        key = identity(row)
        if self.billed.get(key) == row:
            self.nodes.setdefault(key, set()).add(node)
            return
        found = [other for other in self.others.get(key, ()) if other.row == row]
        if found:
            if all(other.later for other in found):
                self.billed_later.add(key)
        elif row not in self.refused and len(self.unexplained) < MAX_UNEXPLAINED:
            self.unexplained.append(row)


@dataclass(frozen=True)
class Placement:
    """An attempt as the scheduler placed it."""

    tenant: str
    members: Mapping[int, Member]


@dataclass(frozen=True)
class Reach:
    """The time of each stream's first message when earlier ones are gone; None when nothing is."""

    usage: datetime | None = None
    jobs: datetime | None = None
    invoices: datetime | None = None


@dataclass(frozen=True)
class Published:
    """What the streams tell: the invoice as it was issued, its closing with the roll-ups, and placements."""

    issued: Invoice | None
    closed: UsagePeriodClosed | None
    rollups: Mapping[str, UsageRolledUp]
    placements: Mapping[Attempt, Placement]
    reach: Reach


@dataclass(frozen=True)
class Dossier:
    """Everything about one invoice.

    `lines` are None when billing cannot tell them. `rollups` are metering's as it tells them now, `raw` its samples by
    roll-up (without those it cannot tell) and `origins` what it keeps beside them, `held` what it holds of the
    unexplained rows' jobs. `faults` are differences that showed while all this was gathered, `unchecked` what could not
    be looked at, in words.
    """

    invoice: Invoice
    lines: Sequence[InvoiceLine] | None
    card_text: str
    rollups: Sequence[UsageRolledUp]
    published: Published
    extracts: Mapping[str, Extract]
    raw: Mapping[str, Sequence[UsageRow]]
    origins: Mapping[Identity, SampleOrigin]
    replay: Replay
    held: frozenset[UsageRow]
    faults: Sequence[Difference] = ()
    unchecked: Sequence[str] = ()
