"""SIGKILL of the service at every step of the publish protocol, held there by a proxy in front of the store.

Wherever it dies, the checkpoint before stays restorable, and the new one is committed once.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

from contracts import registry
from tests.checkpoint.stage import Stage, open_stage
from tests.objects.proxy import S3Proxy
from tests.servers import NatsServer, PostgresServer, SeaweedServer
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(
    hub: NatsServer,
    postgres: PostgresServer,
    s3: SeaweedServer,
    proxy: S3Proxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Stage, None]:
    folder: Path = tmp_path_factory.mktemp("kill")
    async with open_stage("checkpoint", hub, postgres, s3, folder, endpoint=proxy.endpoint) as made:
        yield made


@dataclass(frozen=True)
class Step:
    """A request of the service to the store, and the side of the store on which it is held."""

    name: str
    method: str
    path: str
    side: Literal["before", "after"]


COMMIT_STEPS = [
    Step("before the shards are looked at", "GET", "prefix=checkpoints/acme/{job}/000000000020/", "before"),
    Step("before the marker is written", "PUT", "{job}/000000000020/COMMIT.json", "before"),
    Step("after the marker is written, its answer lost", "PUT", "{job}/000000000020/COMMIT.json", "after"),
    Step("before the marker is read back", "GET", "{job}/000000000020/COMMIT.json", "before"),
    Step("after the marker is read back", "GET", "{job}/000000000020/COMMIT.json", "after"),
]
EXPIRE_STEPS = [
    Step("before the old marker is removed", "DELETE", "{job}/000000000010/COMMIT.json", "before"),
    Step("after the old marker is removed", "DELETE", "{job}/000000000010/COMMIT.json", "after"),
    Step("before the old shards are removed", "POST", "?delete", "before"),
    Step("after the old shards are removed", "POST", "?delete", "after"),
]


@pytest.mark.parametrize("step", COMMIT_STEPS, ids=lambda step: step.name)
async def test_killed_in_a_commit(stage: Stage, proxy: S3Proxy, step: Step) -> None:
    job = stage.job()
    await job.commit(1, 10)
    gate = proxy.gate(step.method, step.path.format(job=job.job_id), step.side)
    await job.save(1, 20)
    await until(gate.reached.is_set, 20, step.name)
    stage.service.kill()
    assert await job.committed(1, 20) is None
    assert stage.store.get(job.marker(10))
    gate.open()
    stage.service.start()
    await job.until_committed(1, 20, 30)
    reply = await job.restore(2)
    assert (reply.granted, reply.step) == (True, 20)
    assert [body.step for body in await job.events(registry.CHECKPOINTS_COMMITTED)] == [10, 20]
    assert await job.events(registry.CHECKPOINTS_FAILED) == []


@pytest.mark.parametrize("step", COMMIT_STEPS, ids=lambda step: step.name)
async def test_killed_in_a_commit_and_restored_by_a_newer_attempt(stage: Stage, proxy: S3Proxy, step: Step) -> None:
    """The restore is the first thing that the restarted service hears: it must not overlook the half commit."""
    job = stage.job()
    await job.commit(1, 10)
    gate = proxy.gate(step.method, step.path.format(job=job.job_id), step.side)
    await job.save(1, 20)
    await until(gate.reached.is_set, 20, step.name)
    stage.service.kill()
    gate.open()
    stage.service.start()
    reply = await job.restore(2)
    assert (reply.granted, reply.step, reply.from_attempt) == (True, 20, 1)
    await job.commit(2, 30)
    assert [body.step for body in await job.events(registry.CHECKPOINTS_COMMITTED)] == [10, 20, 30]


@pytest.mark.parametrize("step", EXPIRE_STEPS, ids=lambda step: step.name)
async def test_killed_in_a_rotation(stage: Stage, proxy: S3Proxy, step: Step) -> None:
    job = stage.job(keep_last=1)
    await job.commit(1, 10)
    gate = proxy.gate(step.method, step.path.format(job=job.job_id), step.side)
    await job.commit(1, 20)
    await until(gate.reached.is_set, 20, step.name)
    stage.service.kill()
    left = [key for key in job.objects() if "/000000000010/" in key]
    assert job.marker(10) not in left or len(left) == 2, "a marker never names shards that are gone"
    gate.open()
    stage.service.start()
    reply = await job.restore(2)
    assert (reply.granted, reply.step) == (True, 20)
    await job.until_events(registry.CHECKPOINTS_EXPIRED, timeout_s=30)
    await until(lambda: len(job.objects()) == 2, 20, "the old objects to be gone")
    assert [body.step for body in await job.events(registry.CHECKPOINTS_EXPIRED)] == [10]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_killed_while_a_restore_verifies(stage: Stage, proxy: S3Proxy, side: Literal["before", "after"]) -> None:
    job = stage.job()
    await job.commit(1, 10)
    gate = proxy.gate("GET", f"{job.job_id}/000000000010/a000001/shard", side)
    pending = asyncio.create_task(job.restore(2))
    await until(gate.reached.is_set, 20, "the restore to read the shard")
    stage.service.kill()
    gate.open()
    stage.service.start()
    reply = await pending
    assert (reply.granted, reply.step) == (True, 10)
    await job.save(1, 20)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED)
    assert [body.cause.value for body in failed] == ["fenced"]


async def test_a_half_saved_checkpoint_is_never_seen(stage: Stage) -> None:
    """One of two members has died: nothing of that step is ever restored."""
    job = stage.job(members=2)
    await job.commit(1, 10)
    job.upload(1, 20, 0)
    await job.report(1, 20, 0)
    job.upload(1, 20, 1)
    stage.service.kill()
    stage.service.start()
    reply = await job.restore(2)
    assert (reply.granted, reply.step) == (True, 10)
    assert [one.step for one in (await job.listed()).checkpoints] == [10]
