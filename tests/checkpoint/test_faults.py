"""The store away, writes and deletes that land late, two processes at once, orphans."""

import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from contracts import registry
from contracts.base import Utc
from contracts.checkpoints import CheckpointFailure
from contracts.jobs import JobKind, JobPhase, JobSpec, JobState, Outcome
from contracts.requests import ProblemCode
from libs.bus import Problem
from libs.objects import shard_key
from services.checkpoint.core.marker import Marker
from tests.checkpoint.stage import NOW, TENANT, Job, Service, Stage, open_stage
from tests.objects.proxy import S3Proxy
from tests.servers import NatsServer, PostgresServer, SeaweedServer
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = {
    "FARSIDE_CHECKPOINT_RETRY_FIRST_S": "0.2",
    "FARSIDE_CHECKPOINT_RETRY_CAP_S": "0.5",
    "FARSIDE_CHECKPOINT_ALERT_AFTER_S": "0.5",
    "FARSIDE_CHECKPOINT_ORPHAN_AFTER_S": "1",
    "FARSIDE_CHECKPOINT_POLL_S": "0.2",
    "FARSIDE_CHECKPOINT_UNREADABLE_S": "2",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(
    hub: NatsServer,
    postgres: PostgresServer,
    s3: SeaweedServer,
    proxy: S3Proxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Stage, None]:
    folder: Path = tmp_path_factory.mktemp("faults")
    async with open_stage("checkpoint", hub, postgres, s3, folder, endpoint=proxy.endpoint, **SETTINGS) as made:
        yield made


async def finish(job: Job, at: Utc = NOW) -> None:
    spec = JobSpec(
        job_id=job.job_id, tenant=TENANT, name="train", kind=JobKind.TRAINING, command=["true"], max_runtime_s=60
    )
    state = JobState(
        job_id=job.job_id,
        tenant=TENANT,
        spec=spec,
        version=9,
        state=JobPhase.FINISHED,
        outcome=Outcome.SUCCEEDED,
        submitted_at=at,
        updated_at=at,
    )
    await job.stage.client.publish(
        registry.JOBS_FINISHED, state, key=TENANT, subject=job.job_id, sequence=9, actor="/farside/scheduler"
    )


async def test_c8_a_save_waits_for_a_store_that_is_away_and_is_committed_by_itself(
    stage: Stage, proxy: S3Proxy
) -> None:
    job = stage.job()
    await job.commit(1, 10)
    letters = len(await stage.client.history([registry.DEADLETTERED]))
    proxy.away = True
    await job.save(1, 20)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED, timeout_s=60)
    assert [(body.cause, body.step) for body in failed] == [(CheckpointFailure.STORE_UNAVAILABLE, 20)]
    assert "tried on by itself" in failed[0].message
    with pytest.raises(Problem) as problem:
        await job.ask(2, timeout_s=20)
    assert problem.value.code is ProblemCode.UNAVAILABLE
    assert (await job.listed()).fence == 2
    proxy.away = False
    await job.until_committed(1, 20, 60)
    assert (await job.restore(2)).step == 20
    assert len(await job.events(registry.CHECKPOINTS_FAILED)) == 1
    assert len(await stage.client.history([registry.DEADLETTERED])) == letters


async def test_tc25_a_marker_whose_answer_was_lost_is_known_as_ones_own(stage: Stage, proxy: S3Proxy) -> None:
    job = stage.job()
    gate = proxy.gate("PUT", f"{job.job_id}/000000000010/COMMIT.json", "after", once=True)
    await job.save(1, 10)
    await until(gate.reached.is_set, 20)
    proxy.away = True
    gate.open()
    proxy.away = False
    await job.until_committed(1, 10, 60)
    assert await job.events(registry.CHECKPOINTS_FAILED) == []


async def test_tc21_a_marker_that_lands_after_its_checkpoint_has_expired_is_not_believed(
    stage: Stage, proxy: S3Proxy
) -> None:
    job = stage.job(keep_last=1)
    gate = proxy.gate("PUT", f"{job.job_id}/000000000010/COMMIT.json", "before", once=True)
    await job.save(1, 10)
    await until(gate.reached.is_set, 20)
    stage.service.kill()
    stage.service.start()
    await job.until_committed(1, 10, 30)
    await job.commit(1, 20)
    await job.until_events(registry.CHECKPOINTS_EXPIRED)
    gate.open()
    await until(lambda: job.marker(10) in job.objects(), 20, "the late marker to land")
    reply = await job.restore(2)
    assert (reply.granted, reply.step) == (True, 20)


