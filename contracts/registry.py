"""Every message, stream, consumer and request of Farside, declared once.

Subjects, types, streams, durables, permissions, schema files, AsyncAPI pages and the flow chart are all derived from
the tables below. Read `MESSAGES` top to bottom for the whole language.
"""

from collections.abc import Iterator
from typing import Literal, TypeVar, cast

from contracts import (
    alerts,
    attempts,
    checkpoints,
    deadletters,
    fleet,
    health,
    invoices,
    jobs,
    nodes,
    queue,
    requests,
    transfers,
    usage,
    work,
)
from contracts.base import Model
from contracts.rows import (
    AGENT,
    ALERTING,
    BILLING,
    CHECKPOINT,
    DAY_S,
    EVERY_SERVICE,
    INVENTORY,
    METERING,
    OPERATOR,
    SCHEDULER,
    SERVICES,
    TENANT,
    TRANSFER,
    Consumer,
    Key,
    Kind,
    Message,
    Request,
    Stream,
)
from contracts.rows import NO_KEY as NO_KEY  # noqa: PLC0414 - whoever has the registry has the words of its rows

M = TypeVar("M", bound=Model, covariant=True)
R = TypeVar("R", bound=Model, covariant=True)

JOBS_CMD = Stream("JOBS_CMD", "workqueue", max_age_s=7 * DAY_S, dedup_s=0.1, waiting_per_key=1000)
JOBS = Stream("JOBS", "limits", max_age_s=30 * DAY_S, dedup_s=120)
NODES = Stream("NODES", "limits", max_age_s=30 * DAY_S, dedup_s=120)
NODES_CMD = Stream("NODES_CMD", "workqueue", max_age_s=7 * DAY_S, dedup_s=120)
HEARTBEATS = Stream("HEARTBEATS", "limits", max_age_s=DAY_S, dedup_s=0.1, newest_only=True, synced=False)
REPORTS = Stream("REPORTS", "limits", max_age_s=7 * DAY_S, dedup_s=0.1, newest_only=True)
WORK_CMD = Stream("WORK_CMD", "workqueue", max_age_s=7 * DAY_S, dedup_s=120)
ATTEMPTS = Stream("ATTEMPTS", "limits", max_age_s=7 * DAY_S, dedup_s=120)
CHECKPOINTS = Stream("CHECKPOINTS", "limits", max_age_s=30 * DAY_S, dedup_s=120)
TRANSFERS_CMD = Stream("TRANSFERS_CMD", "workqueue", max_age_s=7 * DAY_S, dedup_s=0.1, waiting_per_key=1000)
TRANSFERS = Stream("TRANSFERS", "limits", max_age_s=30 * DAY_S, dedup_s=120)
USAGE = Stream("USAGE", "limits", max_age_s=62 * DAY_S, dedup_s=120)
INVOICES = Stream("INVOICES", "limits", max_age_s=400 * DAY_S, dedup_s=120)
ALERTS = Stream("ALERTS", "limits", max_age_s=90 * DAY_S, dedup_s=120)
DEADLETTERS = Stream("DEADLETTERS", "limits", max_age_s=90 * DAY_S, dedup_s=120)
REPLAYS = Stream("REPLAYS", "workqueue", max_age_s=7 * DAY_S, dedup_s=120)
ADVISORIES = Stream("ADVISORIES", "limits", max_age_s=30 * DAY_S, dedup_s=120)

STREAMS = (
    JOBS_CMD,
    JOBS,
    NODES,
    NODES_CMD,
    HEARTBEATS,
    REPORTS,
    WORK_CMD,
    ATTEMPTS,
    CHECKPOINTS,
    TRANSFERS_CMD,
    TRANSFERS,
    USAGE,
    INVOICES,
    ALERTS,
    DEADLETTERS,
    REPLAYS,
    ADVISORIES,
)

ADVISORY_SUBJECT = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>"


def _command(
    domain: str, name: str, key: Key, stream: Stream, model: type[M], producer: tuple[str, ...], consumer: Consumer
) -> Message[M]:
    return Message(domain, name, Kind.COMMAND, key, stream, model, producer, (consumer,))


