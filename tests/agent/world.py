"""What stands around an agent in these tests: scheduler, checkpoint and transfer played over the real bus."""

import asyncio
import hashlib
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nats.aio.msg import Msg

from contracts import registry
from contracts.attempts import AttemptRef
from contracts.base import Model, Tier
from contracts.jobs import Artefact, JobKind, JobSpec, Member, Resources
from contracts.requests import ClaimReply, ClaimRequest, Problem, ProblemCode, RestoreReply, RestoreRequest
from contracts.transfers import TransferCompleted
from contracts.usage import UsageItem, UsageRow
from contracts.work import WorkRun, WorkStop
from libs.bus import Client, Event
from libs.bus.connection import subscribe
from libs.bus.provision import provision
from libs.kit.ids import new_id
from libs.kit.tasks import reap
from libs.objects import Store, artefact_key
from services.agent import handoff
from services.agent.core.model import AttemptKey
from services.agent.ending import end_attempts
from services.agent.executor import ProcessExecutor
from services.agent.places import Places
from services.agent.settings import AgentSettings
from tests.servers import NatsServer, SeaweedServer
from tests.waiting import until, until_sync

TENANT = "acme"
ROOT = Path(__file__).parents[2]
FAST = {
    "FARSIDE_HEARTBEAT_S": "0.2",
    "FARSIDE_SUSPECT_S": "1",
    "FARSIDE_LEASE_S": "60",
    "FARSIDE_LOST_S": "65",
    "FARSIDE_PROGRESS_S": "0.1",
    "FARSIDE_LOG_S": "0.1",
    "FARSIDE_DRAIN_S": "20",
}


@dataclass
class AgentProcess:
    """One agent, started and ended like a service."""

    env: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.agent"], cwd=ROOT, env=self.env, stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(15)


