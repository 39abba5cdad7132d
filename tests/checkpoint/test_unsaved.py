"""A save that cannot be brought to the store, or not be committed, is told at once, and once."""

import asyncio
import http.client
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from contracts import registry
from contracts.checkpoints import CheckpointFailed, CheckpointFailure
from deploy.local.ports import free_port
from tests.checkpoint.stage import Job, Stage, open_stage
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
    folder: Path = tmp_path_factory.mktemp("unsaved")
    settings = {"FARSIDE_METRICS_PORT": str(free_port())}
    async with open_stage("checkpoint", hub, postgres, s3, folder, endpoint=proxy.endpoint, **settings) as made:
        yield made


async def told(job: Job) -> list[tuple[int, int]]:
    """Attempt and step of each failure of the store that was told."""
    failed: list[CheckpointFailed] = await job.events(registry.CHECKPOINTS_FAILED)
    assert {body.cause for body in failed} <= {CheckpointFailure.STORE_UNAVAILABLE}
    return [(body.attempt, body.step) for body in failed]


def scrape(stage: Stage) -> dict[str, float]:
    """The service's counters, as Prometheus reads them."""
    port = int(stage.service.environment["FARSIDE_METRICS_PORT"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    samples = [line.rpartition(" ") for line in lines if line.startswith("farside_checkpoint_")]
    return {name.partition("{")[0]: float(value) for name, _, value in samples}


async def test_c8_a_save_that_cannot_be_uploaded_is_told_once_and_committed_later(stage: Stage) -> None:
    job = stage.job(members=2)
    job.upload(1, 10, 0)
    await job.report(1, 10, 0)
    await job.report_unsaved(1, 10, 1)
    await job.report_unsaved(1, 10, 0)
    await job.report_unsaved(1, 20, 1)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED, 2)
    assert await told(job) == [(1, 10), (1, 20)]
    assert failed[0].message.startswith("member 1 on node central-1: the store does not answer")
    assert "tried on by itself" in failed[0].message
    job.upload(1, 10, 1)
    await job.report(1, 10, 1)
    await job.until_committed(1, 10)
    await job.commit(1, 20)
    await job.report_unsaved(1, 20, 1)
    await job.report_unsaved(1, 30)
    await job.until_events(registry.CHECKPOINTS_FAILED, 3)
    assert await told(job) == [(1, 10), (1, 20), (1, 30)], "a save that is committed is in no trouble any more"


async def test_nothing_is_told_of_an_attempt_that_may_not_commit(stage: Stage) -> None:
    job = stage.job()
    await job.restore(2)
    await job.report_unsaved(1, 10)
    await job.report_unsaved(2, 10)
    await job.until_events(registry.CHECKPOINTS_FAILED)
    assert await told(job) == [(2, 10)]


async def test_another_tenants_job_is_refused(stage: Stage) -> None:
    job = stage.job()
    await job.commit(1, 10)
    await job.report_unsaved(1, 20, tenant="other")

    async def buried() -> list[str]:
        letters = await stage.client.history([registry.DEADLETTERED])
        return [letter.body.message for letter in letters if job.job_id in letter.body.message]

    [words] = await until(buried, 20, "the dead letter")
    assert "belongs to tenant acme" in words
    assert await told(job) == []


async def test_c8_a_commit_that_fails_is_told_at_the_first_failure(stage: Stage, proxy: S3Proxy) -> None:
    job = stage.job()
    job.upload(1, 10)
    proxy.away = True
    await job.report(1, 10)
    await job.until_events(registry.CHECKPOINTS_FAILED, timeout_s=60)
    proxy.away = False
    await job.until_committed(1, 10, 60)
    assert await told(job) == [(1, 10)]


async def test_c8_success_and_throughput_are_metrics(stage: Stage) -> None:
    before = await asyncio.to_thread(scrape, stage)
    job = stage.job()
    event = await job.commit(1, 10)
    await job.report_unsaved(1, 20)
    await job.until_events(registry.CHECKPOINTS_FAILED)

    async def counted() -> bool:
        now = await asyncio.to_thread(scrape, stage)
        more = {name: value - before.get(name, 0.0) for name, value in now.items()}
        return (
            more["farside_checkpoint_committed_total"] == 1
            and more["farside_checkpoint_committed_bytes_total"] == event.size_bytes
            and more["farside_checkpoint_failed_total"] == 1
        )

    await until(counted, 10, "the counters to show it")