def _job_event(name: str, model: type[M], *consumers: Consumer) -> Message[M]:
    readers = (TENANT, OPERATOR)
    return Message("jobs", name, Kind.EVENT, Key.TENANT, JOBS, model, (SCHEDULER,), consumers, readers)


def _node_event(name: str, *others: Consumer) -> Message[nodes.NodeState]:
    consumers = (Consumer(SCHEDULER), *others)
    return Message("nodes", name, Kind.EVENT, Key.NODE, NODES, nodes.NodeState, (INVENTORY,), consumers, (OPERATOR,))


def _node_order(name: str) -> Message[nodes.NodeOrder]:
    return _command("nodes", name, Key.NODE, NODES_CMD, nodes.NodeOrder, (OPERATOR,), Consumer(INVENTORY))


def _attempt_event(name: str, model: type[M], *consumers: Consumer) -> Message[M]:
    return Message("attempts", name, Kind.EVENT, Key.NODE, ATTEMPTS, model, (AGENT,), consumers, (OPERATOR,))


def _checkpoint_event(name: str, model: type[M], *consumers: Consumer) -> Message[M]:
    readers = (TENANT, OPERATOR)
    return Message("checkpoints", name, Kind.EVENT, Key.TENANT, CHECKPOINTS, model, (CHECKPOINT,), consumers, readers)


def _usage_event(name: str, model: type[M]) -> Message[M]:
    readers = (TENANT, OPERATOR)
    return Message("usage", name, Kind.EVENT, Key.TENANT, USAGE, model, (METERING,), (Consumer(BILLING),), readers)


def _alert_event(name: str) -> Message[alerts.Alert]:
    return Message("alerts", name, Kind.EVENT, Key.NONE, ALERTS, alerts.Alert, (ALERTING,), (), (OPERATOR,))


_OFFERER = (TENANT, OPERATOR)
_PROMISES = Consumer(INVENTORY, batch=256)

JOBS_SUBMIT = _command("jobs", "submit", Key.TENANT, JOBS_CMD, jobs.JobSpec, _OFFERER, Consumer(SCHEDULER))
JOBS_CANCEL = _command("jobs", "cancel", Key.TENANT, JOBS_CMD, jobs.JobCancel, _OFFERER, Consumer(SCHEDULER))
JOBS_HOLD = _command("jobs", "hold", Key.TENANT, JOBS_CMD, jobs.JobHold, _OFFERER, Consumer(SCHEDULER))
JOBS_RELEASE = _command("jobs", "release", Key.TENANT, JOBS_CMD, jobs.JobRelease, _OFFERER, Consumer(SCHEDULER))
JOBS_REPRIORITIZE = _command(
    "jobs", "reprioritize", Key.TENANT, JOBS_CMD, jobs.JobReprioritize, _OFFERER, Consumer(SCHEDULER)
)

JOBS_ACCEPTED = _job_event("accepted", jobs.JobState)
JOBS_REJECTED = _job_event("rejected", jobs.JobRejected)
JOBS_HELD = _job_event("held", jobs.JobState, _PROMISES)
JOBS_WAITING = _job_event("waiting", jobs.JobState, _PROMISES)
JOBS_PLACED = _job_event(
    "placed", jobs.JobState, Consumer(METERING), Consumer(CHECKPOINT), Consumer(TRANSFER), _PROMISES
)
JOBS_STARTING = _job_event("starting", jobs.JobState)
JOBS_RUNNING = _job_event("running", jobs.JobState)
JOBS_STOPPING = _job_event("stopping", jobs.JobState)
JOBS_UNREACHABLE = _job_event("unreachable", jobs.JobState)
JOBS_FINISHED = _job_event(
    "finished", jobs.JobState, Consumer(METERING), Consumer(CHECKPOINT), Consumer(ALERTING), _PROMISES
)

