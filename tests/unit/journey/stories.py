"""A job that loses its node, is metered and billed: the whole of what a journey can show."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.trace import SpanContext

from tests.unit.journey.scribe import JOB, OTHER, Stack, Writer, at, outside

SOURCE = "/farside/scheduler"
AGENT_1 = "/farside/agent/node-1"


@dataclass
class Told:
    """Spans that tests refer to."""

    life: SpanContext
    window: SpanContext
    roll_up: SpanContext
    lost: SpanContext


def submit(
    scheduler: Writer, start: float, job: str = JOB, *, deliveries: int = 1, tenant: str = "acme"
) -> SpanContext:
    stored = at(start - 0.02).isoformat()
    return scheduler.span(
        "process jobs.v1.submit.{tenant}",
        start,
        0.03,
        parent=outside(99 if job == JOB else 98),
        job=job,
        tenant=tenant,
        outside_parent=True,
        stored_at=stored,
        source="notebook",
        message=f"submit-{job}",
        consumer="scheduler-jobs-submit",
        deliveries=deliveries,
        outcome="done",
    )


def message(
    template: str, publisher: Writer, consumers: list[Writer], start: float, parent: SpanContext, **about: Any
) -> SpanContext:
    """Published by one, processed by others a little later; the id is made from template and time."""
    node = f"/{publisher.node}" if publisher.node else ""
    source, number = f"/farside/{publisher.service}{node}", f"{template}@{start}"
    published = publisher.span(f"publish {template}", start, 0.002, parent=parent, message=number, **about)
    for consumer in consumers:
        domain, _, name, _ = template.split(".")
        durable = f"{consumer.service}-{domain}-{name}"
        consumer.span(
            f"process {template}",
            start + 0.01,
            0.02,
            parent=published,
            message=number,
            source=source,
            consumer=durable,
            deliveries=1,
            **about,
        )
    return published


def whole(folder: Path) -> Told:
    """The whole journey; node-1's agent is killed in it, every other process ends cleanly."""
    stack = Stack(folder)
    scheduler, inventory = stack.writer("scheduler"), stack.writer("inventory")
    checkpoint, metering = stack.writer("checkpoint"), stack.writer("metering")
    billing, alerting = stack.writer("billing"), stack.writer("alerting")
    killed, second = Writer(folder, "agent", stack.ids, "node-1", 11), stack.writer("agent", "node-2", 12)
    submit(scheduler, 0.02)
    life = submit(scheduler, 1.02, deliveries=2)
    _attempt(1, scheduler, killed, life, 1.1)
    _checkpoint(killed, checkpoint, life, 3.0)
    window = _window(killed, metering, life, 5.0)
    killed.kill()
    lost = inventory.span("publish nodes.v1.lost.{node}", 9.0, 0.002, message="lost-1", node="node-1")
    told = scheduler.span(
        "process nodes.v1.lost.{node}", 9.01, 0.02, parent=lost, message="lost-1", source="/farside/inventory"
    )
    scheduler.span("lose attempt", 9.02, 0.01, parent=life, links=[told], job=JOB, attempt=1)
    heard = alerting.span("process nodes.v1.lost.{node}", 9.02, 0.01, parent=lost, message="lost-1")
    message("alerts.v1.fired._", alerting, [], 9.03, heard)
    _attempt(2, scheduler, second, life, 9.1)
    second.span("restore checkpoint", 9.3, 0.4, parent=life, job=JOB, attempt=2, step=100)
    second.span("run attempt", 9.2, 8.0, parent=life, job=JOB, attempt=2)
    _window(second, metering, life, 17.3)
    message("jobs.v1.finished.{tenant}", scheduler, [checkpoint, alerting], 17.4, life, job=JOB)
    roll_up = metering.span("roll up usage", 20.0, 0.1, links=[window], tenant="acme")
    rolled = message("usage.v1.rolled_up.{tenant}", metering, [billing], 20.1, roll_up)
    rated = billing.span("rate usage", 20.2, 0.2, links=[rolled], tenant="acme")
    message("invoices.v1.issued.{tenant}", billing, [], 20.4, rated)
    stack.end()
    return Told(life, window, roll_up, lost)


def _attempt(number: int, scheduler: Writer, agent: Writer, life: SpanContext, start: float) -> None:
    about: dict[str, Any] = {"job": JOB, "attempt": number, "node": agent.node}
    placed = scheduler.span("place job", start, 0.02, parent=life, job=JOB, attempt=number)
    run = message("work.v1.run.{node}", scheduler, [agent], start + 0.02, placed, **about)
    asked = agent.span("ask call.v1.scheduler.claim.{node}", start + 0.05, 0.02, parent=run, **about)
    scheduler.span("answer call.v1.scheduler.claim.{node}", start + 0.055, 0.01, parent=asked, **about)
    message("attempts.v1.started.{node}", agent, [scheduler], start + 0.1, asked, **about)


def _checkpoint(agent: Writer, checkpoint: Writer, life: SpanContext, start: float) -> None:
    """The agent dies before it has written that it published."""
    lost = agent.span("publish attempts.v1.saved.{node}", start, lost=True, parent=life)
    took = checkpoint.span(
        "process attempts.v1.saved.{node}", start + 0.01, 0.1, parent=lost, source=AGENT_1, job=JOB, message="saved-1"
    )
    checkpoint.span("commit checkpoint", start + 0.02, 0.05, parent=took, job=JOB, step=100)


def _window(agent: Writer, metering: Writer, life: SpanContext, start: float) -> SpanContext:
    """A window with another job's rows in it; metering takes it in a batch."""
    measured = agent.span("measure usage", start, 0.005, links=[life, outside(98)])
    published = message("usage.v1.measured.{node}", agent, [], start + 0.01, measured)
    metering.span("process usage.v1.measured.{node}", start + 0.05, 0.02, links=[published, outside(97)])
    return published


def neighbour(folder: Path, told: Told) -> None:
    """Another job that shares windows, the lost node and the order of placement; nothing of it belongs to the first."""
    stack = Stack(folder)
    stack.ids.next = 50_000
    scheduler = stack.writer("scheduler", pid=2)
    metering = stack.writer("metering", pid=2)
    life = submit(scheduler, 2.0, OTHER, tenant="umbrella")
    scheduler.span("lose attempt", 9.05, 0.01, parent=life, links=[told.lost], job=OTHER, attempt=1)
    scheduler.span("place job", 17.5, 0.01, parent=life, links=[told.life], job=OTHER, attempt=2)
    metering.span("roll up usage", 30.0, 0.1, links=[told.window], tenant="umbrella")
    metering.span("roll up usage", 30.0, 0.1, links=[life], tenant="umbrella")
    stack.end()
