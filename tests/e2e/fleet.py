"""A running stack with the words that fault tests need: submit a counting task, follow it, read its trace."""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from contracts import registry
from contracts.jobs import Artefact, CheckpointPolicy, JobCancel, JobKind, JobPhase, JobSpec, JobState, Resources
from contracts.nodes import NodePhase, NodeState
from contracts.requests import JobQuery, JobReply, NodesQuery, ProblemCode
from deploy.local.config import BUCKET
from deploy.local.stack import Stack
from libs.bus import Client, Problem
from libs.cli.pack import pack
from libs.kit.ids import new_id
from libs.objects import Store, StoreConfig
from tests.waiting import until

TASKS = Path(__file__).with_name("tasks")
TENANT = "acme"

# A tenth of the defaults, so that an outage of 6 s stands for one of 60 s.
TENTH = {"FARSIDE_HEARTBEAT_S": "0.5", "FARSIDE_SUSPECT_S": "2", "FARSIDE_LEASE_S": "24", "FARSIDE_LOST_S": "27"}
# For tests in which a lease has to run out.
SHORT = {"FARSIDE_HEARTBEAT_S": "0.5", "FARSIDE_SUSPECT_S": "1.5", "FARSIDE_LEASE_S": "6", "FARSIDE_LOST_S": "8"}


@dataclass(frozen=True)
class Line:
    """One step of a task as its trace tells it; `at` is on the machine's monotonic clock, in seconds."""

    attempt: int
    member: int
    pid: int
    at: float
    step: int


@dataclass
class Fleet:
    """A stack and a client on its bus."""

    stack: Stack
    client: Client
    artefact: Artefact
    folder: Path
    traces: dict[str, Path] = field(default_factory=dict)

    async def submit(self, **fields: Any) -> str:
        """Submit a counting task and return its job id; `fields` are those of a JobSpec, and steps and pace_s."""
        job_id = new_id()
        await self.submit_spec(self.spec(job_id, **fields))
        return job_id

    async def submit_spec(self, spec: JobSpec) -> None:
        """Submit one job as it is."""
        await self.client.publish(registry.JOBS_SUBMIT, spec, key=TENANT, subject=spec.job_id, actor="test")

    def spec(self, job_id: str, *, steps: int = 60, pace_s: float = 0.1, **fields: Any) -> JobSpec:
        trace = self.traces[job_id] = self.folder / f"{job_id}.trace"
        env = {"STEPS": str(steps), "PACE_S": str(pace_s), "TRACE": str(trace)}
        kind = fields.get("kind", JobKind.TRAINING)
        defaults: dict[str, Any] = {
            "job_id": job_id,
            "tenant": TENANT,
            "name": f"count-{job_id[-8:]}",
            "kind": kind,
            "command": ["python", "loop.py"],
            "resources": Resources(cards=1),
            "env": env,
            "artefact": self.artefact,
            "seed": 7,
            "checkpoint": CheckpointPolicy(interval_steps=5),
            "max_runtime_s": None if kind is JobKind.INFERENCE else 600,
            "stop_grace_s": 1,
        }
        return JobSpec(**{**defaults, **fields})

    async def cancel(self, job_id: str) -> None:
        await self.client.publish(
            registry.JOBS_CANCEL, JobCancel(job_id=job_id), key=TENANT, subject=job_id, actor="test"
        )

    async def reply(self, job_id: str) -> JobReply:
        return await self.client.request(registry.QUERY_JOB, JobQuery(job=job_id), key=TENANT, timeout_s=20)

    async def job(self, job_id: str) -> JobState:
        return (await self.reply(job_id)).job

    async def until(
        self, job_id: str, predicate: Callable[[JobState], bool], timeout_s: float = 60, what: str = ""
    ) -> JobState:
        """The first state of a job that `predicate` accepts."""
        seen: list[str] = []

        async def accepted() -> JobState | None:
            try:
                state = await self.job(job_id)
            except Problem as problem:
                if problem.code is not ProblemCode.NOT_FOUND:
                    raise
                return None
            seen[:] = [state.model_dump_json(exclude={"spec"})]
            return state if predicate(state) else None

        try:
            return await until(accepted, timeout_s, what or "a state of the job")
        except AssertionError as error:
            error.add_note(f"last state: {seen}")
            error.add_note(f"nodes: {[(node.node, str(node.state)) for node in (await self.nodes()).values()]}")
            raise

    async def finished(self, job_id: str, timeout_s: float = 90) -> JobState:
        return await self.until(job_id, lambda job: job.state is JobPhase.FINISHED, timeout_s, "the job to finish")

    async def at_step(self, job_id: str, step: int, attempt: int = 1) -> None:
        """Wait until the task itself has written that step."""
        await until(
            lambda: any(line.step >= step and line.attempt >= attempt for line in self.lines(job_id)),
            60,
            f"attempt {attempt} of {job_id} to reach step {step}",
        )

    def lines(self, job_id: str) -> list[Line]:
        path = self.traces[job_id]
        if not path.exists():
            return []
        rows = [row.split() for row in path.read_text().splitlines()]
        return [Line(int(r[0]), int(r[1]), int(r[2]), float(r[3]), int(r[4])) for r in rows if len(r) == 5]

    def task_pid(self, job_id: str, member: int = 0) -> int:
        return next(line.pid for line in reversed(self.lines(job_id)) if line.member == member)

    async def nodes(self) -> dict[str, NodeState]:
        page = await self.client.request(registry.QUERY_NODES, NodesQuery(), key="_", timeout_s=20)
        return {node.node: node for node in page.nodes}

    async def node_is(self, node: str, state: NodePhase, timeout_s: float = 30) -> None:
        async def reached() -> bool:
            return (await self.nodes())[node].state is state

        await until(reached, timeout_s, f"{node} to be {state}")

    async def outage(self, part: str, seconds: float) -> None:
        """SIGKILL a part, keep it away for a while, and let it come back."""
        self.stack.hold(part)
        os.kill(self.stack.pid(part), signal.SIGKILL)
        await asyncio.sleep(seconds)
        self.stack.release(part)


