"""PostgreSQL or the bus away for a while: saves and restores wait, nothing is lost, the process lives on."""

from pathlib import Path

import pytest

from contracts import registry
from contracts.requests import ProblemCode
from libs.bus import Problem
from tests.checkpoint.stage import open_stage
from tests.servers import NatsServer, PostgresServer, SeaweedServer
from tests.waiting import until


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_postgresql_away(s3: SeaweedServer, tmp_path: Path, how: str) -> None:
    with NatsServer() as nats, PostgresServer(settings=()) as postgres:
        async with open_stage("checkpoint", nats, postgres, s3, tmp_path) as stage:
            job = stage.job()
            await job.commit(1, 10)
            if how == "stopped":
                postgres.stop()
            else:
                postgres.kill()
            await job.save(1, 20)
            with pytest.raises(Problem) as problem:
                await job.ask(2, timeout_s=2)
            assert problem.value.code is ProblemCode.UNAVAILABLE
            assert await job.committed(1, 20) is None
            postgres.start()
            await job.until_committed(1, 20, 60)
            assert (await job.restore(2)).step == 20
            assert stage.service.process is not None
            assert stage.service.process.poll() is None
            assert await stage.client.history([registry.DEADLETTERED]) == []


async def test_the_bus_away(postgres: PostgresServer, s3: SeaweedServer, tmp_path: Path) -> None:
    with NatsServer() as nats:
        async with open_stage("checkpoint", nats, postgres, s3, tmp_path) as stage:
            job = stage.job()
            await job.commit(1, 10)
            job.upload(1, 20)
            await job.report(1, 20)
            nats.kill()
            nats.start()
            await until(lambda: stage.client.connection.is_connected, 30)
            await job.until_committed(1, 20, 60)
            assert (await job.restore(2)).step == 20
            assert [body.step for body in await job.events(registry.CHECKPOINTS_COMMITTED)] == [10, 20]