NODES_ANNOUNCED = Message(
    "nodes", "announced", Kind.EVENT, Key.NODE, NODES, nodes.NodeAnnounced, (AGENT,), (Consumer(INVENTORY, batch=64),)
)
NODES_HEARTBEAT = Message(
    "nodes", "heartbeat", Kind.EVENT, Key.NODE, HEARTBEATS, nodes.NodeHeartbeat, (AGENT,), (), (INVENTORY,)
)
NODES_TICK = Message("nodes", "tick", Kind.EVENT, Key.NONE, HEARTBEATS, nodes.ClockTick, (INVENTORY,), (), (INVENTORY,))
NODES_GRADED = _node_event("graded")
NODES_SUSPECT = _node_event("suspect")
NODES_LOST = _node_event("lost", Consumer(ALERTING))
NODES_RETURNED = _node_event("returned", Consumer(ALERTING))
NODES_QUARANTINED = _node_event("quarantined", Consumer(ALERTING))
NODES_RELEASED = _node_event("released", Consumer(ALERTING))
_BREAKER = (fleet.BreakerMoved, (INVENTORY,), (Consumer(ALERTING),), (OPERATOR,))
BREAKERS_OPENED = Message("breakers", "opened", Kind.EVENT, Key.NONE, NODES, *_BREAKER)
BREAKERS_CLOSED = Message("breakers", "closed", Kind.EVENT, Key.NONE, NODES, *_BREAKER)
NODES_REPORTED = Message(
    "nodes",
    "reported",
    Kind.EVENT,
    Key.NODE,
    REPORTS,
    health.NodeReported,
    (AGENT,),
    (Consumer(INVENTORY, batch=256),),
    (OPERATOR,),
)
NODES_CORDON = _node_order("cordon")
NODES_DRAIN = _node_order("drain")
NODES_UNCORDON = _node_order("uncordon")
NODES_RETIRE = _node_order("retire")
NODES_CHECK = _node_order("check")

WORK_RUN = _command("work", "run", Key.NODE, WORK_CMD, work.WorkRun, (SCHEDULER,), Consumer(AGENT, per_node=True))
WORK_STOP = _command("work", "stop", Key.NODE, WORK_CMD, work.WorkStop, (SCHEDULER,), Consumer(AGENT, per_node=True))

ATTEMPTS_STARTED = _attempt_event("started", attempts.AttemptStarted, Consumer(SCHEDULER))
ATTEMPTS_PROGRESSED = _attempt_event("progressed", attempts.AttemptProgressed, Consumer(SCHEDULER, batch=256))
ATTEMPTS_READY = _attempt_event("ready", attempts.AttemptReady, Consumer(SCHEDULER))
ATTEMPTS_SAVED = _attempt_event("saved", attempts.AttemptSaved, Consumer(CHECKPOINT, ack_wait_s=30))
ATTEMPTS_UNSAVED = _attempt_event("unsaved", attempts.AttemptUnsaved, Consumer(CHECKPOINT))
ATTEMPTS_HUNG = _attempt_event("hung", attempts.AttemptHung, Consumer(SCHEDULER))
ATTEMPTS_EXITED = _attempt_event("exited", attempts.AttemptExited, Consumer(SCHEDULER))

CHECKPOINTS_COMMITTED = _checkpoint_event(
    "committed", checkpoints.CheckpointCommitted, Consumer(ALERTING), Consumer(SCHEDULER, batch=64)
)
CHECKPOINTS_FAILED = _checkpoint_event("failed", checkpoints.CheckpointFailed, Consumer(ALERTING))
CHECKPOINTS_RESTORED = _checkpoint_event("restored", checkpoints.CheckpointRestored, Consumer(METERING))
CHECKPOINTS_EXPIRED = _checkpoint_event("expired", checkpoints.CheckpointExpired)

TRANSFERS_REQUEST = _command(
    "transfers",
    "request",
    Key.TENANT,
    TRANSFERS_CMD,
    transfers.TransferRequest,
    _OFFERER,
    Consumer(TRANSFER, ack_wait_s=30),
)
TRANSFERS_COMPLETED = Message(
    "transfers",
    "completed",
    Kind.EVENT,
    Key.TENANT,
    TRANSFERS,
    transfers.TransferCompleted,
    (TRANSFER,),
    (Consumer(SCHEDULER),),
    (TENANT, OPERATOR),
)
TRANSFERS_FAILED = Message(
    "transfers",
    "failed",
    Kind.EVENT,
    Key.TENANT,
    TRANSFERS,
    transfers.TransferFailed,
    (TRANSFER,),
    (),
    (TENANT, OPERATOR),
)

