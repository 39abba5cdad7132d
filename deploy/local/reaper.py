"""Ends a stack whose supervisor was killed: `python -m deploy.local.reaper DIR RUN_DIR`.

In: lines on standard input, `+ PID START` for a part that started and `- PID` for one that ended. When the input ends
without the line `bye`, the supervisor is dead: kill the parts, then the attempts of their agents, and remove the
runtime folder. On Linux the parts are told of that death by the kernel as well; this covers attempts and other systems.
"""

import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from deploy.local import leftovers
from deploy.local.identity import Identity

GOODBYE = "bye"
WAIT_S = 10.0
POLL_S = 0.05
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def follow(lines: Iterable[str]) -> dict[int, Identity] | None:
    """The parts that ran when the input ended; None after a goodbye."""
    running: dict[int, Identity] = {}
    for line in lines:
        match line.split():
            case ["+", pid, start]:
                running[int(pid)] = Identity(int(pid), float(start))
            case ["-", pid]:
                running.pop(int(pid), None)
            case [word] if word == GOODBYE:
                return None
            case _:
                continue
    return running


def reap(running: Iterable[Identity]) -> None:
    """Kill every part with its group and wait until all are gone."""
    parts = list(running)
    for part in parts:
        part.signal_group(signal.SIGKILL)
    deadline = time.monotonic() + WAIT_S
    while any(part.alive() for part in parts) and time.monotonic() < deadline:
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
