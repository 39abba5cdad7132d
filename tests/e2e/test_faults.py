"""Jobs outlive what is done to the machines under them: killed and frozen agents, cut links, lost gang members.

The lease is scaled down to seconds; each test has the whole stack to itself.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest

from contracts.jobs import JobKind, JobPhase, Outcome, Resources
from contracts.nodes import NodePhase
from deploy.local.ports import choose_ports
from tests.e2e.fleet import SHORT, TENTH, Fleet, fleet, one_at_a_time
from tests.e2e.link import Link
from tests.waiting import until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with fleet(tmp_path, SHORT) as it:
        yield it


async def placed_on(fleet: Fleet, job_id: str) -> str:
    state = await fleet.until(job_id, lambda job: job.state is JobPhase.RUNNING, what="the job to run")
    assert state.attempt is not None
    return state.attempt.members[0].node


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with fleet(tmp_path, TENTH) as it:
        yield it


async def test_agent_killed_alone_adopts_its_attempt(patient: Fleet) -> None:
    job = await patient.submit(steps=80)
    node = await placed_on(patient, job)
    await patient.at_step(job, 10)
    task = patient.task_pid(job)
    before = patient.stack.pid(node)
    os.kill(before, signal.SIGKILL)

    state = await patient.finished(job)

    assert patient.stack.pid(node) != before
    assert state.outcome is Outcome.SUCCEEDED
    assert (state.attempts, state.losses) == (1, 0)
    assert {line.pid for line in patient.lines(job)} == {task}
    assert [line.step for line in patient.lines(job)] == list(range(1, 81))


async def test_agent_frozen_past_its_lease_is_dead_before_the_next_attempt(running: Fleet) -> None:
    job = await running.submit(steps=150)
    node = await placed_on(running, job)
    await running.at_step(job, 10)
    agent = running.stack.pid(node)
    task = running.task_pid(job)
    os.kill(agent, signal.SIGSTOP)
    try:
        await running.at_step(job, 1, attempt=2)
        assert not psutil.pid_exists(task)
    finally:
        os.kill(agent, signal.SIGCONT)

    state = await running.finished(job)

    assert state.outcome is Outcome.SUCCEEDED
    assert (state.attempts, state.losses) == (2, 1)
    assert one_at_a_time(running.lines(job))
    await running.node_is(node, NodePhase.READY)


async def test_node_killed_whole_is_replaced_and_training_goes_on(running: Fleet) -> None:
    job = await running.submit(steps=60)
    node = await placed_on(running, job)
    await running.at_step(job, 12)
    running.stack.hold(node)
    shim = psutil.Process(running.task_pid(job)).ppid()
    for pid in (running.stack.pid(node), shim, running.task_pid(job)):
        os.kill(pid, signal.SIGKILL)

    await running.node_is(node, NodePhase.LOST)
    state = await running.finished(job)

    assert state.outcome is Outcome.SUCCEEDED
    assert state.attempts == 2
    lines = running.lines(job)
    assert one_at_a_time(lines)
    resumed = min(line.step for line in lines if line.attempt == 2)
    assert resumed > 1, "attempt 2 began anew"
    assert resumed <= max(line.step for line in lines if line.attempt == 1) + 1


async def test_gang_ends_and_resumes_as_one(running: Fleet) -> None:
    job = await running.submit(steps=60, members=2, resources=Resources(cards=2), retries=1)
    state = await running.until(job, lambda it: it.state is JobPhase.RUNNING, what="the gang to run")
    assert state.attempt is not None
    assert {member.node for member in state.attempt.members} == {"central-1", "central-2"}
    await running.at_step(job, 12)
    leader = running.task_pid(job, member=0)
    os.kill(running.task_pid(job, member=1), signal.SIGKILL)

    state = await running.finished(job)

    assert state.outcome is Outcome.SUCCEEDED
    assert (state.attempts, state.failures) == (2, 1)
    assert not psutil.pid_exists(leader)
    lines = running.lines(job)
    assert one_at_a_time(lines)
    starts = {min(it.step for it in lines if it.attempt == 2 and it.member == member) for member in (0, 1)}
    assert len(starts) == 1, f"the members resumed from different steps: {starts}"
    assert starts != {1}


async def test_cancel_races_placement(running: Fleet) -> None:
    jobs: list[str] = []
    for number in range(12):
        job = await running.submit(steps=600, kind=JobKind.TRAINING)
        jobs.append(job)
        await asyncio.sleep(0.02 * number)
        await running.cancel(job)

    for job in jobs:
        state = await running.finished(job)
        assert state.outcome is Outcome.CANCELLED
    pids = {line.pid for job in jobs for line in running.lines(job)}
    await until(lambda: not any(psutil.pid_exists(pid) for pid in pids), 20, "every task to be gone")
    last = await running.submit(steps=5, members=2, resources=Resources(cards=2))
    assert (await running.finished(last)).outcome is Outcome.SUCCEEDED, "cards are still held"


async def test_cancel_before_submit_is_kept(running: Fleet) -> None:
    spec = running.spec("01939d00-0000-7000-8000-000000000001", steps=600)
    await running.cancel(spec.job_id)
    await running.submit_spec(spec)
    assert (await running.finished(spec.job_id)).outcome is Outcome.CANCELLED
    assert running.lines(spec.job_id) == []


async def behind_link(folder: Path, timings: dict[str, str]) -> AsyncGenerator[tuple[Fleet, Link]]:
    port = choose_ports({}, {})["nats-leafnodes"]
    async with (
        Link(port) as link,
        fleet(folder, timings, ports={"nats-leafnodes": port}, leaf_remote_port=link.port) as it,
    ):
        yield it, link


@pytest.fixture
async def remote(tmp_path: Path) -> AsyncGenerator[tuple[Fleet, Link]]:
    async for pair in behind_link(tmp_path, SHORT):
        yield pair


async def test_link_cut_for_less_than_the_lease_ends_nothing(remote: tuple[Fleet, Link]) -> None:
    fleet, link = remote
    job = await fleet.submit(steps=100, kind=JobKind.BATCH)
    node = await placed_on(fleet, job)
    assert node.startswith("remote-")
    await fleet.at_step(job, 5)
    link.cut()
    await fleet.node_is(node, NodePhase.SUSPECT)
    await link.mend()

    await fleet.node_is(node, NodePhase.READY)
    state = await fleet.finished(job)

    assert state.outcome is Outcome.SUCCEEDED
    assert (state.attempts, state.losses) == (1, 0)
    assert state.attempt is not None
    assert state.attempt.progress_step == 100, "a cut link lost progress"


async def test_link_cut_for_longer_than_the_lease_never_runs_two(remote: tuple[Fleet, Link]) -> None:
    fleet, link = remote
    job = await fleet.submit(steps=150, kind=JobKind.BATCH)
    node = await placed_on(fleet, job)
    await fleet.at_step(job, 5)
    link.cut()
    await fleet.node_is(node, NodePhase.LOST)
    task = fleet.task_pid(job)
    assert not psutil.pid_exists(task), "the task outlived the lease"
    await link.mend()

    state = await fleet.finished(job)

    assert state.outcome is Outcome.SUCCEEDED
    assert state.attempts == 2
    assert one_at_a_time(fleet.lines(job))
