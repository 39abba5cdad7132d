"""Usage: what agents measure, and what metering makes of it.

A sample is one `UsageRow`, with the identity (job, attempt, member, card, item, window start): what comes again under
it is the same sample. Windows are half-open, in UTC, on a grid of `period_s` seconds since 1970, cut where an attempt
starts or ends.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from contracts.base import (
    PAGE_LIMIT,
    Count,
    Cursor,
    Label,
    Model,
    Name,
    Open,
    PageLimit,
    Positive,
    Sha256,
    Text,
    Tier,
    Uri,
    Utc,
    Uuid,
)

MAX_ROWS = 1024
MAX_ENTRIES = 1000


class UsageItem(StrEnum):
    """What is counted, each in the unit of its name."""

    GPU_MS = "gpu_ms"
    GPU_MEMORY_MIB_MS = "gpu_memory_mib_ms"


class UsageRow(Model):
    """One sample: what an attempt's member held of one card within one window.

    `quantity` is the card's share times the held time: for `gpu_ms`, share_milli * (window_end - window_start) / 1000
    in milliseconds; for `gpu_memory_mib_ms` that times the card's memory in MiB. Held, not used: utilisation is no part
    of it.
    """

    job_id: Uuid
    tenant: Name
    attempt: Positive
    member: Count
    card: Count
    card_uuid: Label
    accelerator: Label
    share_milli: Annotated[int, Field(ge=1, le=1000)]
    item: Open[UsageItem]
    quantity: Count
    window_start: Utc
    window_end: Utc


class UsageMeasured(Model):
    """What a node measured in the window of the grid that begins at `window_start`; a gap is a gap, never a zero."""

    node: Name
    incarnation: Uuid
    period_s: Annotated[int, Field(ge=1, le=3600)]
    window_start: Utc
    rows: Annotated[list[UsageRow], Field(min_length=1, max_length=MAX_ROWS)]
    measured_at: Utc


class RowFault(StrEnum):
    """Why a measured row is not billed; it is kept all the same."""

    WRONG_WINDOW = "wrong_window"
    WRONG_QUANTITY = "wrong_quantity"
    UNKNOWN_ITEM = "unknown_item"
    CLOCK_JUMP = "clock_jump"
    OVERLAP = "overlap"
    CONFLICT = "conflict"
    TENANT_MISMATCH = "tenant_mismatch"
    NODE_MISMATCH = "node_mismatch"
    CARD_NOT_HELD = "card_not_held"
    UNKNOWN_ATTEMPT = "unknown_attempt"
    FENCED = "fenced"


class RollUpEntry(Model):
    """The usage of one job in one hour, by item and kind of card; what is no job's or no card's names none."""

    job_id: Uuid | None = None
    job_name: Name | None = None
    team: Label | None = None
    item: Open[UsageItem]
    accelerator: Label | None = None
    tier: Tier | None = None
    quantity: Count
    samples: Count


class UsageRolledUp(Model):
    """Billable samples of a tenant whose windows begin in one UTC hour; each sample is in exactly one roll-up.

    `extract` holds the samples: gzip of one line of JSON each, in the order of their identities; `sha256` is that of
    the lines before compression. `number` counts the roll-ups of the hour: a later one holds what came late.
    """

    rollup_id: Uuid
    close_id: Uuid
    tenant: Name
    hour: Utc
    number: Positive
    entries: Annotated[list[RollUpEntry], Field(min_length=1, max_length=MAX_ENTRIES)]
    samples: Count
    extract: Uri
    sha256: Sha256


class UsagePeriodClosed(Model):
    """A tenant's usage was closed: everything billable that was stored up to `cutoff` and not closed before.

    Periods of a tenant are half-open, in UTC and contiguous. `rollups` roll-ups carry this `close_id`.
    """

    close_id: Uuid
    tenant: Name
    number: Positive
    period_start: Utc
    period_end: Utc
    cutoff: Utc
    rollups: Count
    samples: Count


class RefusedRow(Model):
    """A measured row that is kept and not billed, and why."""

    node: Name
    row: UsageRow
    fault: Open[RowFault]
    message: Text
    stored_at: Utc


class CloseRequest(Model):
    """Close the tenant's usage now: roll up everything billable that is stored and not closed yet.

    The same `close_id` again is the same closing.
    """

    close_id: Uuid


class CloseReply(Model):
    """The closing is under way; `usage.period_closed` tells when it is done. `samples` will be in it."""

    close_id: Uuid
    number: Positive
    period_start: Utc
    period_end: Utc
    cutoff: Utc
    samples: Count


class UsageQuery(Model):
    """Usage by attempt, newest first; of one job if it is named."""

    job_id: Uuid | None = None
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT


class Unbilled(Model):
    """Samples of an attempt that are kept and not billed."""

    fault: Open[RowFault]
    samples: Count
    gpu_ms: Count


class AttemptUsage(Model):
    """What one attempt used. `job_name` and `team` are None for an attempt that metering never heard of.

    `windows` counts grid windows with at least one billable sample, `gpu_ms` what is billable of them. `held_gpu_ms` is
    the scheduler's ledger: held time times cards over all members, None until it was heard; while `holding` it is that
    of the moment `held_as_of`, when the scheduler was asked last. `difference_gpu_ms` is `gpu_ms` less that.
    """

    job_id: Uuid
    job_name: Name | None = None
    tenant: Name
    team: Label | None = None
    attempt: Positive
    windows: Count
    samples: Count
    gpu_ms: Count
    gpu_memory_mib_ms: Count
    closed_samples: Count
    unbilled: list[Unbilled] = []
    held_gpu_ms: Count | None = None
    holding: bool = False
    held_as_of: Utc | None = None
    difference_gpu_ms: int | None = None
    first_window: Utc | None = None
    last_window: Utc | None = None


class UsagePage(Model):
    """`cursor` is None on the last page."""

    attempts: list[AttemptUsage]
    cursor: Cursor | None = None


class SamplesQuery(Model):
    """The raw samples of one roll-up, or of one job (all its samples, closed or not), in the order of identities."""

    rollup_id: Uuid | None = None
    job_id: Uuid | None = None
    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 500


class SampleOrigin(Model):
    """What metering keeps beside a sample, as it stands: the node that measured it, its tier, and its closing."""

    node: Text
    tier: Text
    close_id: Text | None = None


class SamplesPage(Model):
    """`origins` goes with `rows`, one for each. `cursor` is None on the last page."""

    rows: list[UsageRow]
    origins: list[SampleOrigin]
    cursor: Cursor | None = None


class RefusedQuery(Model):
    """Rows that are kept and not billed, newest first."""

    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT


class RefusedPage(Model):
    """`cursor` is None on the last page."""

    rows: list[RefusedRow]
    cursor: Cursor | None = None


class RollUpsQuery(Model):
    """The roll-ups of one closing, in the order of their ids."""

    close_id: Uuid
    cursor: Cursor | None = None


class RollUpsPage(Model):
    """`cursor` is None on the last page."""

    rollups: list[UsageRolledUp]
    cursor: Cursor | None = None
