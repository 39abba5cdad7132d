"""The local stack leaves nothing behind, in whatever way it ends: ctrl-C, SIGKILL, a failed start, jobs that run."""

import signal
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import leftovers
from deploy.local.config import read_stack_file
from deploy.local.errors import PartFailedError, StackError
from deploy.local.stack import Stack
from libs.bus.client import Client
from tests.e2e.commands import LIGHT, SERVERS, farside, nothing_left, only, pretend_attempt, read_until, run
from tests.e2e.fleet import TENTH, fleet
from tests.waiting import until, until_sync


@pytest.mark.parametrize("moment", ["stack.json", "logs/nats.log", "logs/postgres.log", "logs/seaweed.log"])
async def test_ctrl_c_during_the_start_leaves_nothing(home: Path, moment: str) -> None:
    process = farside("up", *only(*SERVERS), directory=home)
    until_sync((home / moment).exists, 30, moment)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "taking everything down" in err) == (130, True), err
    await nothing_left(home)
    assert read_stack_file(home)["supervisor"] is None


async def test_ctrl_c_when_it_is_up_is_an_orderly_end(home: Path) -> None:
    process = farside("up", *only(*LIGHT), directory=home)
    read_until(process, "is up after")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "down; the data stays" in err) == (0, True), err
    await nothing_left(home)


@pytest.mark.parametrize("moment", ["stack.json", "logs/nats.log", "logs/postgres.log", "logs/seaweed.log"])
async def test_sigkill_during_the_start_leaves_nothing(home: Path, moment: str) -> None:
    process = farside("up", *only(*SERVERS), directory=home)
    until_sync((home / moment).exists, 30, moment)
    process.kill()
    process.communicate(timeout=30)
    await nothing_left(home)
    async with Stack(home, parts=SERVERS):
        pass


async def test_sigkill_of_the_supervisor_takes_parts_and_attempts_along(home: Path) -> None:
    process = farside("up", *only(*SERVERS), directory=home)
    read_until(process, "is up after")
    attempt = pretend_attempt(home)
    process.kill()
    process.communicate(timeout=30)
    await nothing_left(home)
    assert attempt.wait(10) == -signal.SIGKILL
    run_dir = Path(read_stack_file(home)["run_dir"])
    await until(lambda: not run_dir.exists(), 10)
    async with Stack(home, parts=SERVERS):
        pass


async def test_an_orderly_end_ends_attempts_whose_agents_have_gone(home: Path) -> None:
    attempt = pretend_attempt(home)
    assert len(leftovers.find(home)) == 1
    assert leftovers.end(home) == 1
    assert attempt.wait(10) == -signal.SIGKILL
    assert not leftovers.find(home)


async def test_a_killed_supervisor_is_waited_for(home: Path) -> None:
    """Whoever starts next waits until the reaper of the last one is done."""
    process = farside("up", *only(*LIGHT), directory=home)
    read_until(process, "is up after")
    attempt = pretend_attempt(home)
    process.kill()
    process.communicate(timeout=10)
    async with Stack(home, parts=LIGHT):
        assert attempt.wait(1) == -signal.SIGKILL


async def test_a_part_that_does_not_come_up_shows_its_log_and_takes_the_rest_down(home: Path) -> None:
    async with Stack(home, parts=LIGHT):
        pass
    (home / "postgres" / "data" / "postgresql.conf").write_text("nonsense_setting = 7\n")
    with pytest.raises(PartFailedError, match="postgres did not come up: ended with exit code 1") as failure:
        await Stack(home, parts=SERVERS).start()
    assert "nonsense_setting" in str(failure.value)
    await nothing_left(home)
    code, _, err = run("up", "--detach", *only(*LIGHT), directory=home)
    assert code == 1
    assert "farside: postgres did not come up" in err
    assert "nonsense_setting" in err
    await nothing_left(home)


async def test_a_fixed_port_that_is_taken_is_named(home: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        code, _, err = run("up", *only("nats"), "--port", f"nats={port}", directory=home)
    assert code == 1
    assert f"port {port} for nats is taken" in err
    await nothing_left(home)


async def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(StackError, match="cannot be kept in /proc/farside"):
        await Stack("/proc/farside", parts=LIGHT).start()


async def test_down_ends_running_jobs_and_up_goes_on_with_them(home: Path) -> None:
    async with fleet(home, TENTH) as running:
        job = await running.submit(steps=100, pace_s=0.1)
        await running.at_step(job, 12)
        assert len(leftovers.find(running.stack.directory)) >= 2
    await nothing_left(home)
    async with (
        Stack(running.stack.directory, env=TENTH) as stack,
        await Client.connect(stack.config.nats_url, name="test") as client,
    ):
        again = replace(running, stack=stack, client=client)
        state = await again.finished(job)
        assert state.outcome is not None
        assert (state.outcome, max(line.attempt for line in again.lines(job))) == ("succeeded", 2)
    await nothing_left(home)
