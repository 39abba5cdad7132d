"""One child process: spawned through `launch.py` in a session of its own, awaited, stopped within a bound.

Start processes from the thread that lives longest: Linux ends a child when the thread that started it ends.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.local.fleet import REPOSITORY
from deploy.local.identity import Identity, identity
from deploy.local.users import OsUser

LAUNCHER = Path(__file__).with_name("launch.py")
KILL_WAIT_S = 5.0
TAIL_LINES = 20
TAIL_BYTES = 16 * 1024


@dataclass(frozen=True)
class Command:
    """What to run. `death_signal` is what the process gets when its supervisor dies; `user` None keeps the user."""

    argv: Sequence[str]
    env: Mapping[str, str]
    death_signal: signal.Signals = signal.SIGKILL
    user: OsUser | None = None

    def launched(self) -> list[str]:
        """The argument vector with the launcher in front."""
        options = [f"--death-signal={int(self.death_signal)}", f"--parent={os.getpid()}"]
        if self.user is not None:
            options += [f"--user={self.user.uid}:{self.user.gid}"]
            options += ["--keep-dac"] if self.user.keep_dac else []
        return [sys.executable, "-I", "-S", str(LAUNCHER), *options, "--", *self.argv]


@dataclass(frozen=True)
class Log:
    """A part's log from the place where this start of it began."""

    path: Path
    offset: int

    def tail(self) -> tuple[str, ...]:
        """The last lines since this start."""
        with self.path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self.offset, end - TAIL_BYTES))
            text = file.read().decode(errors="replace")
        return tuple(line for line in text.splitlines() if line.strip())[-TAIL_LINES:]


class Child:
    """A running process; `wait` may be called by many."""

    def __init__(
        self, process: asyncio.subprocess.Process, who: Identity, log: Log, death_signal: signal.Signals
    ) -> None:
        self._process = process
        self.who = who
        self.log = log
        self.death_signal = death_signal

    @property
    def pid(self) -> int:
        """Its process id, also that of its group and session."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the end, then end what it left in its group."""
        code = await self._process.wait()
        _kill_group(self.pid)
        return code

    async def stop(self, how: signal.Signals, grace_s: float) -> None:
        """Signal it, and after `grace_s` kill its whole group."""
        if self.code is None:
            self.who.signal(how)
            try:
                await asyncio.wait_for(self.wait(), grace_s)
            except TimeoutError:
                self.kill()
                await asyncio.wait_for(self.wait(), KILL_WAIT_S)

    def kill(self) -> None:
        """SIGKILL to the whole group, now."""
        if self.code is None:
            _kill_group(self.pid)


async def spawn(command: Command, log_path: Path) -> Child:
    """Start a process whose output is appended to `log_path`."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        log = Log(log_path, os.lseek(descriptor, 0, os.SEEK_END))
        process = await asyncio.create_subprocess_exec(
            *command.launched(),
            env=dict(command.env),
            cwd=REPOSITORY,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            umask=0o077,
        )
    finally:
        os.close(descriptor)
    return Child(process, _identity(process.pid), log, command.death_signal)


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _identity(pid: int) -> Identity:
    try:
        return identity(pid)
    except psutil.NoSuchProcess:  # it has ended and been awaited already
        return Identity(pid, 0.0)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