def one_at_a_time(lines: list[Line]) -> bool:
    """Whether no attempt took a step after a later attempt had taken one."""
    ends: dict[int, float] = {}
    begins: dict[int, float] = {}
    for line in lines:
        ends[line.attempt] = max(ends.get(line.attempt, line.at), line.at)
        begins[line.attempt] = min(begins.get(line.attempt, line.at), line.at)
    numbers = sorted(begins)
    return all(ends[a] < begins[b] for a, b in itertools.pairwise(numbers))


@asynccontextmanager
async def fleet(folder: Path, timings: dict[str, str], **options: Any) -> AsyncGenerator[Fleet]:
    """A whole stack below `folder`, taken down at the end."""
    async with (
        Stack(folder / "stack", env=timings, **options) as stack,
        await Client.connect(stack.config.nats_url, name="test") as client,
    ):
        yield Fleet(stack, client, await _upload(stack), folder)
    check_rights(folder / "stack" / "logs")


def check_rights(logs: Path) -> None:
    """Nobody ever lacked a right on the bus: neither nats-server nor anybody refused says so."""
    found = [line for log in logs.glob("*.log") for line in log.read_text().splitlines() if "violation" in line.lower()]
    assert found == []


async def _upload(stack: Stack) -> Artefact:
    packed = pack(TASKS)
    config = stack.config
    store = Store(
        StoreConfig(
            endpoint=config.s3_endpoint,
            access_key=config.secrets["s3-access"],
            secret_key=SecretStr(config.secrets["s3-secret"]),
            bucket=BUCKET,
        )
    )
    key = f"artefacts/{TENANT}/{packed.sha256}.tar.gz"
    await asyncio.to_thread(store.put, key, packed.data, packed.sha256)
    return Artefact(uri=f"s3://{BUCKET}/{key}", sha256=packed.sha256)