USAGE_MEASURED = Message(
    "usage",
    "measured",
    Kind.EVENT,
    Key.NODE,
    USAGE,
    usage.UsageMeasured,
    (AGENT,),
    (Consumer(METERING, batch=64),),
    (OPERATOR,),
)
USAGE_ROLLED_UP = _usage_event("rolled_up", usage.UsageRolledUp)
USAGE_PERIOD_CLOSED = _usage_event("period_closed", usage.UsagePeriodClosed)

INVOICES_ISSUED = Message(
    "invoices",
    "issued",
    Kind.EVENT,
    Key.TENANT,
    INVOICES,
    invoices.Invoice,
    (BILLING,),
    (),
    (TENANT, OPERATOR),
)

ALERTS_FIRED = _alert_event("fired")
ALERTS_RESOLVED = _alert_event("resolved")

DEADLETTERED = Message(
    "deadletters",
    "buried",
    Kind.EVENT,
    Key.CONSUMER,
    DEADLETTERS,
    deadletters.DeadLetter,
    (EVERY_SERVICE, AGENT),
    (),
    (OPERATOR,),
)

MESSAGES: tuple[Message[Model], ...] = tuple(
    cast("Message[Model]", value) for value in list(globals().values()) if isinstance(value, Message)
)


def _fleet(verb: Literal["query", "call"], name: str, model: type[M], reply: type[R]) -> Request[M, R]:
    return Request(verb, INVENTORY, name, Key.NONE, model, reply, (OPERATOR,))


def _tenants(service: str, name: str, model: type[M], reply: type[R]) -> Request[M, R]:
    return Request("query", service, name, Key.TENANT, model, reply, _OFFERER)


