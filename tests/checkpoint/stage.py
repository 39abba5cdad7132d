"""A stage for the checkpoint service: the real service as a process, its servers, and agents played by the test."""

import contextlib
import hashlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from contracts import registry
from contracts.attempts import AttemptSaved, AttemptUnsaved, Binding, Shard
from contracts.base import Tier
from contracts.checkpoints import CheckpointCommitted
from contracts.jobs import AttemptState, DatasetRef, JobKind, JobPhase, JobSpec, JobState, Member
from contracts.registry import Message
from contracts.requests import CheckpointsQuery, CheckpointsReply, ProblemCode, RestoreReply, RestoreRequest
from libs.bus import Client, Problem
from libs.bus.provision import provision
from libs.db import prepare_database, service_dsn
from libs.kit.ids import new_id
from libs.objects import Store, StoreConfig, marker_key, shard_key
from tests.servers import NatsServer, PostgresServer, SeaweedServer
from tests.waiting import until

TENANT = "acme"
NODE = "central-1"
BINDING = Binding(dataset=DatasetRef(name="digits", version="v1"), code_version="a" * 64, seed=7)
STOP_TIMEOUT_S = 15.0
ASKS_LIMIT = 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Service:
    """`python -m services.<name>` with its settings in the environment."""

    def __init__(self, name: str, environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self.environment = environment
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", f"services.{self.name}"]
            self.process = subprocess.Popen(command, env={**os.environ, **self.environment}, stderr=log, stdout=log)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.kill()


@dataclass
class Job:
    """A job that the test plays the agents of."""

    stage: "Stage"
    job_id: str = field(default_factory=new_id)
    members: int = 1
    keep_last: int = 3
    binding: Binding = BINDING
    placed: set[int] = field(default_factory=set[int])

    async def place(self, attempt: int, *, known: bool = True) -> None:
        """`jobs.placed` once for each attempt, all members on NODE; `known`: wait until the service has read it."""
        if attempt not in self.placed:
            self.placed.add(attempt)
            await self.stage.place(self.job_id, attempt, [NODE] * self.members)
        if known:
            await self.stage.until_placed()

    def data(self, attempt: int, step: int, member: int) -> bytes:
        return f"{self.job_id} {attempt} {step} {member} ".encode() * 50

    def shard(self, attempt: int, step: int, member: int = 0, **changes: Any) -> Shard:
        data = self.data(attempt, step, member)
        key = shard_key(TENANT, self.job_id, step, attempt, member)
        uri = self.stage.store.uri(key)
        shard = Shard(member=member, uri=uri, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        return shard.model_copy(update=changes)

    def upload(self, attempt: int, step: int, member: int = 0) -> str:
        key = shard_key(TENANT, self.job_id, step, attempt, member)
        self.stage.store.put(key, self.data(attempt, step, member))
        return key

    async def report(self, attempt: int, step: int, member: int = 0, **changes: Any) -> str:
        """Publish `attempts.saved` of an attempt that is placed; returns its id."""
        if attempt not in self.placed:
            await self.place(attempt)
        body = AttemptSaved(
            job_id=self.job_id,
            tenant=TENANT,
            attempt=attempt,
            member=member,
            node=NODE,
            incarnation=new_id(),
            step=step,
            members=self.members,
            shard=self.shard(attempt, step, member),
            binding=self.binding,
            keep_last=self.keep_last,
            stall_ms=1,
            persist_ms=2,
            saved_at=NOW,
        ).model_copy(update=changes)
        event_id = new_id()
        await self.stage.client.publish(
            registry.ATTEMPTS_SAVED, body, key=body.node, subject=self.job_id, actor="/farside/agent", id=event_id
        )
        return event_id

    async def report_unsaved(self, attempt: int, step: int, member: int = 0, **changes: Any) -> None:
        """Publish `attempts.unsaved` of an attempt that is placed."""
        if attempt not in self.placed:
            await self.place(attempt)
        body = AttemptUnsaved(
            job_id=self.job_id,
            tenant=TENANT,
            attempt=attempt,
            member=member,
            node=NODE,
            incarnation=new_id(),
            step=step,
            message="the store does not answer",
            failed_at=NOW,
        ).model_copy(update=changes)
        await self.stage.client.publish(
            registry.ATTEMPTS_UNSAVED, body, key=body.node, subject=self.job_id, actor="/farside/agent"
        )

    async def save(self, attempt: int, step: int) -> None:
        """All members upload and report."""
        for member in range(self.members):
            self.upload(attempt, step, member)
            await self.report(attempt, step, member)

    async def commit(self, attempt: int, step: int) -> CheckpointCommitted:
        """Save, and wait until it is committed."""
        await self.save(attempt, step)
        return await self.until_committed(attempt, step)

    async def until_committed(self, attempt: int, step: int, timeout_s: float = 20) -> CheckpointCommitted:
        found = await until(lambda: self.committed(attempt, step), timeout_s, f"commit of step {step}")
        assert found is not None
        return found

    async def until_events(self, message: Message[Any], count: int = 1, timeout_s: float = 20) -> list[Any]:
        """Wait for at least `count` events of one kind about this job."""

        async def enough() -> list[Any]:
            found = await self.events(message)
            return found if len(found) >= count else []

        return await until(enough, timeout_s, f"{count} of {message.id}")

    async def committed(self, attempt: int, step: int) -> CheckpointCommitted | None:
        found = [body for body in await self.events(registry.CHECKPOINTS_COMMITTED) if body.step == step]
        return next((body for body in found if body.attempt == attempt), None)

    async def events(self, message: Message[Any]) -> list[Any]:
        """Bodies of all events of one kind about this job."""
        found = await self.stage.client.history([message], key=TENANT)
        return [event.body for event in found if event.body.job_id == self.job_id]

    async def restore(self, attempt: int, member: int = 0, **changes: Any) -> RestoreReply:
        """Ask until there is an answer: a request dies with the service that had taken it."""
        await self.place(attempt)
        for _ in range(ASKS_LIMIT):
            try:
                return await self.ask(attempt, member, **changes)
            except Problem as problem:
                if problem.code is not ProblemCode.UNAVAILABLE:
                    raise
        msg = f"no answer to the restore of attempt {attempt} in {ASKS_LIMIT} tries"
        raise AssertionError(msg)

    async def ask(self, attempt: int, member: int = 0, timeout_s: float = 5, **changes: Any) -> RestoreReply:
        await self.place(attempt, known=False)
        request = RestoreRequest(
            job_id=self.job_id,
            tenant=TENANT,
            attempt=attempt,
            member=member,
            members=self.members,
            node=NODE,
            binding=self.binding,
        ).model_copy(update=changes)
        return await self.stage.client.request(registry.CALL_RESTORE, request, key=request.node, timeout_s=timeout_s)

    async def listed(self) -> CheckpointsReply:
        query = CheckpointsQuery(job_id=self.job_id)
        return await self.stage.client.request(registry.QUERY_CHECKPOINTS, query, key=TENANT, timeout_s=20)

    def marker(self, step: int) -> str:
        return marker_key(TENANT, self.job_id, step)

    def objects(self) -> list[str]:
        return [item.key for item in self.stage.store.list(f"checkpoints/{TENANT}/{self.job_id}/")]


@dataclass
class Stage:
    """Everything that a test of this service needs."""

    nats: NatsServer
    postgres: PostgresServer
    s3: SeaweedServer
    client: Client
    store: Store
    service: Service
    dsn: str

    def job(self, **settings: Any) -> Job:
        return Job(self, **settings)

    async def place(
        self,
        job_id: str,
        attempt: int,
        nodes: Sequence[str],
        *,
        tenant: str = TENANT,
        dataset: DatasetRef | None = None,
    ) -> None:
        """`jobs.placed`, as the scheduler says it: one node for each member."""
        spec = JobSpec(
            job_id=job_id,
            tenant=tenant,
            name="train",
            kind=JobKind.TRAINING,
            command=["true"],
            max_runtime_s=60,
            members=len(nodes),
            dataset=dataset,
        )
        seats = [Member(index=index, node=node, tier=Tier.CENTRAL, cards=[]) for index, node in enumerate(nodes)]
        state = JobState(
            job_id=job_id,
            tenant=tenant,
            spec=spec,
            version=attempt,
            state=JobPhase.PLACED,
            attempt=AttemptState(number=attempt, generation=attempt, members=seats),
            submitted_at=NOW,
            updated_at=NOW,
        )
        await self.client.publish(
            registry.JOBS_PLACED, state, key=tenant, subject=job_id, sequence=attempt, actor="/farside/scheduler"
        )

    async def until_placed(self) -> None:
        """Wait until the service has read all placements."""

        async def read() -> bool:
            info = await self.client.js.consumer_info(registry.JOBS.name, f"{self.service.name}-jobs-placed")
            return info.num_pending == 0 and info.num_ack_pending == 0

        await until(read, 60, "the placements to be read")

    def log(self) -> str:
        return self.service.log.read_text()

    def restart(self) -> None:
        self.service.stop()
        self.service.start()


@asynccontextmanager
async def open_stage(
    name: str,
    nats: NatsServer,
    postgres: PostgresServer,
    s3: SeaweedServer,
    folder: Path,
    *,
    endpoint: str | None = None,
    **settings: str,
) -> AsyncGenerator[Stage, None]:
    """Prepare servers and start the service `name`; `endpoint` may be a proxy's in front of the store."""
    database = postgres.create_database()
    password = secrets.token_hex(8)
    await prepare_database(database, {name: password})
    bucket = f"stage-{secrets.token_hex(4)}"
    dsn = service_dsn(database, name, password)
    environment = {
        "FARSIDE_NATS_URL": nats.url,
        "FARSIDE_PG_DSN": dsn,
        "FARSIDE_S3_ENDPOINT": endpoint or s3.endpoint,
        "FARSIDE_S3_ACCESS_KEY": s3.access_key,
        "FARSIDE_S3_SECRET_KEY": s3.secret_key,
        "FARSIDE_S3_BUCKET": bucket,
        **settings,
    }
    await provision(nats.url)
    store = Store(StoreConfig(s3.endpoint, s3.access_key, SecretStr(s3.secret_key), bucket))
    store.wait_ready("probes/stage", 60)
    service = Service(name, environment, folder)
    service.start()
    try:
        async with await Client.connect(nats.url, name="agent-test") as client:
            yield Stage(nats, postgres, s3, client, store, service, dsn)
    finally:
        service.stop()
        store.close()
