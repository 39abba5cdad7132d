"""The shim with real processes: how tasks end, and that nothing of them is left."""

import os
import signal
import subprocess
import sys
import time

import pytest

from services.agent import handoff, proctree
from services.agent.executor import IMPORT_ROOT, Absent, Alive, GivenUp, Vanished
from services.agent.handoff import Owner, Stop
from tests.unit.agent.shims import EPOCH, Shim, runs
from tests.waiting import until_sync

SLEEPER = "import time; time.sleep(300)"
STUBBORN = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(os.environ["HERE"], "up").write_text("up")
time.sleep(300)
"""
POLITE = """
import os, pathlib, signal, sys, time
def end(*_):
    time.sleep(0.3)
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
pathlib.Path(os.environ["HERE"], "up").write_text("up")
time.sleep(300)
"""
FAMILY = """
import os, pathlib, subprocess, sys, time
here = pathlib.Path(os.environ["HERE"])
plain = subprocess.Popen(["sleep", "300"])
apart = subprocess.Popen(["sleep", "300"], start_new_session=True)
nameless = subprocess.Popen(["sleep", "300"], start_new_session=True, env={"PATH": os.environ["PATH"]})
forker = "import subprocess as s; print(s.Popen(['sleep', '300'], stdout=s.DEVNULL, start_new_session=True).pid)"
orphan = subprocess.check_output([sys.executable, "-c", forker], env={"PATH": os.environ["PATH"]}, text=True).strip()
part = here / "family.part"
part.write_text(f"{plain.pid} {apart.pid} {nameless.pid} {orphan}")
part.rename(here / "family")
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 300)
"""


def stop(shim: Shim, grace_s: float, cause: str = "stopped") -> None:
    shim.executor.stop(shim.folder, Stop(cause, grace_s, proctree.boottime(), "because"))


@pytest.mark.parametrize(("code", "cause"), [(0, "completed"), (3, "failed")])
def test_exit_code_and_output_are_written_down(shim: Shim, code: int, cause: str) -> None:
    shim.start(shim.plan("sh", "-c", f"echo out; echo err >&2; exit {code}"))
    ending = shim.ended()
    assert (ending.cause, ending.exit_code) == (cause, code)
    assert shim.output() == b"out\nerr\n"
    assert ending.started_at is not None


def test_a_task_killed_from_outside_failed_by_that_signal(shim: Shim) -> None:
    shim.python(SLEEPER)
    os.kill(shim.task_pid(), signal.SIGKILL)
    ending = shim.ended()
    assert (ending.cause, ending.exit_code, ending.message) == ("failed", -9, "ended by SIGKILL")


def test_a_command_that_is_not_there_says_so(shim: Shim) -> None:
    shim.start(shim.plan("no-such-command"))
    ending = shim.ended()
    assert (ending.cause, ending.exit_code) == ("failed", 127)
    assert "'no-such-command' cannot be run: No such file" in ending.message


@pytest.mark.parametrize("script", [SLEEPER, STUBBORN])
def test_the_group_is_dead_before_the_lease_ends(shim: Shim, script: str) -> None:
    deadline = shim.holds_lease(2.0)
    shim.start(shim.plan(sys.executable, "-c", script, lease=shim.terms()))
    pid = shim.task_pid()
    until_sync(lambda: not runs(pid), 10.0, "the task to end")
    assert proctree.boottime() < deadline
    assert shim.ended().cause == "lease_expired"


def test_a_renewed_lease_keeps_the_task_alive(shim: Shim) -> None:
    first = shim.holds_lease(2.5)
    shim.start(shim.plan("sleep", "300", lease=shim.terms()))
    pid = shim.task_pid()
    second = shim.holds_lease(5.0)
    until_sync(lambda: proctree.boottime() > first + 0.3, 10.0, "the first deadline to pass")
    assert runs(pid)
    until_sync(lambda: not runs(pid), 10.0, "the task to end")
    assert proctree.boottime() < second
    assert shim.ended().cause == "lease_expired"


def test_a_lease_that_lapsed_and_was_taken_anew_is_another_lease(shim: Shim) -> None:
    shim.holds_lease(60.0)
    shim.start(shim.plan("sleep", "300", lease=shim.terms()))
    shim.task_pid()
    shim.holds_lease(60.0, epoch=EPOCH + 1)
    assert shim.ended().cause == "lease_expired"


@pytest.mark.parametrize("case", ["none", "expired", "other boot", "other epoch"])
def test_without_a_running_lease_nothing_is_started(shim: Shim, case: str) -> None:
    if case != "none":
        seconds = -1.0 if case == "expired" else 60.0
        epoch = EPOCH + 1 if case == "other epoch" else EPOCH
        shim.holds_lease(seconds, epoch=epoch, boot="another" if case == "other boot" else None)
    shim.start(shim.plan("sh", "-c", "touch $HERE/ran", lease=shim.terms()))
    ending = shim.ended()
    assert (ending.cause, ending.exit_code, ending.started_at) == ("lease_expired", None, None)
    assert not (shim.folder / "ran").exists()


def test_max_runtime_ends_the_task(shim: Shim) -> None:
    shim.python(SLEEPER, max_runtime_s=0.5)
    ending = shim.ended()
    assert (ending.cause, ending.exit_code) == ("max_runtime", -15)
    assert "max_runtime_s = 0.5" in ending.message


def test_a_stop_gives_its_grace(shim: Shim) -> None:
    shim.python(POLITE)
    shim.said("up")
    stop(shim, 5.0)
    ending = shim.ended()
    assert (ending.cause, ending.exit_code, ending.message) == ("stopped", 5, "because")


def test_a_stop_kills_when_its_grace_is_over(shim: Shim) -> None:
    shim.python(STUBBORN)
    shim.said("up")
    begun = time.monotonic()
    stop(shim, 0.5)
    assert (shim.ended().cause, shim.ended().exit_code) == ("stopped", -9)
    assert 0.5 <= time.monotonic() - begun < 3.0


def test_a_second_stop_can_only_shorten_the_grace(shim: Shim) -> None:
    shim.python(STUBBORN)
    shim.said("up")
    stop(shim, 60.0, "hung")
    stop(shim, 300.0)
    order = handoff.read_stop(shim.folder)
    assert order is not None
    assert order.grace_s == 60.0
    stop(shim, 0.2)
    assert shim.ended(5.0).exit_code == -9


def test_the_lease_bounds_the_grace_of_a_stop(shim: Shim) -> None:
    deadline = shim.holds_lease(3.0)
    shim.start(shim.plan(sys.executable, "-c", STUBBORN, lease=shim.terms()))
    shim.said("up")
    pid = shim.task_pid()
    stop(shim, 600.0)
    until_sync(lambda: not runs(pid), 10.0, "the task to end")
    assert proctree.boottime() < deadline
    assert shim.ended().cause == "stopped"


def test_a_stop_that_came_first_means_no_start(shim: Shim) -> None:
    stop(shim, 1.0)
    shim.start(shim.plan("sh", "-c", "touch $HERE/ran"))
    ending = shim.ended()
    assert (ending.cause, ending.started_at) == ("stopped", None)
    assert not (shim.folder / "ran").exists()


def test_children_of_a_shell_share_its_grace(shim: Shim) -> None:
    """The shell dies of SIGTERM at once, its child needs a moment longer and gets it."""
    script = 'trap "sleep 0.5; touch $HERE/saved; exit 0" TERM; touch $HERE/up; while :; do sleep 0.05; done'
    shim.start(shim.plan("sh", "-c", f"sh -c '{script}' & wait"))
    until_sync((shim.folder / "up").exists, 10.0, "the child to be up")
    stop(shim, 10.0)
    shim.ended()
    assert (shim.folder / "saved").exists()


@pytest.mark.parametrize("how", ["stop", "exit"])
def test_all_descendants_are_killed(shim: Shim, how: str) -> None:
    arguments = ["0.1"] if how == "exit" else []
    shim.start(shim.plan(sys.executable, "-c", FAMILY, *arguments))
    pids = [int(pid) for pid in shim.said("family").split()]
    assert len(pids) == 4
    if how == "stop":
        assert all(runs(pid) for pid in pids)
        stop(shim, 0.3)
    shim.ended()
    assert not any(runs(pid) for pid in pids)


def test_a_late_shim_finds_the_attempt_taken(shim: Shim) -> None:
    assert isinstance(shim.executor.look(shim.folder), Absent)
    assert shim.executor.renounce(shim.folder)
    handoff.write(shim.folder / handoff.PLAN, shim.plan("sh", "-c", "touch $HERE/ran"))
    command = [sys.executable, "-m", "services.agent.shim", str(shim.folder)]
    assert subprocess.run(command, cwd=IMPORT_ROOT, check=False, timeout=30).returncode == 3
    assert isinstance(shim.executor.look(shim.folder), GivenUp)
    assert not (shim.folder / "ran").exists()


def test_a_shim_that_was_first_cannot_be_renounced(shim: Shim) -> None:
    shim.python(SLEEPER)
    shim.task_pid()
    assert not shim.executor.renounce(shim.folder)
    assert isinstance(shim.executor.look(shim.folder), Alive)


def test_when_the_shim_is_killed_the_task_dies_and_the_rest_is_swept(shim: Shim) -> None:
    shim.start(shim.plan(sys.executable, "-c", FAMILY))
    family = [int(pid) for pid in shim.said("family").split()]
    task = shim.task_pid()
    owner = handoff.read_owner(shim.folder)
    assert owner is not None
    assert owner.shim is not None
    assert owner.shim.signal(signal.SIGKILL)
    until_sync(lambda: not runs(task), 10.0, "the kernel to kill the task")
    assert isinstance(until_sync(lambda: shim.executor.look(shim.folder), 5.0), Vanished)
    shim.executor.sweep(shim.folder)
    plain, apart, *escaped = family
    assert not runs(plain)
    assert not runs(apart)
    for pid in escaped:  # without a shim, those that hid their origin are out of reach; see the README
        os.kill(pid, signal.SIGKILL)


def test_a_signal_to_the_shim_stops_the_attempt(shim: Shim) -> None:
    shim.python(POLITE)
    shim.said("up")
    owner = handoff.read_owner(shim.folder)
    assert owner is not None
    assert owner.shim is not None
    owner.shim.signal(signal.SIGTERM)
    assert (shim.ended().cause, shim.ended().exit_code) == ("stopped", 5)


def test_a_pid_used_again_is_not_taken_for_the_shim(shim: Shim) -> None:
    mine = proctree.identity(os.getpid())
    stranger = proctree.Identity(mine.pid, "1", mine.boot)
    handoff.create(shim.folder / handoff.SHIM, Owner(stranger))
    assert isinstance(shim.executor.look(shim.folder), Vanished)
    assert not stranger.signal(signal.SIGKILL)
    assert not proctree.Identity(mine.pid, mine.start, "another boot").alive()
    assert mine.alive()


def test_output_is_kept_at_its_head_and_at_its_tail(shim: Shim) -> None:
    script = "for n in range(40000): print(f'line {n:06d}')"
    shim.python(script)
    assert shim.ended().cause == "completed"
    kept = shim.output()
    assert kept.startswith(b"line 000000\n")
    assert kept.endswith(b"line 039999\n")
    bound = 64 * 1024 + 16 * 1024 + 2 * 8 * 1024
    assert len(kept) <= bound
    assert kept[: 64 * 1024] == b"".join(b"line %06d\n" % n for n in range(40000))[: 64 * 1024]


def test_a_task_that_closes_its_output_lives_on(shim: Shim) -> None:
    shim.python("import os, sys; os.close(1); os.close(2); import time; time.sleep(0.5); sys.exit(4)")
    assert shim.ended().exit_code == 4
