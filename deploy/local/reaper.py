"""Ends a stack whose supervisor was killed: `python -m deploy.local.reaper DIR RUN_DIR`.

In: lines on standard input, `+ PID START SIGNAL` for a part that started (with the signal that ends it at once) and
`- PID` for one that ended. When the input ends
without the line `bye`, the supervisor is dead: kill the parts, then the attempts of their agents, and remove the
runtime folder. On Linux the parts are told of that death by the kernel as well; this covers attempts and other systems.
"""

import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local import leftovers
from deploy.local.identity import Identity

GOODBYE = "bye"
GRACE_S = 3.0
WAIT_S = 10.0
POLL_S = 0.05
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Running:
    """A part, and the signal to try before SIGKILL."""

    who: Identity
    signal: int


def follow(lines: Iterable[str]) -> dict[int, Running] | None:
    """The parts that ran when the input ended; None after a goodbye."""
    running: dict[int, Running] = {}
    for line in lines:
        match line.split():
            case ["+", pid, start, number]:
                running[int(pid)] = Running(Identity(int(pid), float(start)), int(number))
            case ["-", pid]:
                running.pop(int(pid), None)
            case [word] if word == GOODBYE:
                return None
            case _:
                continue
    return running


def reap(running: Iterable[Running]) -> None:
    """End every part, kill what is left of its group, and wait until all are gone."""
    parts = list(running)
    for part in parts:
        part.who.signal(part.signal)
    _wait(parts, GRACE_S)
    for part in parts:
        part.who.signal_group(signal.SIGKILL)
    _wait(parts, WAIT_S)


def _wait(parts: Sequence[Running], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while any(part.who.alive() for part in parts) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def main(directory: Path, run_dir: Path) -> None:
    """Wait for the end of the supervisor, then clean up after it unless it has done so itself."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    running = follow(sys.stdin)
    if running is None:
        return
    reap(running.values())
    leftovers.end(directory)
    shutil.rmtree(run_dir, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
