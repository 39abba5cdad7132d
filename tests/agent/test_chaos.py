"""The agent is killed again and again while it works; what it tells stays true."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from contracts.attempts import AttemptExited
from contracts.work import WorkRun
from tests.agent.world import World
from tests.waiting import until

KILLS = 8
JOBS = 6
SCRIPT = """
import sys, time
import numpy as np
import libs.sdk as farside

with farside.attach() as job:
    for step in range(1, 61):
        job.progress(step, half=step / 2)
        if step % 20 == 0:
            job.save(step, {"w": np.full(10, step)})
        time.sleep(0.05)
    job.wait_saved(120)
sys.exit(int(job.seed))
"""


@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_at_any_moment_it_starts_once_counts_once_and_ends_once(world: World, seed: int) -> None:
    chance = np.random.default_rng(seed)
    runs = [world.run(script=SCRIPT, seed=number % 2) for number in range(JOBS)]
    agent = world.agent(FARSIDE_USAGE_PERIOD_S="1")
    agent.start()
    for number in range(KILLS):
        if number < JOBS:
            await world.offer(runs[number])
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        agent.kill()
        agent.start()
    for run in runs:
        exited: AttemptExited = await world.saw(run, "exited", 120)
        assert exited.cause in ("completed", "failed", "never_started"), exited
    agent.stop()
    agent.start()
    last = world.run("true")
    await world.offer(last)
    await world.saw(last, "exited")
    await until(lambda: world.usage(last), 20, "its samples, which come after all others")
    for run in runs:
        await _true_account(world, run)


async def _true_account(world: World, run: WorkRun) -> None:
    names = Counter(world.names(run))
    assert names["exited"] == 1
    exited: AttemptExited = world.bodies(run, "exited")[0]
    sequences = [event.sequence for event in world.about(run)]
    assert sequences == list(range(1, len(sequences) + 1)), "nothing lost, nothing twice, all in order"
    await _true_usage(world, run)
    if exited.cause == "never_started":
        assert names["started"] == 0
        return
    assert names["started"] == 1
    assert exited.exit_code == run.spec.seed
    steps = [point.step for body in world.bodies(run, "progressed") for point in body.points]
    assert steps == list(range(1, 61))
    assert [body.step for body in world.bodies(run, "saved")] == [20, 40, 60]
    await until(lambda: not (world.attempt_folder(run) / "ckpt").exists())


async def _true_usage(world: World, run: WorkRun) -> None:
    """Measured by whichever agent lived: nothing twice, and nothing lost since the start of the task."""
    held_from, held_to = world.hold(run)
    assert held_to is not None
    ran_ms = sum(held_to - body.started_at.timestamp() * 1000 for body in world.bodies(run, "started"))
    assert ran_ms <= sum(row.quantity for row in world.usage(run)) <= held_to - held_from