async def test_tc21_a_delete_that_lands_late_spares_the_marker_that_came_after(stage: Stage, proxy: S3Proxy) -> None:
    job = stage.job()
    await job.commit(1, 10)
    await job.commit(1, 20)
    stage.store.delete([shard_key(TENANT, job.job_id, 20, 1, 0)])
    gate = proxy.gate("DELETE", f"{job.job_id}/000000000020/COMMIT.json", "before", once=True)
    assert (await job.restore(2)).step == 10
    await until(gate.reached.is_set, 20)
    stage.service.kill()
    stage.service.start()
    await job.commit(2, 20)
    seen = len(proxy.answered("DELETE", f"{job.job_id}/000000000020/COMMIT.json"))
    gate.open()
    await until(lambda: len(proxy.answered("DELETE", f"{job.job_id}/000000000020/COMMIT.json")) > seen, 20)
    assert Marker.model_validate_json(stage.store.get(job.marker(20))).attempt == 2
    assert (await job.restore(3)).step == 20


async def test_tc21_a_process_that_slept_does_nothing_once_another_one_leads(
    stage: Stage, proxy: S3Proxy, tmp_path: Path
) -> None:
    job = stage.job()
    await job.commit(1, 10)
    gate = proxy.gate("PUT", f"{job.job_id}/000000000020/COMMIT.json", "after", once=True)
    await job.save(1, 20)
    await until(gate.reached.is_set, 20)
    sleeper = stage.service
    sleeper.send(signal.SIGSTOP)
    stage.postgres.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'checkpoint'")
    second = Service("checkpoint", sleeper.environment, tmp_path)
    second.start()
    try:
        assert (await job.restore(2)).step == 20
        gate.open()
        sleeper.send(signal.SIGCONT)
        await until(lambda: "app.leadership_lost" in sleeper.log.read_text(), 30)
        await job.commit(2, 30)
        assert [body.step for body in await job.events(registry.CHECKPOINTS_COMMITTED)] == [10, 20, 30]
        assert await job.events(registry.CHECKPOINTS_FAILED) == []
    finally:
        second.stop()
    assert (await job.restore(3)).step == 30
    assert sleeper.process is not None
    assert sleeper.process.poll() is None
    os.kill(sleeper.process.pid, 0)


async def test_orphan_shards_of_a_fenced_attempt_are_removed_and_no_others(stage: Stage) -> None:
    job = stage.job(members=2)
    await job.commit(1, 10)
    orphans = [job.upload(1, 20, 0), job.upload(1, 20, 1)]
    await job.report(1, 20, 0)
    other = stage.job()
    spared = other.upload(1, 20)
    await job.restore(2)
    own = job.upload(2, 20, 0)
    await until(lambda: not set(orphans) & set(job.objects()), 30, "the orphans to be removed")
    assert own in job.objects()
    assert spared in other.objects()
    assert (await job.restore(3)).step == 10


async def test_a_save_that_never_became_complete_is_told_once_the_job_is_over(stage: Stage) -> None:
    job = stage.job(members=2)
    await job.commit(1, 10)
    job.upload(1, 20, 1)
    await job.report(1, 20, 1)
    await finish(job)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED, timeout_s=30)
    assert [(body.cause, body.step) for body in failed] == [(CheckpointFailure.MISSING_SHARD, 20)]
    assert "1 of 2 members saved, member 0 never reported" in failed[0].message
    await until(lambda: len(job.objects()) == 3, 30, "the orphan to be removed")
    assert [one.step for one in (await job.listed()).checkpoints] == [10]


async def test_a_checkpoint_unreadable_for_long_is_passed_over(stage: Stage, proxy: S3Proxy) -> None:
    """The store answers, but not for one object: its chunk is lost, say. The older checkpoint is better than none."""
    job = stage.job()
    await job.commit(1, 10)
    await job.commit(1, 20)
    proxy.broken.append(f"{job.job_id}/000000000020/a000001/shard")
    reply = await job.restore(2)
    assert (reply.granted, reply.step) == (True, 10)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED)
    assert "cannot be read" in failed[0].message
