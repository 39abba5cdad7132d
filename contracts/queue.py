"""What the scheduler answers about its queue: why a job waits, what one would meet, whose turn it is, and quotas."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from contracts.base import Count, Cursor, Model, Name, Open, PageLimit, Positive, Priority, Reason, Text, Utc, Uuid
from contracts.jobs import JobKind, JobPhase, JobSpec, Member

MAX_LEAVING = 16


class Constraint(StrEnum):
    """What keeps a job from being placed, or from being taken at all."""

    SPEC = "spec"
    TENANT = "tenant"
    HOLD = "hold"
    REST = "rest"
    DATASET = "dataset"
    IMAGE = "image"
    WINDOW = "window"
    PRIORITY = "priority"
    QUOTA = "quota"
    POOL = "pool"
    NODES = "nodes"
    CARDS = "cards"
    HOST = "host"
    LINK = "link"
    LIMIT = "limit"
    FRAGMENTATION = "fragmentation"
    TOPOLOGY = "topology"
    RESERVATION = "reservation"
    PREEMPTION = "preemption"


class Forecast(Model):
    """When a job is expected to start (None: nothing tells), what that rests on, and the nodes kept for it."""

    starts_at: Utc | None = None
    basis: Text = ""
    nodes: list[Name] = []


class Leaving(Model):
    """A live attempt that holds what is short: its cards on one node, and when it leaves at the latest.

    Jobs of other tenants than the one who asks are shown without job and tenant. `leaves_at` is None when nothing
    bounds its run.
    """

    node: Name
    card_milli: Count
    leaves_at: Utc | None = None
    stopping: bool = False
    job_id: Uuid | None = None
    tenant: Name | None = None


class ExplainQuery(Model):
    """Why does this job wait? By id, by unique prefix of its id, or by name (the newest of that name)."""

    job: Annotated[str, Field(min_length=1, max_length=63)]


class ExplainReply(Model):
    """`waits` False: the job is placed, runs or has ended, `reason` says what of that.

    `short` is how much of `reason.resource` is missing. `position` of `waiting` jobs is its turn in the order of the
    last plan. `leaving`: who would free what is short, the first to leave first. `frees` says what would let it start,
    where more is known than the code of the reason tells. `tenant_share_milli` is what its tenant used of late and
    holds, by its weight, in thousandths of what all tenants did: within a class the least goes first.
    """

    job_id: Uuid
    tenant: Name
    name: Name
    state: JobPhase
    waits: bool
    reason: Reason | None = None
    constraint: Open[Constraint] | None = None
    short: Count | None = None
    position: Positive | None = None
    waiting: Count = 0
    forecast: Forecast | None = None
    leaving: Annotated[list[Leaving], Field(max_length=MAX_LEAVING)] = []
    as_of: Utc
    frees: Text = ""
    priority: Priority | None = None
    tenant_share_milli: Count | None = None


class DryRunQuery(Model):
    """What would become of this job if it were submitted now? Nothing of it is kept."""

    spec: JobSpec


class Verdict(StrEnum):
    """What would become of a submission."""

    REFUSED = "refused"
    PLACED = "placed"
    WAITS = "waits"


class DryRunReply(Model):
    """As the scheduler would decide at `as_of`: refused, placed on `members`, or waiting for `reason`.

    The fields beside them are those of `ExplainReply`.
    """

    verdict: Open[Verdict]
    reason: Reason | None = None
    constraint: Open[Constraint] | None = None
    short: Count | None = None
    members: list[Member] = []
    position: Positive | None = None
    waiting: Count = 0
    forecast: Forecast | None = None
    leaving: Annotated[list[Leaving], Field(max_length=MAX_LEAVING)] = []
    as_of: Utc
    frees: Text = ""
    priority: Priority | None = None
    tenant_share_milli: Count | None = None


class QuotaQuery(Model):
    """Quotas of the tenant in the subject (`_`: of all, in order of name)."""

    cursor: Cursor | None = None
    limit: PageLimit = 50


class QuotaResource(StrEnum):
    """What a quota counts: card-milliseconds of a UTC month; thousandths of cards, and jobs, at a time."""

    GPU_MS = "gpu_ms"
    CARD_MILLI = "card_milli"
    JOBS = "jobs"


class QuotaLine(Model):
    """One resource: what is used, what waiting and running jobs may still use, and what is allowed.

    `guaranteed` is the tenant's at any time; what it uses above that is `borrowed` from its cohort.
    """

    resource: Open[QuotaResource]
    used: Count
    committed: Count = 0
    limit: Count
    guaranteed: Count | None = None
    borrowed: Count = 0


class TenantQuota(Model):
    """The quotas of one tenant as its file of `version` states them."""

    tenant: Name
    version: Positive
    suspended: bool = False
    top_priority: Priority
    cohort: Name | None = None
    pools: list[Name] = []
    lines: list[QuotaLine]


class QuotaPage(Model):
    """`cursor` is None on the last page."""

    tenants: list[TenantQuota]
    as_of: Utc
    cursor: Cursor | None = None


class QueueQuery(Model):
    """Page through the waiting jobs of the tenant in the subject (`_`: of all), whose turn is first first."""

    cursor: Cursor | None = None
    limit: PageLimit = 50


class QueuedJob(Model):
    """One waiting job: its turn among all of them, why it waits, and when it may expect to start.

    Each member asks `cards`, or of one card so many thousandths or bytes of its memory. `tenant_share_milli` is as in
    `ExplainReply`. `waits_since`: it came, or lost its place.
    """

    position: Positive
    job_id: Uuid
    tenant: Name
    name: Name
    kind: JobKind
    priority: Priority
    state: JobPhase
    members: Positive
    cards: Count
    reason: Reason | None = None
    forecast: Forecast | None = None
    submitted_at: Utc
    share_milli: Positive | None = None
    share_memory_bytes: Positive | None = None
    tenant_share_milli: Count | None = None
    waits_since: Utc | None = None


class QueuePage(Model):
    """The order is that of the last plan, made at `as_of`, over `waiting` jobs; `cursor` is None on the last page."""

    jobs: list[QueuedJob]
    waiting: Count
    as_of: Utc
    cursor: Cursor | None = None
