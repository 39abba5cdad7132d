"""A supervisor in the background: put there, waited for, ended. Imports little, for it is all that `down` needs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from deploy.local import control
from deploy.local.errors import StackError
from deploy.local.fleet import REPOSITORY

INTERRUPTED = 130
POLL_S = 0.05
STOP_LIMIT_S = 60.0
DETACHED_LIMIT_S = 300.0

Say = Callable[[str], None]


def detach(directory: Path, arguments: Sequence[str], say: Say) -> int:
    """Run `up` with `arguments` in the background; return its exit status if it fails, 0 when all is up."""
    path = directory / "logs" / "supervisor.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        child = subprocess.Popen(
            [sys.executable, "-m", "deploy.local.cli", "up", *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    with path.open() as log:
        log.seek(end)
        try:
            return _follow(child, directory, log, say)
        except KeyboardInterrupt:
            child.terminate()
            child.wait(STOP_LIMIT_S)
            _relay(log, say)
            return INTERRUPTED


def _follow(child: subprocess.Popen[bytes], directory: Path, log: TextIO, say: Say) -> int:
    deadline = time.monotonic() + DETACHED_LIMIT_S
    while time.monotonic() < deadline:
        ended = child.poll()
        up = ended is None and _is_up(directory, child.pid)
        _relay(log, say)
        if ended is not None:
            return ended or 1
        if up:
            child.returncode = 0  # it lives on without us
            return 0
        time.sleep(POLL_S)
    msg = f"the stack did not come up within {DETACHED_LIMIT_S:g} s: see {log.name}"
    raise StackError(msg)


def _is_up(directory: Path, pid: int) -> bool:
    with suppress(StackError):
        reply = control.ask(directory, {"do": "status"})
        return reply["supervisor"] == pid and bool(reply["started"])
    return False


def _relay(log: TextIO, say: Say) -> None:
    for line in log:
        say(line.rstrip("\n"))


def end(directory: Path) -> bool:
    """End the stack in `directory` and wait for it; False when none ran."""
    who = control.supervisor(directory)
    if who is None:
        return False
    try:
        control.ask(directory, {"do": "stop"})
    except StackError:  # its socket is gone, it is not
        who.signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_LIMIT_S
    while who.alive():
        if time.monotonic() > deadline:
            msg = f"the supervisor (pid {who.pid}) did not end within {STOP_LIMIT_S:g} s: `kill -9 {who.pid}` ends all"
            raise StackError(msg)
        time.sleep(POLL_S)
    return True
