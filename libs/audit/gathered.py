"""What an audit looks at: an invoice with all that led to it, and a replay of what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from contracts.invoices import Invoice, InvoiceLine
from contracts.usage import UsageMeasured, UsageRolledUp, UsageRow

Identity: TypeAlias = tuple[str, int, int, int, str, datetime]

MAX_UNEXPLAINED = 10_000


def identity(row: UsageRow) -> Identity:
    """What makes a sample the one it is."""
    return (row.job_id, row.attempt, row.member, row.card, row.item.value, row.window_start)


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


@dataclass
class Replay:
    """Takes each measured message and keeps what it says of one tenant up to a cutoff.

    `billed` are the samples of the invoice, `earlier` those of earlier closings, `refused` the rows that metering keeps
    and does not bill.
    """

    tenant: str
    cutoff: datetime
    billed: Mapping[Identity, UsageRow]
    earlier: Mapping[Identity, UsageRow]
    refused: frozenset[UsageRow]
    seen: set[Identity] = field(default_factory=set[Identity])
    unexplained: list[UsageRow] = field(default_factory=list[UsageRow])

    def add(self, message: UsageMeasured, stored_at: datetime) -> None:
        """Take one message that the stream stored at `stored_at`."""
        if stored_at > self.cutoff:
            return
        for row in message.rows:
            if row.tenant == self.tenant:
                self._add(row)

    def _add(self, row: UsageRow) -> None:
        key = identity(row)
        if self.billed.get(key) == row:
            self.seen.add(key)
        elif self.earlier.get(key) != row and row not in self.refused and len(self.unexplained) < MAX_UNEXPLAINED:
            self.unexplained.append(row)


@dataclass(frozen=True)
class Dossier:
    """Everything about one invoice.

    `rollups` are metering's as it tells them now, `published` those of the stream, `raw` metering's samples by roll-up,
    `held` what metering holds of the unexplained rows' jobs. `reach` is the time of the stream's first message when
    earlier ones are gone.
    """

    invoice: Invoice
    lines: Sequence[InvoiceLine]
    card_text: str
    rollups: Sequence[UsageRolledUp]
    published: Mapping[str, UsageRolledUp]
    extracts: Mapping[str, Extract]
    raw: Mapping[str, Sequence[UsageRow]]
    replay: Replay
    held: frozenset[UsageRow]
    reach: datetime | None
