"""The agent, its shims and its machine fail in every way; no attempt runs twice and none is forgotten."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

from contracts.attempts import AttemptExited
from contracts.requests import ClaimReply
from contracts.work import WorkRun
from libs.bus import SqliteLedger
from libs.kit.clock import SystemClock
from services.agent import handoff, proctree, store
from services.agent.core.model import Attempt, AttemptKey, Phase
from services.agent.executor import IMPORT_ROOT
from services.agent.handoff import Owner
from tests.agent.world import World
from tests.waiting import until

COUNTING = """
import time
from pathlib import Path
import libs.sdk as farside

with farside.attach() as job:
    step = 0
    while not Path("finish").exists():
        step += 1
        job.progress(step)
        time.sleep(0.01)
    job.progress(step + 1, last=1)
"""
LEASE = {"FARSIDE_LEASE_S": "3", "FARSIDE_LOST_S": "4"}


def alive(pid: int) -> bool:
    return proctree.start_of(pid) is not None


async def test_the_agent_alone_is_killed_and_the_same_attempt_goes_on(world: World) -> None:
    run = world.run(script=COUNTING)
    agent = world.agent()
    agent.start()
    await world.offer(run)
    await until(lambda: len(world.bodies(run, "progressed")) > 2, 30)
    pid = world.task_pid(run)
    agent.kill()
    assert alive(pid)
    agent.start()
    announced = await until(
        lambda: [e.body for e in world.events if e.message.name == "announced" and e.body.attempts], 20
    )
    assert [(a.job_id, a.attempt) for a in announced[0].attempts] == [(run.job_id, 1)]
    before = len(world.bodies(run, "progressed"))
    await until(lambda: len(world.bodies(run, "progressed")) > before + 2, 30)
    assert alive(pid)
    (world.attempt_folder(run) / "work" / "finish").touch()
    exited: AttemptExited = await world.saw(run, "exited")
    assert (exited.cause, exited.exit_code) == ("completed", 0)
    assert world.names(run).count("started") == 1
    assert world.task_pid(run) == pid
    steps = [point.step for body in world.bodies(run, "progressed") for point in body.points]
    assert steps == list(range(1, len(steps) + 1)), "no point is lost or counted twice"
    incarnations = {body.incarnation for body in world.bodies(run, "progressed")}
    assert len(incarnations) == 2


async def test_an_agent_that_hangs_past_the_lease_finds_its_attempt_dead(world: World) -> None:
    run = world.run("sleep", "300", stop_grace_s=1)
    agent = world.agent(**LEASE)
    agent.start()
    await world.offer(run)
    await world.saw(run, "started")
    pid = world.task_pid(run)
    agent.signal(signal.SIGSTOP)
    lease = handoff.read_lease(world.places().lease)
    assert lease is not None
    await until(lambda: not alive(pid), 10, "the shim to end the task")
    assert proctree.boottime() < lease.deadline
    ending = await until(lambda: handoff.read_ending(world.attempt_folder(run)), 5)
    assert ending is not None
    assert ending.cause == "lease_expired"
    await until(lambda: proctree.boottime() > lease.deadline, 10)
    agent.signal(signal.SIGCONT)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "lease_expired"
    await until(lambda: _epoch(world) > lease.epoch, 10, "a new lease under a new epoch")


async def test_a_new_attempt_runs_after_the_lease_lapsed(world: World) -> None:
    """The node came back: its old attempts are gone, and it takes new work."""
    agent = world.agent(**LEASE)
    agent.start()
    await until(lambda: _epoch(world) > 0, 20)
    agent.kill()
    lease = handoff.read_lease(world.places().lease)
    assert lease is not None
    await until(lambda: proctree.boottime() > lease.deadline, 10)
    agent.start()
    run = world.run("true")
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "completed"
    assert _epoch(world) == lease.epoch + 1


async def test_everything_dies_at_once(world: World) -> None:
    run = world.run("sleep", "300")
    agent = world.agent()
    agent.start()
    await world.offer(run)
    await world.saw(run, "started")
    task = world.task_pid(run)
    agent.kill()
    os.kill(world.shim_pid(run), signal.SIGKILL)
    await until(lambda: not alive(task), 10)
    agent.start()
    exited: AttemptExited = await world.saw(run, "exited")
    assert (exited.cause, exited.exit_code) == ("killed", None)
    assert world.names(run) == ["started", "exited"]


async def test_an_agent_that_died_between_decision_and_spawn_never_starts_it(world: World) -> None:
    run = world.run("touch", "ran")
    await _journal_as_spawning(world, run)
    agent = world.agent()
    agent.start()
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "never_started"
    agent.kill()
    agent.start()
    folder = world.attempt_folder(run)
    command = [sys.executable, "-m", "services.agent.shim", str(folder)]
    late = await asyncio.to_thread(subprocess.run, command, cwd=IMPORT_ROOT, check=False, timeout=30)
    assert late.returncode == 3, "a late shim finds the attempt given up"
    other = world.run("true")
    await world.offer(other)
    await world.saw(other, "exited")
    assert world.names(run) == ["exited"]
    assert handoff.read_owner(folder) == Owner(None)
    assert not (folder / "work" / "ran").exists()


async def test_an_agent_that_died_just_after_the_spawn_adopts(world: World) -> None:
    run = world.run("true")
    await _journal_as_spawning(world, run)
    folder = world.attempt_folder(run)
    (folder / "work").mkdir(parents=True)
    bound = handoff.LogBound(1000, 1000, 1000)
    plan = handoff.Plan(("sh", "-c", "echo adopted"), dict(os.environ), str(folder / "work"), bound, 1.0, None, None)
    handoff.write(folder / handoff.PLAN, plan)
    command = [sys.executable, "-m", "services.agent.shim", str(folder)]
    await asyncio.to_thread(subprocess.run, command, cwd=IMPORT_ROOT, check=True, timeout=30)
    world.agent().start()
    exited: AttemptExited = await world.saw(run, "exited")
    assert (exited.cause, exited.exit_code) == ("completed", 0)
    assert world.names(run) == ["started", "exited"]
    assert world.log_text(run) == "adopted\n"


async def test_two_agents_on_one_folder_take_turns(world: World) -> None:
    first, second = world.agent(), world.agent()
    first.start()
    await until(lambda: _announcements(world) == 1, 20)
    second.start()
    run = world.run("sleep", "300")
    await world.offer(run)
    await world.saw(run, "started")
    assert _announcements(world) == 1
    first.kill()
    await until(lambda: _announcements(world) == 2, 20)
    await world.order_stop(run, grace_s=1)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "stopped"
    assert world.names(run) == ["started", "exited"]


async def test_a_stopping_agent_leaves_its_attempts_unless_told_otherwise(world: World) -> None:
    run = world.run("sleep", "300")
    agent = world.agent()
    agent.start()
    await world.offer(run)
    await world.saw(run, "started")
    task = world.task_pid(run)
    agent.stop()
    assert alive(task)
    ending = world.agent(FARSIDE_END_ATTEMPTS_ON_STOP="true")
    ending.start()
    await until(lambda: _announcements(world) == 2, 20)
    ending.stop()
    assert not alive(task)
    world.agent().start()
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "stopped"


async def test_inference_with_keep_outlives_its_lease(world: World) -> None:
    run = world.run("sleep", "300", kind="inference", max_runtime_s=None, on_partition="keep")
    agent = world.agent(**LEASE)
    agent.start()
    await world.offer(run)
    await world.saw(run, "started")
    task = world.task_pid(run)
    agent.kill()
    lease = handoff.read_lease(world.places().lease)
    assert lease is not None
    await until(lambda: proctree.boottime() > lease.deadline + 0.5, 10)
    assert alive(task)
    agent.start()
    await until(lambda: _announcements(world) == 2, 20)
    await world.order_stop(run, grace_s=1)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "stopped"


async def test_without_a_lease_nothing_is_claimed(world: World) -> None:
    """Heartbeats that nobody acknowledges give no lease, and an offer waits."""
    world.claim_reply = ClaimReply(granted=True, go=True)
    await world.client.js.delete_stream("HEARTBEATS")
    try:
        world.agent().start()
        run = world.run("true")
        await world.offer(run)
        await until(lambda: _journalled(world, run), 20)
        assert world.claims == []
    finally:
        await world.provision()
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "completed"


def _epoch(world: World) -> int:
    lease = handoff.read_lease(world.places().lease)
    return 0 if lease is None else lease.epoch


def _announcements(world: World) -> int:
    return len([event for event in world.events if event.message.name == "announced"])


def _journalled(world: World, run: WorkRun) -> bool:
    """Whether the agent has noted the offer down."""
    query = "SELECT count(*) FROM attempts WHERE job_id = ?"
    try:
        with closing(sqlite3.connect(world.places().database)) as conn:
            return conn.execute(query, (run.job_id,)).fetchone()[0] == 1
    except sqlite3.OperationalError:
        return False  # no file or no table yet


async def _journal_as_spawning(world: World, run: WorkRun) -> None:
    places = world.places()
    places.make()
    ledger = SqliteLedger(places.database, "/farside/test", "services.agent")
    key = AttemptKey(run.job_id, run.attempt, run.member)
    async with ledger.transaction() as tx:
        row = Attempt(key, run.tenant, Phase.SPAWNING, SystemClock().now(), run=run, endpoint="127.0.0.1:0", epoch=1)
        store.record(tx.conn, row)
    ledger.close()