STATUS = {
    service: Request("query", service, "status", Key.NONE, requests.StatusQuery, requests.ServiceStatus, (OPERATOR,))
    for service in SERVICES
}
QUERY_NODES = Request("query", INVENTORY, "nodes", Key.NONE, requests.NodesQuery, requests.NodesPage, (OPERATOR,))
QUERY_NODE = _fleet("query", "node", fleet.NodeQuery, fleet.NodeReply)
QUERY_HISTORY = _fleet("query", "history", fleet.HistoryQuery, fleet.HistoryPage)
QUERY_DECLARED = _fleet("query", "declared", fleet.DeclaredQuery, fleet.DeclaredPage)
QUERY_GRADES = _fleet("query", "grades", fleet.GradesQuery, fleet.GradesPage)
QUERY_CAPACITY = _fleet("query", "capacity", fleet.CapacityQuery, fleet.Assessment)
QUERY_BREAKERS = _fleet("query", "breakers", fleet.BreakersQuery, fleet.BreakersReply)
CALL_ASSESS = _fleet("call", "assess", fleet.AssessRequest, fleet.Assessment)
CALL_DECLARE = _fleet("call", "declare", fleet.DeclareRequest, fleet.DeclareReply)
CALL_RESET = _fleet("call", "reset", fleet.FaultReset, fleet.FaultResetReply)
QUERY_JOBS = _tenants(SCHEDULER, "jobs", requests.JobsQuery, requests.JobsPage)
QUERY_JOB = _tenants(SCHEDULER, "job", requests.JobQuery, requests.JobReply)
QUERY_CHECKPOINTS = _tenants(CHECKPOINT, "checkpoints", requests.CheckpointsQuery, requests.CheckpointsReply)
QUERY_DATASETS = _tenants(TRANSFER, "datasets", requests.DatasetsQuery, requests.DatasetsReply)
QUERY_DATASET = Request(
    "query", TRANSFER, "dataset", Key.NODE, requests.DatasetLookup, transfers.TransferCompleted, (AGENT,)
)
QUERY_HOLDINGS = Request(
    "query", SCHEDULER, "holdings", Key.TENANT, requests.HoldingsQuery, requests.HoldingsPage, (METERING, OPERATOR)
)
QUERY_EXPLAIN = Request(
    "query", SCHEDULER, "explain", Key.TENANT, queue.ExplainQuery, queue.ExplainReply, (TENANT, OPERATOR)
)
QUERY_DRY_RUN = Request(
    "query", SCHEDULER, "dry_run", Key.TENANT, queue.DryRunQuery, queue.DryRunReply, (TENANT, OPERATOR)
)
QUERY_QUOTA = Request("query", SCHEDULER, "quota", Key.TENANT, queue.QuotaQuery, queue.QuotaPage, (TENANT, OPERATOR))
QUERY_QUEUE = Request("query", SCHEDULER, "queue", Key.TENANT, queue.QueueQuery, queue.QueuePage, (TENANT, OPERATOR))
QUERY_USAGE = Request("query", METERING, "usage", Key.TENANT, usage.UsageQuery, usage.UsagePage, (TENANT, OPERATOR))
QUERY_SAMPLES = Request(
    "query", METERING, "samples", Key.TENANT, usage.SamplesQuery, usage.SamplesPage, (TENANT, OPERATOR)
)
QUERY_REFUSED = Request(
    "query", METERING, "refused", Key.TENANT, usage.RefusedQuery, usage.RefusedPage, (TENANT, OPERATOR)
)
QUERY_ROLLUPS = Request(
    "query", METERING, "rollups", Key.TENANT, usage.RollUpsQuery, usage.RollUpsPage, (TENANT, OPERATOR)
)
QUERY_INVOICES = Request(
    "query", BILLING, "invoices", Key.TENANT, invoices.InvoicesQuery, invoices.InvoicesPage, (TENANT, OPERATOR)
)
QUERY_LINES = Request(
    "query", BILLING, "lines", Key.TENANT, invoices.LinesQuery, invoices.LinesPage, (TENANT, OPERATOR)
)
QUERY_ALERTS = Request("query", ALERTING, "alerts", Key.NONE, alerts.AlertsQuery, alerts.AlertsPage, (OPERATOR,))
CALL_CLOSE = Request("call", METERING, "close", Key.TENANT, usage.CloseRequest, usage.CloseReply, (OPERATOR,))
CALL_RESOLVE = Request("call", ALERTING, "resolve", Key.NONE, alerts.ResolveRequest, alerts.ResolveReply, (OPERATOR,))
CALL_RELEASE = Request(
    "call", INVENTORY, "release", Key.NONE, requests.BreakerRelease, requests.BreakerReleased, (OPERATOR,)
)
CALL_CLAIM = Request("call", SCHEDULER, "claim", Key.NODE, requests.ClaimRequest, requests.ClaimReply, (AGENT,))
CALL_RESTORE = Request(
    "call", CHECKPOINT, "restore", Key.NODE, requests.RestoreRequest, requests.RestoreReply, (AGENT,)
)

REQUESTS: tuple[Request[Model, Model], ...] = (
    *STATUS.values(),
    *(cast("Request[Model, Model]", value) for value in list(globals().values()) if isinstance(value, Request)),
)


def durable(message: Message[Model], consumer: Consumer, node: str | None = None) -> str:
    """The name of the durable by which a service reads a message: `scheduler-jobs-submit`, `billing-usage-rolled-up`.

    A `per_node` consumer ends in the node's name. It is the key of its dead letters: no `_`.
    """
    name = f"{consumer.service}-{message.domain}-{message.name}".replace("_", "-")
    return f"{name}-{node}" if consumer.per_node else name


def replay_subject(consumer: str) -> str:
    """Where a dead letter goes to be tried again by the durable `consumer` and by no other."""
    return f"replay.v1.{consumer}"


def consumed_by(service: str) -> Iterator[tuple[Message[Model], Consumer]]:
    """What a service reads by durables, in the order of the table."""
    for message in MESSAGES:
        for consumer in message.consumers:
            if consumer.service == service:
                yield message, consumer


def produced_by(service: str) -> Iterator[Message[Model]]:
    """What a service (or the agent) publishes, in the order of the table."""
    for message in MESSAGES:
        anyone = EVERY_SERVICE in message.producers and service in SERVICES
        if service in message.producers or anyone:
            yield message


def by_type(type_: str) -> Message[Model] | None:
    """The message of a CloudEvents type, or None."""
    return _BY_TYPE.get(type_)


_BY_TYPE = {message.type: message for message in MESSAGES}
