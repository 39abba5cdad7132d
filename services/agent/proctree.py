"""Processes: who they are across pid reuse, and every process that belongs to one attempt.

In: pids and the attempt's directory. Out: identities and sets of pids. Imports the standard library only, because the
shim starts through it and must be up within some tens of milliseconds.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LINUX = sys.platform == "linux"
MARK = "FARSIDE_ATTEMPT_DIR"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")
_DEAD_STATES = frozenset("ZXx")


def boottime() -> float:
    """Seconds since boot, time asleep included; where the system has no such clock, the monotonic one."""
    if LINUX:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def boot_id() -> str:
    """Name of this boot of the machine: a pid, a start time and a boot time mean nothing in another."""
    if LINUX:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return _run("sysctl", "-n", "kern.bootsessionuuid")


@dataclass(frozen=True)
class Identity:
    """One process for good: its pid is used again, its pid with start time and boot is not."""

    pid: int
    start: str
    boot: str

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return self.boot == boot_id() and start_of(self.pid) == self.start

    def signal(self, number: int) -> bool:
        """Send a signal to this very process; False when it is gone."""
        if not self.alive():
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False


def identity(pid: int) -> Identity:
    """Return the identity of a running process; ProcessLookupError when there is none."""
    start = start_of(pid)
    if start is None:
        msg = f"process {pid} does not run"
        raise ProcessLookupError(msg)
    return Identity(pid, start, boot_id())


def start_of(pid: int) -> str | None:
    """When the process started, as text that differs for each use of a pid; None when it does not run."""
    if LINUX:
        fields = _stat(pid)
        return None if fields is None or fields.state in _DEAD_STATES else fields.start
    line = _run("ps", "-o", "stat=,lstart=", "-p", str(pid))
    return None if not line or line.startswith("Z") else line.split(maxsplit=1)[1]


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; called between fork and exec."""
    if LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can slip out of sight."""
    if LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def belonging(directory: str, group: int | None, root: int | None) -> set[int]:
    """Pids of an attempt: in its process group or session, marked by its directory, or descended from `root`.

    Without /proc only the process group can be told; then its leader stands for it.
    """
    me = os.getpid()
    if not LINUX:
        return {group} if group is not None and _group_lives(group) else set()
    table = {pid: fields for pid in _pids() if pid != me and (fields := _stat(pid)) is not None}
    found = {
        pid
        for pid, fields in table.items()
        if (group is not None and group in (fields.group, fields.session)) or _marked(pid, directory)
    }
    if root is not None:
        found |= _descendants(table, root)
    return {pid for pid in found if table[pid].state not in _DEAD_STATES}


def kill_all(pids: set[int], group: int | None, number: int) -> None:
    """Send a signal to the group, if one of `pids` is in it, and then to each; those already gone are passed over."""
    if group is not None and any(pid == group or _group_of(pid) == group for pid in pids):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    group: int
    session: int
    start: str


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(fields[0], int(fields[1]), int(fields[2]), int(fields[3]), fields[19])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - names only, thousands of them


def _marked(pid: int, directory: str) -> bool:
    try:
        block = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={directory}".encode() in block.split(b"\0")


def _descendants(table: dict[int, _Stat], root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, fields in table.items():
        children.setdefault(fields.parent, []).append(pid)
    found: set[int] = set()
    edge = [root]
    while edge:
        fresh = [pid for pid in children.get(edge.pop(), ()) if pid not in found]
        found.update(fresh)
        edge.extend(fresh)
    return found


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError, PermissionError):
        return os.getpgid(pid)
    return None


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl option {option} was refused by the kernel")


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
