"""What agents leave running by design: the shims of attempts and the tasks below them.

An attempt outlives its agent, so that an agent may be restarted; when the whole stack goes down, it must not. Every
task carries its attempt's folder in its environment, every shim among its arguments.
"""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.local.identity import Identity

MARK = "FARSIDE_ATTEMPT_DIR"
SHIM_MODULE = "services.agent.shim"
ROUNDS = 5
GRACE_S = 3.0
KILL_S = 2.0
POLL_S = 0.05


@dataclass(frozen=True)
class Found:
    """Processes of attempts."""

    shims: Sequence[Identity]
    tasks: Sequence[Identity]

    def __len__(self) -> int:
        return len(self.shims) + len(self.tasks)


def find(directory: Path, node: str = "") -> Found:
    """Processes of attempts whose folder lies below `<directory>/nodes`, or below that of one node."""
    nodes = f"{directory / 'nodes' / node}{os.sep}"
    shims: list[Identity] = []
    tasks: list[Identity] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            arguments = process.cmdline()
            is_shim = SHIM_MODULE in arguments and any(word.startswith(nodes) for word in arguments)
            if is_shim or process.environ().get(MARK, "").startswith(nodes):
                (shims if is_shim else tasks).append(Identity(process.pid, process.create_time()))
    return Found(shims, tasks)


def end(directory: Path) -> int:
    """End all of them; returns how many there were.

    Shims are asked first: they end their task, and write down how it ended. Then tasks are killed, which leaves a shim
    the time to write, then all; in rounds, for a task may fork while it is killed.
    """
    found = find(directory)
    count = len(found)
    _signal(found.shims, signal.SIGTERM)
    _wait(found.shims, GRACE_S)
    for _ in range(ROUNDS):
        found = find(directory)
        if not found:
            break
        _signal(found.tasks, signal.SIGKILL)
        _wait([*found.shims, *found.tasks], KILL_S)
        _signal(found.shims, signal.SIGKILL)
        _wait(found.shims, KILL_S)
    return count


def _signal(found: Sequence[Identity], number: signal.Signals) -> None:
    for who in found:
        with suppress(PermissionError):
            who.signal(number)


def _wait(found: Sequence[Identity], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while any(who.alive() for who in found) and time.monotonic() < deadline:
        time.sleep(POLL_S)
