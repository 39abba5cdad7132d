"""Follow a stack's events: what the demo knows of its jobs, checkpoints and nodes, and a way to wait for more.

In: the event streams. Out: a `Seen`, kept up to date, a line for each event worth telling, and `wait`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from contracts import registry
from contracts.alerts import Alert, AlertPhase
from contracts.attempts import AttemptProgressed
from contracts.base import Model
from contracts.checkpoints import CheckpointCommitted, CheckpointFailed, CheckpointRestored
from contracts.invoices import Invoice
from contracts.jobs import JobRejected, JobState, Member
from contracts.nodes import NodeState
from contracts.registry import Message
from libs.bus.client import Client
from libs.bus.events import Event
from libs.cli.words import figures
from libs.kit.tasks import reap

T = TypeVar("T")

JOBS = (
    registry.JOBS_ACCEPTED,
    registry.JOBS_REJECTED,
    registry.JOBS_HELD,
    registry.JOBS_WAITING,
    registry.JOBS_PLACED,
    registry.JOBS_STARTING,
    registry.JOBS_RUNNING,
    registry.JOBS_STOPPING,
    registry.JOBS_UNREACHABLE,
    registry.JOBS_FINISHED,
)
NODES = (registry.NODES_GRADED, registry.NODES_SUSPECT, registry.NODES_LOST, registry.NODES_RETURNED)
CHECKPOINTS = (registry.CHECKPOINTS_COMMITTED, registry.CHECKPOINTS_FAILED, registry.CHECKPOINTS_RESTORED)
PROGRESS = (registry.ATTEMPTS_PROGRESSED,)
ALERTS = (registry.ALERTS_FIRED, registry.ALERTS_RESOLVED)
INVOICES = (registry.INVOICES_ISSUED,)


class StoryError(Exception):
    """The demo cannot go on; the message says what it waited for."""


@dataclass
class Report:
    """Progress of one attempt: figures by step, and when each batch of them was reported."""

    points: dict[int, dict[str, float]] = field(default_factory=dict[int, dict[str, float]])
    times: list[tuple[datetime, int]] = field(default_factory=list[tuple[datetime, int]])


@dataclass
class Seen:
    """Everything the events have said so far."""

    jobs: dict[str, JobState] = field(default_factory=dict[str, JobState])
    placements: dict[str, dict[int, Member]] = field(default_factory=dict[str, dict[int, Member]])
    rejected: dict[str, JobRejected] = field(default_factory=dict[str, JobRejected])
    nodes: dict[str, list[NodeState]] = field(default_factory=dict[str, list[NodeState]])
    committed: list[CheckpointCommitted] = field(default_factory=list[CheckpointCommitted])
    failed: list[CheckpointFailed] = field(default_factory=list[CheckpointFailed])
    restored: list[CheckpointRestored] = field(default_factory=list[CheckpointRestored])
    progress: dict[tuple[str, int], Report] = field(default_factory=dict[tuple[str, int], Report])
    alerts: list[Alert] = field(default_factory=list[Alert])
    invoices: list[Invoice] = field(default_factory=list[Invoice])

    def take(self, body: Model) -> str | None:
        """Add one event; returns a line to tell, or None where it says nothing new."""
        line: str | None = None
        match body:
            case JobState():
                line = self._job(body)
            case JobRejected():
                line = self._rejected(body)
            case NodeState():
                self.nodes.setdefault(body.node, []).append(body)
                line = f"node {body.node} is {body.state}{f': {body.reason}' if body.reason else ''}"
            case CheckpointCommitted():
                self.committed.append(body)
                line = f"checkpoint of step {body.step} committed by attempt {body.attempt}"
            case CheckpointFailed():
                self.failed.append(body)
                line = f"checkpoint of step {body.step} by attempt {body.attempt} failed: {body.cause}: {body.message}"
            case CheckpointRestored():
                line = self._restored(body)
            case AttemptProgressed():
                self._progress(body)
            case Alert():
                self.alerts.append(body)
                line = _alert(body)
            case Invoice():
                self.invoices.append(body)
            case _:
                pass
        return line

    def _rejected(self, body: JobRejected) -> str:
        self.rejected[body.job_id or body.submission_id] = body
        reason = body.reason
        return f"job {body.name} refused: {reason.code}: {reason.message} ({figures(reason)})"

    def _job(self, body: JobState) -> str | None:
        known = self.jobs.get(body.job_id)
        if known is not None and known.version >= body.version:
            return None
        self.jobs[body.job_id] = body
        attempt, where = body.attempt, ""
        if attempt is not None:
            self.placements.setdefault(body.job_id, {})[attempt.number] = attempt.members[0]
            where = f", attempt {attempt.number} on {attempt.members[0].node}"
            where += f", serving at {attempt.endpoint}" if attempt.endpoint is not None else ""
        why = f" ({body.reason.code}: {body.reason.message})" if body.reason is not None else ""
        outcome = f" as {body.outcome}" if body.outcome is not None else ""
        return f"job {body.spec.name} is {body.state}{outcome}{where}{why}"

    def _restored(self, body: CheckpointRestored) -> str | None:
        self.restored.append(body)
        if body.step is None:
            return None
        return f"attempt {body.attempt} restores step {body.step}; saves of earlier attempts are refused from now on"

    def _progress(self, body: AttemptProgressed) -> None:
        report = self.progress.setdefault((body.job_id, body.attempt), Report())
        for point in body.points:
            report.points[point.step] = dict(point.metrics)
        report.times.append((body.reported_at, body.points[-1].step))


def _alert(alert: Alert) -> str:
    about = ", ".join(f"{name} {value}" for name, value in sorted(alert.labels.items()) if name != "alertname")
    if alert.state is AlertPhase.RESOLVED:
        return f"alert {alert.name} is over ({about}): {alert.resolution}"
    return f"alert {alert.name}, level {alert.level}: {about}"


class Watcher:
    """Reads all event streams from the beginning while it is open."""

    def __init__(self, client: Client, say: Callable[[str], None]) -> None:
        self.seen = Seen()
        self._client = client
        self._say = say
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        groups: Sequence[Sequence[Message[Any]]] = (JOBS, NODES, CHECKPOINTS, PROGRESS, ALERTS, INVOICES)
        self._tasks = [asyncio.create_task(self._follow(messages)) for messages in groups]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await reap(self._tasks)

    async def wait(self, what: str, found: Callable[[Seen], T | None], timeout_s: float) -> T:
        """The first answer of `found` that is not None; StoryError names `what` after `timeout_s`."""
        try:
            return await asyncio.wait_for(self._wait(found), timeout_s)
        except TimeoutError:
            msg = f"waited {timeout_s:.0f} s for {what}"
            raise StoryError(msg) from None

    async def _wait(self, found: Callable[[Seen], T | None]) -> T:
        async with self._changed:
            while True:
                answer = found(self.seen)
                if answer is not None:
                    return answer
                await self._changed.wait()

    async def _follow(self, messages: Sequence[Message[Any]]) -> None:
        async for event in self._client.events(messages, since="all"):
            await self._take(event)

    async def _take(self, event: Event[Model]) -> None:
        line = self.seen.take(event.body)
        async with self._changed:
            self._changed.notify_all()
        if line is not None:
            self._say(line)
