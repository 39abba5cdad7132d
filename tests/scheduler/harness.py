"""The scheduler as a process of its own between a real hub and a real PostgreSQL, and nodes played by the test.

A `FakeNode` says what inventory and the agent of one node would say, and takes that node's commands from its durables;
nothing runs on it.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.js import JetStreamContext

from contracts import registry
from contracts.attempts import AttemptExited, AttemptReady, AttemptRef, AttemptStarted, ExitCause
from contracts.base import Tier
from contracts.jobs import JobCancel, JobRejected, JobSpec, JobState
from contracts.nodes import Card, CardSource, LiveAttempt, NodeFacts, NodePhase, NodeState
from contracts.queue import DryRunQuery, DryRunReply, ExplainQuery, ExplainReply
from contracts.requests import ClaimReply, ClaimRequest, JobQuery, JobReply
from contracts.work import WorkRun, WorkStop
from libs.bus import Client, Event
from libs.db import Connection
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.kit.tasks import reap
from tests.servers import NatsServer
from tests.waiting import until

PATIENCE_S = 30.0
NODES = ("central-1", "central-2", "remote-1")
NODE_EVENTS = {
    "graded": registry.NODES_GRADED,
    "suspect": registry.NODES_SUSPECT,
    "lost": registry.NODES_LOST,
    "returned": registry.NODES_RETURNED,
}
PHASES = {
    "graded": NodePhase.READY,
    "suspect": NodePhase.SUSPECT,
    "lost": NodePhase.LOST,
    "returned": NodePhase.READY,
}
JOB_EVENTS = [message for message in registry.MESSAGES if message.domain == "jobs" and message.kind == "event"]
TENANTS = {"acme": (50, 16, 20, "online"), "beta": (1, 2, 1, "normal")}


def write_tenants(folder: Path) -> None:
    folder.mkdir()
    for name, (hours, cards, jobs, top) in TENANTS.items():
        quotas = {"gpu_hours_month": hours, "cards": cards, "concurrent_jobs": jobs, "top_priority": top}
        write_tenant(folder, name, quotas)


def write_tenant(folder: Path, name: str, quotas: dict[str, Any], **more: Any) -> None:
    """A tenant file; JSON is YAML."""
    content = {"tenant": name, "version": 1, "quotas": quotas, **more}
    (folder / f"{name}.yaml").write_text(json.dumps(content))


def write_policy(path: Path, **content: Any) -> None:
    path.write_text(json.dumps({"version": 1, **content}))


def spec(**changes: Any) -> JobSpec:
    """A training job of two cards for acme, with `changes`."""
    fields: dict[str, Any] = {
        "job_id": new_id(),
        "tenant": "acme",
        "name": "digits",
        "kind": "training",
        "command": ["python", "train.py"],
        "resources": {"cards": 2},
        "max_runtime_s": 600,
    }
    return JobSpec.model_validate(fields | changes)


class Process:
    """One scheduler process; its log lines go to `log`."""

    def __init__(self, nats_url: str, dsn: str, tenants: Path, log: Path, **more: str) -> None:
        settings = {"NATS_URL": nats_url, "PG_DSN": dsn, "TENANTS": str(tenants), "RECONCILE_GRACE_S": "1"}
        policy = tenants.parent / "policy.yaml"
        if policy.is_file():
            settings["POLICY"] = str(policy)
        settings |= more
        self.traces = log.parent / "traces"
        settings["TRACE_DIR"] = str(self.traces)
        self._env = os.environ | {f"FARSIDE_{name}": value for name, value in settings.items()}
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "services.scheduler"]
            self._process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send `number` and wait; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(PATIENCE_S)
        self._process = None
        return code

    def close(self) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)

    def said(self, event: str) -> int:
        """How many log lines of this event have been written."""
        return self.log.read_text().count(f'"event": "{event}"')


@dataclass
class FakeNode:
    """One node; see the module."""

    client: Client
    name: str
    tier: Tier
    cards: int
    incarnation: str = field(default_factory=new_id)
    version: int = 0
    runs: list[WorkRun] = field(default_factory=list[WorkRun])
    stops: list[WorkStop] = field(default_factory=list[WorkStop])
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def listen(self) -> None:
        self._tasks = [
            asyncio.create_task(self._take(registry.WORK_RUN, self.runs)),
            asyncio.create_task(self._take(registry.WORK_STOP, self.stops)),
        ]

    async def _take(self, message: registry.Message[Any], into: list[Any]) -> None:
        durable = registry.durable(message, message.consumers[0], self.name)
        js: JetStreamContext = self.client.js
        subscription = await js.pull_subscribe_bind(durable, message.stream.name)
        while True:
            try:
                for raw in await subscription.fetch(10, timeout=5):
                    into.append(message.model.model_validate_json(raw.data))
                    await raw.ack()
            except TimeoutError:  # the client raises its own, which is one, or a bare one
                continue

    def check(self) -> None:
        """Raise what ended the taking of commands, if anything did."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def close(self) -> None:
        await reap(self._tasks)

    async def is_(self, what: str, attempts: list[LiveAttempt] | None = None, **changes: Any) -> NodeState:
        """Say as inventory that the node is graded, suspect, lost or returned."""
        self.version += 1
        cards = [
            Card(index=i, uuid=f"{self.name}-{i}", model="H100", memory_bytes=80 * 2**30, source=CardSource.DECLARED)
            for i in range(self.cards)
        ]
        facts = NodeFacts(
            node=self.name,
            tier=self.tier,
            zone="z",
            address="127.0.0.1",
            version="0.1.0",
            cpu_milli=8000,
            memory_bytes=64 * 2**30,
            cards=cards,
        )
        state = NodeState(
            node=self.name,
            version=self.version,
            state=PHASES[what],
            facts=facts,
            incarnation=self.incarnation,
            attempts=attempts or [],
            since=SystemClock().now(),
        ).model_copy(update=changes)
        await self.client.publish(
            NODE_EVENTS[what], state, key=self.name, subject=self.name, sequence=state.version, actor="inventory"
        )
        return state

    async def offer(self, job_id: str, attempt: int = 1) -> WorkRun:
        """The offer of that attempt, once it has come."""

        def found() -> WorkRun | None:
            self.check()
            return next((run for run in self.runs if (run.job_id, run.attempt) == (job_id, attempt)), None)

        run = await until(found, PATIENCE_S, f"attempt {attempt} of {job_id} to be offered to {self.name}")
        assert run is not None
        return run

    async def stop_order(self, job_id: str, attempt: int = 1) -> WorkStop:
        """The order to stop that attempt, once it has come."""

        def found() -> WorkStop | None:
            self.check()
            return next((stop for stop in self.stops if (stop.job_id, stop.attempt) == (job_id, attempt)), None)

        stop = await until(found, PATIENCE_S, f"attempt {attempt} of {job_id} to be stopped on {self.name}")
        assert stop is not None
        return stop

    async def claim(self, run: WorkRun, *, patience_s: float = PATIENCE_S, **changes: Any) -> ClaimReply:
        claim = ClaimRequest(
            job_id=run.job_id,
            tenant=run.tenant,
            attempt=run.attempt,
            generation=run.generation,
            member=run.member,
            node=self.name,
            incarnation=self.incarnation,
            endpoint=f"{self.name}:4000",
        ).model_copy(update=changes)
        return await self.client.request(registry.CALL_CLAIM, claim, key=self.name, timeout_s=patience_s)

    def ref(self, run: WorkRun) -> dict[str, Any]:
        return AttemptRef(
            job_id=run.job_id,
            tenant=run.tenant,
            attempt=run.attempt,
            member=run.member,
            node=self.name,
            incarnation=self.incarnation,
        ).model_dump()

    async def _report(self, message: registry.Message[Any], body: AttemptRef) -> None:
        actor = f"agent/{self.name}"
        await self.client.publish(message, body, key=self.name, subject=body.job_id, actor=actor, sequence=1)

    async def started(self, run: WorkRun) -> None:
        body = AttemptStarted(**self.ref(run), started_at=SystemClock().now())
        await self._report(registry.ATTEMPTS_STARTED, body)

    async def ready(self, run: WorkRun, endpoint: str) -> None:
        body = AttemptReady(**self.ref(run), endpoint=endpoint, ready_at=SystemClock().now())
        await self._report(registry.ATTEMPTS_READY, body)

    async def exited(self, run: WorkRun, cause: ExitCause = ExitCause.COMPLETED, code: int | None = 0) -> None:
        body = AttemptExited(**self.ref(run), cause=cause, exit_code=code, ended_at=SystemClock().now())
        await self._report(registry.ATTEMPTS_EXITED, body)

    async def runs_it(self, job_id: str, attempt: int = 1) -> WorkRun:
        """Take up the offer and report its start."""
        run = await self.offer(job_id, attempt)
        reply = await self.claim(run)
        assert reply.granted, reply.message
        await self.started(run)
        return run


