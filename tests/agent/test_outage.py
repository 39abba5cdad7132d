"""Hub and store go away, for shorter and for longer than an attempt can bear."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from contracts.attempts import AttemptExited
from contracts.work import WorkRun
from libs.objects import Store, StoreConfig
from services.agent import handoff, proctree
from tests.agent.world import World
from tests.servers import NatsServer, SeaweedServer
from tests.waiting import until

SAVING = """
import sys, time
from pathlib import Path
import numpy as np
import libs.sdk as farside

with farside.attach() as job:
    for step in range(1, int(sys.argv[1]) + 1):
        while not Path(f"go{step}").exists():
            time.sleep(0.02)
        job.progress(step)
        job.save(step, {"w": np.full(1000, step)})
        Path(f"saved{step}").touch()
    job.wait_saved(120)
"""


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[World]:
    """A world whose hub and store the test may end."""
    with NatsServer() as nats, SeaweedServer() as s3:
        store = Store(StoreConfig(s3.endpoint, s3.access_key, SecretStr(s3.secret_key)))
        store.wait_ready("probe/agent", 60.0)
        async with World(tmp_path, nats, s3, store) as world:
            yield world
        store.close()


def allow(world: World, run: WorkRun, step: int) -> Path:
    """Let the script go on to `step`; the file it makes when it has saved."""
    work = world.attempt_folder(run) / "work"
    (work / f"go{step}").touch()
    return work / f"saved{step}"


async def test_a_store_that_is_away_delays_saves_and_ends_nothing(own: World) -> None:
    run = own.run("python", "job.py", "5", script=SAVING, hang_timeout_s=2)
    own.agent(FARSIDE_PENDING_SAVES="2").start()
    await own.offer(run)
    await own.saw(run, "started")
    await until(allow(own, run, 1).exists, 20)
    await own.saw(run, "saved")
    own.s3.kill()
    for step in (2, 3, 4):
        await until(allow(own, run, step).exists, 20)
    waiting = allow(own, run, 5)
    log = own.folder / "agent.log"
    await until(lambda: log.read_text().count("save.retried") >= 3, 40)
    assert not waiting.exists(), "the task waits once two files are pending, the third is under way to the agent"
    assert len(own.bodies(run, "saved")) == 1
    own.s3.start()
    exited: AttemptExited = await own.saw(run, "exited", 90)
    assert (exited.cause, exited.exit_code) == ("completed", 0)
    assert [body.step for body in own.bodies(run, "saved")] == [1, 2, 3, 4, 5]
    unsaved = [body.step for body in own.bodies(run, "unsaved")]
    assert unsaved[0] == 2
    assert len(set(unsaved)) == len(unsaved), "a failed save is told once a step, however often it is tried"
    assert own.names(run).index("unsaved") < [n for n, name in enumerate(own.names(run)) if name == "saved"][1]
    assert "hung" not in own.names(run), "a task that waits for its store is not silent"


async def test_a_store_that_stays_away_does_not_hold_the_exit_for_ever(own: World) -> None:
    run = own.run("sh", "-c", "echo hello")
    own.agent(FARSIDE_DRAIN_S="2").start()
    await own.offer(run)
    own.s3.kill()
    exited: AttemptExited = await own.saw(run, "exited", 60)
    assert exited.cause == "completed"


async def test_a_hub_that_is_away_for_less_than_the_lease_ends_nothing(own: World) -> None:
    """Not even when the agent dies meanwhile: the next one minds the attempt without the hub."""
    run = own.run("python", "job.py", "2", script=SAVING)
    agent = own.agent()
    agent.start()
    await own.offer(run)
    await own.saw(run, "started")
    pid = own.task_pid(run)
    own.nats.kill()
    agent.kill()
    agent.start()
    await until(allow(own, run, 1).exists, 20)
    key = f"checkpoints/acme/{run.job_id}/{1:012d}/a000001/shard-00000.safetensors"
    await until(lambda: own.store.list(key), 30, "the shard to be stored without the hub")
    assert proctree.start_of(pid) is not None
    own.nats.start()
    await own.provision()
    await until(allow(own, run, 2).exists, 20)
    exited: AttemptExited = await own.saw(run, "exited", 60)
    assert exited.cause == "completed"
    names = own.names(run)
    assert names.count("saved") == 2
    assert [event.sequence for event in own.events if event.message.domain == "attempts"] == list(
        range(1, len(names) + 1)
    )


async def test_a_hub_that_is_away_for_longer_than_the_lease_ends_the_attempt(own: World) -> None:
    run = own.run("sleep", "300", stop_grace_s=1)
    own.agent(FARSIDE_LEASE_S="3", FARSIDE_LOST_S="4").start()
    await own.offer(run)
    await own.saw(run, "started")
    pid = own.task_pid(run)
    own.nats.kill()
    await until(lambda: proctree.start_of(pid) is None, 10)
    lease = handoff.read_lease(own.places().lease)
    assert lease is not None
    assert proctree.boottime() < lease.deadline
    own.nats.start()
    await own.provision()
    exited: AttemptExited = await own.saw(run, "exited", 60)
    assert exited.cause == "lease_expired"
