"""The words of metering: what was measured, where an attempt was placed, and what the two make together."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from contracts.base import Tier
from contracts.jobs import CARD_MILLI
from contracts.usage import RowFault, UsageRow


@dataclass(frozen=True)
class Identity:
    """What makes two rows the same sample."""

    job_id: str
    attempt: int
    member: int
    card: int
    item: str
    window_start: datetime


def identity(row: UsageRow) -> Identity:
    """The identity of a row."""
    return Identity(row.job_id, row.attempt, row.member, row.card, str(row.item), row.window_start)


@dataclass(frozen=True)
class Measured:
    """One row and the message it came in: node of the subject, grid, and when the stream took it."""

    row: UsageRow
    source: str
    message_id: str
    place: int
    node: str
    period_s: int
    window_start: datetime
    stored_at: datetime
    trace: str | None


@dataclass(frozen=True)
class Seat:
    """What a member of an attempt was given; the model of its cards and the memory of the largest, where known.

    `share_milli`: how much of each card.
    """

    node: str
    tier: Tier
    cards: frozenset[int]
    accelerator: str | None = None
    card_memory_mib: int | None = None
    share_milli: int = CARD_MILLI


@dataclass(frozen=True)
class Placement:
    """Where an attempt was placed and when, and the fence after which it is not billed."""

    tenant: str
    seats: Mapping[int, Seat]
    placed_at: datetime
    fenced_at: datetime | None = None


@dataclass(frozen=True)
class Limits:
    """How far a window may end after the message was stored, and how old it may be then."""

    ahead_s: float
    late_s: float


@dataclass(frozen=True)
class Sample:
    """A row that counts."""

    measured: Measured
    tier: Tier


@dataclass(frozen=True)
class Refused:
    """A row that is kept and not billed, and why."""

    measured: Measured
    fault: RowFault
    message: str
