"""How tasks and their agent work together: logs, hangs, stops, readiness, bounds."""

from contracts.attempts import AttemptExited, AttemptHung, AttemptReady
from tests.agent.world import World
from tests.waiting import until

SERVING = """
import time
import libs.sdk as farside

with farside.attach() as job:
    job.ready("127.0.0.1:8000")
    while not job.stopping:
        time.sleep(0.02)
print("bye")
"""
SAVES_AT_STOP = """
import time
import numpy as np
import libs.sdk as farside

with farside.attach() as job:
    step = 0
    while not job.stopping:
        step += 1
        job.progress(step)
        time.sleep(0.01)
    job.save(step, {"step": np.array([step])})
print("saved at", step)
"""
SILENT = """
import time
import libs.sdk as farside

with farside.attach() as job:
    for step in range(10):
        job.progress(step)
        time.sleep(0.4)
    time.sleep(300)
"""
TALKATIVE = """
import time
from pathlib import Path
print("first", flush=True)
while not Path("more").exists():
    time.sleep(0.02)
for n in range(20000):
    print(f"line {n:06d}")
print("last")
"""
FORKS = """
import os, subprocess, sys
subprocess.Popen(["sleep", "300"], start_new_session=True)
print(sys.executable, os.environ.get("FARSIDE_S3_SECRET_KEY"), os.environ["GREETING"], os.getcwd())
"""


async def test_an_inference_job_says_that_it_serves_and_stops_when_asked(world: World) -> None:
    run = world.run(script=SERVING, kind="inference", max_runtime_s=None)
    world.agent().start()
    await world.offer(run)
    ready: AttemptReady = await world.saw(run, "ready")
    assert ready.endpoint == "127.0.0.1:8000"
    await world.order_stop(run, grace_s=10)
    exited: AttemptExited = await world.saw(run, "exited")
    assert (exited.cause, exited.exit_code, exited.message) == ("stopped", 0, "cancelled")
    assert world.log_text(run) == "bye\n"


async def test_a_checkpoint_written_in_the_grace_is_stored(world: World) -> None:
    run = world.run(script=SAVES_AT_STOP, stop_grace_s=20)
    world.agent().start()
    await world.offer(run)
    await until(lambda: world.bodies(run, "progressed"), 30)
    await world.order_stop(run, grace_s=20)
    exited: AttemptExited = await world.saw(run, "exited")
    assert (exited.cause, exited.exit_code) == ("stopped", 0)
    names = world.names(run)
    assert names[-2:] == ["saved", "exited"]
    steps = [point.step for body in world.bodies(run, "progressed") for point in body.points]
    assert world.bodies(run, "saved")[0].step == steps[-1]


async def test_a_silent_task_is_told_of_and_stopped(world: World) -> None:
    run = world.run(script=SILENT, hang_timeout_s=3, stop_grace_s=0)
    world.agent().start()
    await world.offer(run)
    hung: AttemptHung = await world.saw(run, "hung")
    assert hung.silent_s >= 3
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "hung"
    steps = [point.step for body in world.bodies(run, "progressed") for point in body.points]
    assert steps == list(range(10)), "while it reported it was not silent"


async def test_max_runtime_ends_the_task(world: World) -> None:
    run = world.run("sleep", "300", max_runtime_s=1, stop_grace_s=0)
    world.agent().start()
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "max_runtime"


async def test_logs_ship_while_the_task_runs_and_keep_head_and_tail(world: World) -> None:
    run = world.run(script=TALKATIVE)
    bounds = {"HEAD": "65536", "TAIL": "16384", "SEGMENT": "8192"}
    world.agent(**{f"FARSIDE_LOG_{name}_BYTES": value for name, value in bounds.items()}).start()
    await world.offer(run)
    await until(lambda: world.log_text(run) == "first\n", 20)
    assert "exited" not in world.names(run)
    (world.attempt_folder(run) / "work" / "more").touch()
    await world.saw(run, "exited")
    text = world.log_text(run)
    assert text.startswith("first\nline 000000\n")
    assert text.endswith("line 019999\nlast\n")
    assert "bytes left out here, the log is over its bound]" in text
    assert len(text) < 65536 + 16384 + 3 * 8192


async def test_a_task_sees_its_own_variables_and_nothing_of_the_agent(world: World) -> None:
    run = world.run(script=FORKS, env={"GREETING": "hello", "FARSIDE_SOCKET": "/tmp/elsewhere"})  # noqa: S108
    world.agent().start()
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "completed"
    python, secret, greeting, folder = world.log_text(run).split()
    assert python.endswith("python") or "python3" in python
    assert (secret, greeting) == ("None", "hello")
    assert folder == str(world.attempt_folder(run) / "work")


async def test_folders_of_old_attempts_are_removed(world: World) -> None:
    agent = world.agent(FARSIDE_KEEP_ATTEMPTS="1")
    agent.start()
    runs = [world.run("true") for _ in range(3)]
    for run in runs:
        await world.offer(run)
        await world.saw(run, "exited")
    agent.kill()
    agent.start()
    await until(lambda: [world.attempt_folder(run).exists() for run in runs] == [False, False, True], 20)


async def test_many_attempts_run_beside_each_other(world: World) -> None:
    world.agent().start()
    runs = [world.run("sh", "-c", f"echo {number}") for number in range(12)]
    for run in runs:
        await world.offer(run)
    for number, run in enumerate(runs):
        exited: AttemptExited = await world.saw(run, "exited", 60)
        assert exited.cause == "completed"
        assert world.log_text(run) == f"{number}\n"
    assert len({claim.endpoint for claim in world.claims}) == 12
