"""What the bus carries in this benchmark: bodies of some 500 bytes, with the headers that Farside's own agents send."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from contracts import registry
from contracts.attempts import AttemptExited, AttemptProgressed, ExitCause, ProgressPoint
from contracts.base import Model, Reason, ReasonCode
from contracts.jobs import JobRejected
from contracts.registry import Message
from libs.bus.codec import Envelope
from libs.bus.connection import add_consumer
from libs.bus.outbox import OutboxRow, make_row
from libs.bus.provision import consumer_configs
from libs.kit.ids import new_id
from libs.telemetry.context import Trace

TENANT, NODE = "acme", "central-1"
EACH, BATCH, SAID = registry.ATTEMPTS_EXITED, registry.ATTEMPTS_PROGRESSED, registry.JOBS_REJECTED
STREAM = registry.ATTEMPTS.name
IN_FLIGHT = 256
SERVICE = registry.SCHEDULER
RAW = "bench-raw"
AT = datetime(2026, 1, 1, tzinfo=UTC)
_METRICS = {"loss": 0.123456, "accuracy": 0.987654, "tokens_per_s": 123456.0}


def durable(message: Message[Model]) -> str:
    """The scheduler's durable of a message."""
    return registry.durable(message, message.consumers[0])


def exited() -> OutboxRow:
    """What case `b` takes."""
    job, incarnation = new_id(), new_id()
    body = AttemptExited(
        job_id=job,
        tenant=TENANT,
        attempt=1,
        member=0,
        node=NODE,
        incarnation=incarnation,
        cause=ExitCause.FAILED,
        exit_code=1,
        message="x" * 220,
        ended_at=AT,
    )
    return _row(EACH, body, NODE, job)


def progressed() -> OutboxRow:
    """What cases `c1` and `c2` take."""
    job, incarnation = new_id(), new_id()
    points = [ProgressPoint(step=step, metrics=_METRICS) for step in (100, 200, 300)]
    body = AttemptProgressed(
        job_id=job,
        tenant=TENANT,
        attempt=1,
        member=0,
        node=NODE,
        incarnation=incarnation,
        points=points,
        reported_at=AT,
    )
    return _row(BATCH, body, NODE, job)


def rejected(job: str) -> JobRejected:
    """What case `c2` says of each message."""
    reason = Reason(code=ReasonCode.INVALID, message="x" * 300)
    return JobRejected(submission_id=job, tenant=TENANT, job_id=job, name="job", reason=reason, rejected_at=AT)


def said() -> OutboxRow:
    """What case `c2` says, for those who publish it without Farside."""
    job = new_id()
    return _row(SAID, rejected(job), TENANT, job)


def _row(message: Message[Model], body: Model, key: str, subject: str) -> OutboxRow:
    envelope = Envelope(
        id=new_id(),
        source=f"/farside/agent/{NODE}",
        subject=subject,
        sequence=1,
        actor=f"agent/{NODE}",
        incarnation=None,
        time=AT,
    )
    trace = f"00-{new_id().replace('-', '')}-{new_id().replace('-', '')[16:]}-01"
    return make_row(message, body, key, envelope, Trace(trace, trace))


async def publish(js: JetStreamContext, rows: Sequence[OutboxRow]) -> None:
    """Publish rows with IN_FLIGHT of them waiting for their PubAck."""
    left: Iterator[OutboxRow] = iter(rows)

    async def work() -> None:
        for row in left:
            await js.publish(row.subject, row.data, timeout=30, stream=row.stream, headers=dict(row.headers))

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work())


async def renew(js: JetStreamContext, name: str, message: Message[Model]) -> None:
    """A durable as it is provisioned, with every message of the stream still to come."""
    if name in {info.name for info in await js.consumers_info(STREAM)}:
        await js.delete_consumer(STREAM, name)
    known = {config.durable_name: config for _, config in consumer_configs([])}
    other = ConsumerConfig(
        durable_name=name, ack_policy=AckPolicy.EXPLICIT, filter_subject=message.subject("*"), max_ack_pending=1000
    )
    await add_consumer(js, STREAM, known.get(name, other))