@dataclass
class Stage:
    """All of it, as one test uses it."""

    hub: NatsServer
    client: Client
    scheduler: Process
    standby: Process
    db: Connection
    nodes: dict[str, FakeNode]
    folder: Path
    heard: list[Event[JobState]] = field(default_factory=list[Event[JobState]])
    rejected: list[JobRejected] = field(default_factory=list[JobRejected])
    _listening: asyncio.Task[None] | None = None

    def listen(self) -> None:
        async def run() -> None:
            async for event in self.client.events(JOB_EVENTS, since="all"):
                if isinstance(event.body, JobRejected):
                    self.rejected.append(event.body)
                else:
                    self.heard.append(event)

        self._listening = asyncio.create_task(run())

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.close()
        if self._listening is not None:
            await reap([self._listening])

    def node(self, name: str) -> FakeNode:
        return self.nodes[name]

    async def ready(self, *names: str) -> None:
        """Have the nodes graded, and wait until the scheduler knows them."""
        for name in names:
            await self.nodes[name].is_("graded")

        async def known() -> bool:
            query = "SELECT count(*) FROM scheduler.nodes WHERE node = ANY($1)"
            return await self.db.fetchval(query, list(names)) == len(names)

        await until(known, PATIENCE_S, f"nodes {names} to be known")

    async def submit(self, job: JobSpec, **envelope: Any) -> JobSpec:
        await self.client.publish(
            registry.JOBS_SUBMIT, job, key=job.tenant, subject=job.job_id, actor="user/ada", **envelope
        )
        return job

    async def cancel(self, job: JobSpec) -> None:
        body = JobCancel(job_id=job.job_id, reason="test")
        await self.client.publish(registry.JOBS_CANCEL, body, key=job.tenant, subject=job.job_id, actor="user/ada")

    def story(self, job: JobSpec) -> list[str]:
        """The names of the job's events, in order of their versions."""
        events = sorted((e for e in self.heard if e.body.job_id == job.job_id), key=lambda event: event.body.version)
        assert [event.body.version for event in events] == list(range(1, len(events) + 1))
        return [event.message.name for event in events]

    async def told(self, job: JobSpec, state: str, **fields: Any) -> JobState:
        """The first state told of the job with this name and these fields."""

        def found() -> JobState | None:
            for event in self.heard:
                body = event.body
                if body.job_id == job.job_id and event.message.name == state:
                    assert event.sequence == body.version
                    if all(getattr(body, name) == value for name, value in fields.items()):
                        return body
            return None

        told = await until(found, PATIENCE_S, f"{job.name} to be {state} {fields}")
        assert told is not None
        return told

    async def refused(self, submission_id: str) -> JobRejected:
        def found() -> JobRejected | None:
            return next((r for r in self.rejected if r.submission_id == submission_id), None)

        rejected = await until(found, PATIENCE_S, f"submission {submission_id} to be rejected")
        assert rejected is not None
        return rejected

    async def explain(self, name: str, tenant: str = "acme") -> ExplainReply:
        query = ExplainQuery(job=name)
        return await self.client.request(registry.QUERY_EXPLAIN, query, key=tenant, timeout_s=PATIENCE_S)

    async def dry_run(self, job: JobSpec) -> DryRunReply:
        query = DryRunQuery(spec=job)
        return await self.client.request(registry.QUERY_DRY_RUN, query, key=job.tenant, timeout_s=PATIENCE_S)

    async def running(self, name: str, **changes: Any) -> tuple[JobSpec, WorkRun]:
        """A job that runs on the node `name`."""
        job = await self.submit(spec(**changes))
        run = await self.nodes[name].runs_it(job.job_id)
        await self.told(job, "running")
        return job, run

    def rules(self, **content: Any) -> None:
        """Write the policy file anew."""
        write_policy(self.folder / "policy.yaml", **content)

    def tenant(self, name: str, **more: Any) -> None:
        """Write a tenant's file anew; `quotas` are changes of those it had at first."""
        hours, cards, jobs, top = TENANTS[name]
        quotas = {"gpu_hours_month": hours, "cards": cards, "concurrent_jobs": jobs, "top_priority": top}
        write_tenant(self.folder / "tenants", name, quotas | more.pop("quotas", {}), **more)

    async def read(self, what: str) -> None:
        """Wait until the scheduler has read changed files: `tenants` or `policy`."""
        await until(lambda: self.scheduler.said(f"{what}.read"), PATIENCE_S, f"the {what} to be read again")

    async def job(self, name: str, tenant: str = "acme") -> JobReply:
        return await self.client.request(registry.QUERY_JOB, JobQuery(job=name), key=tenant, timeout_s=PATIENCE_S)