@dataclass
class World:
    """A hub with one node, and answers that a test may change."""

    folder: Path
    nats: NatsServer
    s3: SeaweedServer
    store: Store
    node: str = field(default_factory=lambda: f"n-{new_id()[-12:]}")
    events: list[Event[Any]] = field(default_factory=list[Event[Any]])
    claims: list[ClaimRequest] = field(default_factory=list[ClaimRequest])
    restores: list[RestoreRequest] = field(default_factory=list[RestoreRequest])
    claim_reply: ClaimReply | None = field(default_factory=lambda: ClaimReply(granted=True, go=True))
    restore_reply: RestoreReply | None = field(default_factory=lambda: RestoreReply(granted=True))
    dataset: TransferCompleted | None = None
    sockets: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="farside-test-")))

    def settings(self, **more: str) -> dict[str, str]:
        """The environment of the agent."""
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "FARSIDE_NODE": self.node,
            "FARSIDE_STATE_DIR": str(self.folder / "state"),
            "FARSIDE_RUNTIME_DIR": str(self.sockets),
            "FARSIDE_NATS_URL": self.nats.url,
            "FARSIDE_S3_ENDPOINT": self.s3.endpoint,
            "FARSIDE_S3_ACCESS_KEY": self.s3.access_key,
            "FARSIDE_S3_SECRET_KEY": self.s3.secret_key,
            "FARSIDE_DECLARED_CARDS": json.dumps([{"model": "A100", "memory_bytes": 80 << 30}] * 2),
            "FARSIDE_NVML": "false",
            **FAST,
            **more,
        }

    async def provision(self) -> None:
        """Make streams and the node's durables."""
        await provision(self.nats.url, [self.node])

    def agent(self, **more: str) -> AgentProcess:
        """An agent of the node, not started."""
        agent = AgentProcess(self.settings(**more), self.folder / "agent.log")
        self._agents.append(agent)
        return agent

    async def __aenter__(self) -> Self:
        self._agents: list[AgentProcess] = []
        await self.provision()
        self.client = await Client.connect(self.nats.url, name="world")
        messages = [message for message in registry.MESSAGES if message.domain == "attempts"]
        kinds = (messages, [registry.NODES_ANNOUNCED], [registry.USAGE_MEASURED], [registry.NODES_REPORTED])
        self._readers = [asyncio.create_task(self._read(kind)) for kind in kinds]
        await self._answer(registry.CALL_CLAIM.subject(self.node), self._on_claim)
        await self._answer(registry.CALL_RESTORE.subject(self.node), self._on_restore)
        await self._answer(registry.QUERY_DATASET.subject(self.node), self._on_dataset)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for agent in self._agents:
            if agent.process is not None and agent.process.poll() is None:
                with suppress(ProcessLookupError):
                    agent.signal(signal.SIGCONT)
                agent.kill()
        await asyncio.to_thread(end_attempts, self.places().attempts, ProcessExecutor(), 0.5)
        await reap(self._readers)
        await self.client.close()
        shutil.rmtree(self.sockets, ignore_errors=True)
        if error is None:
            self._check_log()

    def _check_log(self) -> None:
        """Whatever was done to it, the agent met nothing that its code does not expect."""
        log = self.folder / "agent.log"
        text = log.read_text() if log.exists() else ""
        assert not [line for line in text.splitlines() if "Traceback" in line], text

    # ---- what the scheduler does

    async def offer(self, run: WorkRun) -> None:
        """Send an offer."""
        await self.client.publish(
            registry.WORK_RUN, run, key=self.node, subject=run.job_id, sequence=1, actor="scheduler"
        )

    async def order_stop(self, run: WorkRun, grace_s: int = 2, reason: str = "cancelled") -> None:
        """Send a stop."""
        stop = WorkStop(
            job_id=run.job_id,
            tenant=run.tenant,
            attempt=run.attempt,
            member=run.member,
            grace_s=grace_s,
            reason=reason,
        )
        await self.client.publish(
            registry.WORK_STOP, stop, key=self.node, subject=run.job_id, sequence=2, actor="scheduler"
        )

    def run(
        self, *command: str, script: str | None = None, attempt: int = 1, cards: Sequence[int] = (1,), **spec: Any
    ) -> WorkRun:
        """An offer of a batch job; `script` becomes `job.py` in its artefact and runs when no command is given."""
        if script is not None:
            spec["artefact"] = self.artefact({"job.py": script})
            command = command or ("python", "job.py")
        job = JobSpec.model_validate(
            {
                "job_id": new_id(),
                "tenant": TENANT,
                "name": "test",
                "kind": JobKind.BATCH,
                "command": list(command),
                "resources": Resources(cards=len(cards)),
                "max_runtime_s": 600,
                "stop_grace_s": 2,
                **spec,
            }
        )
        member = Member(index=0, node=self.node, tier=Tier.CENTRAL, cards=list(cards))
        return WorkRun(
            job_id=job.job_id, tenant=TENANT, attempt=attempt, generation=attempt, member=0, members=[member], spec=job
        )

    def artefact(self, files: Mapping[str, str]) -> Artefact:
        """Put files into the store as a job's code."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, text in files.items():
                data = text.encode()
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        data = buffer.getvalue()
        sha256 = hashlib.sha256(data).hexdigest()
        self.store.put(artefact_key(TENANT, sha256), data)
        return Artefact(uri=self.store.uri(artefact_key(TENANT, sha256)), sha256=sha256)

    # ---- what the test sees

    def names(self, run: WorkRun) -> list[str]:
        """Names of the events about an attempt, in the order they came."""
        return [event.message.name for event in self.about(run)]

    def bodies(self, run: WorkRun, name: str) -> list[Any]:
        """Bodies of one kind of event about an attempt."""
        return [event.body for event in self.about(run) if event.message.name == name]

    def usage(self, run: WorkRun, item: UsageItem = UsageItem.GPU_MS) -> list[UsageRow]:
        """What was measured of an attempt, each sample once, in the order it came."""
        bodies = [event.body for event in self.events if event.message is registry.USAGE_MEASURED]
        rows = [row for body in bodies for row in body.rows if row.item is item]
        mine = [row for row in rows if (row.job_id, row.attempt, row.member) == (run.job_id, run.attempt, run.member)]
        names = {(row.card, row.window_start) for row in mine}
        assert len(names) == len(mine), f"a sample came twice: {mine}"
        return mine

    def hold(self, run: WorkRun) -> tuple[int, int | None]:
        """When the attempt's hold began and ended, as its agent's journal has it."""
        query = "SELECT held_from, held_to FROM holds WHERE job_id = ? AND attempt = ? AND member = ?"
        with closing(sqlite3.connect(self.places().database)) as conn:
            held_from, held_to = conn.execute(query, (run.job_id, run.attempt, run.member)).fetchone()
        return held_from, held_to

    async def saw(self, run: WorkRun, name: str, timeout_s: float = 30.0) -> Any:
        """The first event of that name about the attempt."""
        found = await until(lambda: self.bodies(run, name), timeout_s, f"attempts.{name}; got {self.names(run)}")
        return found[0]

    def key(self, run: WorkRun) -> AttemptKey:
        return AttemptKey(run.job_id, run.attempt, run.member)

    def attempt_folder(self, run: WorkRun) -> Path:
        return self.folder / "state" / "attempts" / run.job_id / f"{run.attempt}-{run.member}"

    def places(self) -> Places:
        env = self.settings()
        return Places(AgentSettings(node=self.node, state_dir=Path(env["FARSIDE_STATE_DIR"])))

    def task_pid(self, run: WorkRun) -> int:
        task = until_sync(lambda: handoff.read_task(self.attempt_folder(run)), 20, "task.json")
        assert task is not None
        return task.process.pid

    def shim_pid(self, run: WorkRun) -> int:
        owner = until_sync(lambda: handoff.read_owner(self.attempt_folder(run)), 20, "shim.json")
        assert owner is not None
        assert owner.shim is not None
        return owner.shim.pid

    def log_text(self, run: WorkRun) -> str:
        """The log of an attempt as it lies in the store."""
        prefix = f"logs/{run.tenant}/{run.job_id}/{run.attempt}/{run.member}/"
        keys = sorted(entry.key for entry in self.store.list(prefix))
        return b"".join(self.store.get(key) for key in keys).decode()

    def about(self, run: WorkRun) -> list[Event[Any]]:
        """All events about an attempt, in the order they came."""
        return [
            event
            for event in self.events
            if isinstance(event.body, AttemptRef)
            and (event.body.job_id, event.body.attempt, event.body.member) == (run.job_id, run.attempt, run.member)
        ]

    async def _read(self, messages: list[registry.Message[Any]]) -> None:
        async for event in self.client.events(messages, key=self.node, since="all"):
            self.events.append(event)

    async def _answer(self, subject: str, reply: Any) -> None:
        async def serve(message: Msg) -> None:
            answer = reply(message.data)
            if answer is not None:
                body: Model = answer
                headers = {"farside-problem": "1"} if isinstance(body, Problem) else None
                await self.client.connection.publish(message.reply, body.model_dump_json().encode(), headers=headers)

        await subscribe(self.client.connection, subject, serve)

    def _on_claim(self, data: bytes) -> ClaimReply | None:
        self.claims.append(ClaimRequest.model_validate_json(data))
        return self.claim_reply

    def _on_restore(self, data: bytes) -> RestoreReply | None:
        self.restores.append(RestoreRequest.model_validate_json(data))
        return self.restore_reply

    def _on_dataset(self, data: bytes) -> Model:
        del data
        return self.dataset or Problem(code=ProblemCode.NOT_FOUND, message="no such dataset")
