"""An outage of a minute of any part ends no attempt: not of the bus, the database, the object store or a service.

It is scaled to a tenth; FARSIDE_TEST_OUTAGE_S=60 runs it with the default times themselves, in some ten minutes.
"""

import os
from pathlib import Path

import pytest

from contracts.jobs import CheckpointPolicy, JobKind, JobPhase, Outcome, Resources
from tests.e2e.fleet import TENTH, Fleet, fleet
from tests.waiting import until

OUTAGES = ("nats", "postgres", "seaweed", "inventory", "scheduler", "checkpoint", "transfer", "leaf")
OUTAGE_S = float(os.environ.get("FARSIDE_TEST_OUTAGE_S", "6"))


@pytest.mark.timeout(900)
async def test_outage_of_each_part_ends_no_attempt(tmp_path: Path) -> None:
    async with fleet(tmp_path, TENTH if OUTAGE_S < 60 else {}) as it:
        pace = {"steps": 100_000, "pace_s": 0.1}
        gang = await it.submit(members=2, checkpoint=CheckpointPolicy(interval_steps=20), **pace)
        batch = await it.submit(kind=JobKind.BATCH, checkpoint=None, **pace)
        inference = await it.submit(kind=JobKind.INFERENCE, checkpoint=None, **pace)
        jobs = (gang, batch, inference)
        for job in jobs:
            await it.at_step(job, 5)
        for part in OUTAGES:
            steps = {job: it.lines(job)[-1].step for job in jobs}
            await it.outage(part, OUTAGE_S)
            await back(it, part)
            for job in jobs:
                await it.at_step(job, steps[job] + 10)
                state = await it.job(job)
                assert (state.state, state.attempts) == (JobPhase.RUNNING, 1), f"outage of {part}: {state}"
        for job in jobs:
            await it.cancel(job)
            assert (await it.finished(job)).outcome is Outcome.CANCELLED


async def back(fleet: Fleet, part: str) -> None:
    """Wait until a new job runs to its end: the stack is whole again."""
    await until(lambda: any(it.name == part and it.state == "up" for it in fleet.stack.status()), 60, f"{part} up")
    job = await fleet.submit(steps=3, kind=JobKind.BATCH, resources=Resources(cards=0))
    state = await fleet.finished(job)
    assert state.outcome is Outcome.SUCCEEDED, f"after the outage of {part}: {state}"
