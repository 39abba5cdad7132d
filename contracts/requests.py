"""Requests and their replies: reads (`query`) and the few calls that must answer before work goes on (`call`)."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from contracts.attempts import Binding, Shard
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
    Reason,
    Text,
    Utc,
    Uuid,
)
from contracts.checkpoints import CheckpointCommitted
from contracts.jobs import CARD_MILLI, JobPhase, JobState
from contracts.nodes import NodeState
from contracts.transfers import TransferCompleted


class ProblemCode(StrEnum):
    """What went wrong with a request; sent instead of the reply, with the header `farside-problem`."""

    INVALID = "invalid"
    NOT_FOUND = "not_found"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


class Problem(Model):
    """The body of a reply that carries the header `farside-problem`."""

    code: Open[ProblemCode]
    message: Text


class StatusQuery(Model):
    """Ask a service how it is."""


class ServiceStatus(Model):
    """How a service is: `outbox_rows` wait for the relay, `parked_rows` were refused for good."""

    service: Name
    version: Label
    started_at: Utc
    leader: bool
    outbox_rows: Count
    parked_rows: Count


class NodesQuery(Model):
    """Page through the nodes in order of name."""

    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT


class NodesPage(Model):
    """`cursor` is None on the last page."""

    nodes: list[NodeState]
    cursor: Cursor | None = None


class BreakerRelease(Model):
    """An operator has looked: the nodes lost together are dead, and their jobs may be requeued."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)]


class BreakerReleased(Model):
    """`released` nodes were told anew as lost, without the hold; False and 0 when the breaker was not open."""

    was_open: bool
    released: Count


class JobsQuery(Model):
    """Page through the jobs of the tenant in the subject (`_`: of all), newest first."""

    state: JobPhase | None = None
    cursor: Cursor | None = None
    limit: PageLimit = 50


class JobsPage(Model):
    """`cursor` is None on the last page."""

    jobs: list[JobState]
    cursor: Cursor | None = None


class JobQuery(Model):
    """One job by id, by unique prefix of its id, or by name (the newest that is not over, else the newest)."""

    job: Annotated[str, Field(min_length=1, max_length=63)]


class Transition(Model):
    """One past transition of a job."""

    version: Count
    state: JobPhase
    attempt: Count | None = None
    reason: Reason | None = None
    at: Utc


class JobReply(Model):
    """A job and the way it came. `others`: so many more jobs of the name that was asked for are not over."""

    job: JobState
    transitions: list[Transition]
    others: Count = 0


class CheckpointsQuery(Model):
    """The committed checkpoints of a job, newest first."""

    job_id: Uuid


class CheckpointsReply(Model):
    """Committed checkpoints, newest first; `fence` is the lowest attempt whose commits are still taken."""

    checkpoints: list[CheckpointCommitted]
    fence: Count


class DatasetsQuery(Model):
    """The staged dataset versions of the tenant in the subject (`_`: of all)."""

    name: Name | None = None


class DatasetsReply(Model):
    """Staged dataset versions, newest first."""

    datasets: list[TransferCompleted]


class ClaimRequest(Model):
    """A node takes up an offer. Sent again until `go`; the same claim twice is one claim.

    `endpoint` is an address on the node, reserved for the rendezvous of the gang.
    """

    job_id: Uuid
    tenant: Name
    attempt: Positive
    generation: Positive
    member: Count
    node: Name
    incarnation: Uuid
    endpoint: Text


class ClaimReply(Model):
    """`granted`: the lease stands. `go`: every member has claimed, and member 0 listens at `rendezvous`."""

    granted: bool
    go: bool = False
    rendezvous: Text | None = None
    message: Text = ""


class RestoreRequest(Model):
    """Raise the fence to `attempt` and name the checkpoint that it starts from."""

    job_id: Uuid
    tenant: Name
    attempt: Positive
    member: Count
    members: Positive
    node: Name
    binding: Binding


class RestoreReply(Model):
    """`granted` False: the attempt is fenced off or the binding differs, `message` says which.

    Every member of one attempt gets the same `step`; `step` None means there is nothing to restore.
    """

    granted: bool
    step: Count | None = None
    from_attempt: Count | None = None
    shards: list[Shard] = []
    message: Text = ""


class DatasetLookup(Model):
    """Where a dataset version of the tenant stands."""

    tenant: Name
    name: Name
    version: Name


class HoldingsQuery(Model):
    """The admission ledger of some jobs of the tenant in the subject (`_`: of any)."""

    job_ids: Annotated[list[Uuid], Field(min_length=1, max_length=PAGE_LIMIT)]
    cursor: Cursor | None = None


class Holding(Model):
    """Cards held by one member of an attempt, by the scheduler's clock: from its claim until its end is known.

    `share_milli` is how much of each card counts; None stands for all of it.
    """

    job_id: Uuid
    tenant: Name
    attempt: Positive
    member: Count
    cards: Count
    held_from: Utc
    held_to: Utc | None = None
    share_milli: Annotated[int, Field(ge=1, le=CARD_MILLI)] | None = None


class HoldingsPage(Model):
    """In the order of job, attempt, member; `cursor` is None on the last page."""

    holdings: list[Holding]
    cursor: Cursor | None = None
