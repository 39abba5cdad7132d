"""How attempts run on this node: the interface, and the executor `process`.

In: an attempt's folder and plan. Out: sightings of how it stands, read from the folder alone, so that an agent started
anew sees what the last one left. A `container`, `slurm` or `kubernetes` executor answers the same calls.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from services.agent import handoff, proctree
from services.agent.handoff import Ending, Owner, Plan, Stop

IMPORT_ROOT = Path(__file__).parents[2]
SHIM_MODULE = "services.agent.shim"
SHIM_ENV = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
SHIM_LOG = "shim.log"
SWEEP_ROUNDS = 250
SWEEP_PAUSE_S = 0.02


@dataclass(frozen=True)
class Absent:
    """Nobody has taken the attempt up yet."""


@dataclass(frozen=True)
class GivenUp:
    """An agent declared that the attempt never started."""


@dataclass(frozen=True)
class Alive:
    """The attempt is being run; `started_at` once its task exists."""

    started_at: str | None


@dataclass(frozen=True)
class Gone:
    """The attempt ended, and its shim wrote down how."""

    ending: Ending


@dataclass(frozen=True)
class Vanished:
    """The shim died without a word."""

    started_at: str | None


Sighting: TypeAlias = Absent | GivenUp | Alive | Gone | Vanished


class Executor(Protocol):
    """What an agent asks of the engine that runs its attempts. Calls are quick, but for `sweep`."""

    def spawn(self, folder: Path, plan: Plan) -> None:
        """Start an attempt; returns before the task exists. Raises OSError."""
        ...

    def look(self, folder: Path) -> Sighting:
        """How the attempt stands."""
        ...

    def stop(self, folder: Path, order: Stop) -> None:
        """Ask for an end; safe to repeat."""
        ...

    def renounce(self, folder: Path) -> bool:
        """Make sure that nobody starts the attempt any more; False when somebody has started it."""
        ...

    def sweep(self, folder: Path) -> None:
        """Kill whatever a vanished attempt has left."""
        ...


class ProcessExecutor:
    """Attempts as local processes, each under a shim."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()  # attempts are spawned on threads, and looked at on the event loop

    def spawn(self, folder: Path, plan: Plan) -> None:
        """Start a shim in a session of its own, without the agent's secrets in its environment."""
        handoff.write(folder / handoff.PLAN, plan)
        env = {name: os.environ[name] for name in SHIM_ENV if name in os.environ}
        command = [sys.executable, "-E", "-s", "-S", "-m", SHIM_MODULE, str(folder)]
        with (folder / SHIM_LOG).open("ab") as log:
            child = subprocess.Popen(
                command,
                cwd=IMPORT_ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        with self._lock:
            self._children.append(child)

    def look(self, folder: Path) -> Sighting:
        """Read the attempt's files and check that its shim lives."""
        self.collect()
        ending = handoff.read_ending(folder)
        if ending is not None:
            return Gone(ending)
        owner = handoff.read_owner(folder)
        if owner is None:
            return Absent()
        if owner.shim is None:
            return GivenUp()
        alive = owner.shim.alive()
        task = handoff.read_task(folder)
        started_at = None if task is None else task.started_at
        if alive:
            return Alive(started_at)
        ending = handoff.read_ending(folder)
        return Vanished(started_at) if ending is None else Gone(ending)

    def stop(self, folder: Path, order: Stop) -> None:
        """Write the order down, unless one as strict is there, and wake the shim."""
        known = handoff.read_stop(folder)
        if known is None or order.grace_s < known.grace_s:
            handoff.write(folder / handoff.STOP, order)
        owner = handoff.read_owner(folder)
        if owner is not None and owner.shim is not None:
            owner.shim.signal(signal.SIGUSR1)

    def renounce(self, folder: Path) -> bool:
        """Take the place of a shim that never came; a late one finds it taken and leaves."""
        folder.mkdir(parents=True, exist_ok=True)
        if handoff.create(folder / handoff.SHIM, Owner(None)):
            return True
        owner = handoff.read_owner(folder)
        return owner is not None and owner.shim is None

    def sweep(self, folder: Path) -> None:
        """Kill every process of the attempt. Blocks until none is left, some seconds at most."""
        task = handoff.read_task(folder)
        group = task.process.pid if task is not None and task.process.alive() else None
        for _ in range(SWEEP_ROUNDS):
            left = proctree.belonging(str(folder), group, None)
            if not left:
                return
            proctree.kill_all(left, group, signal.SIGKILL)
            time.sleep(SWEEP_PAUSE_S)

    def collect(self) -> int:
        """Let the system forget shims of this process that have ended; how many still run."""
        with self._lock:
            self._children = [child for child in self._children if child.poll() is None]
            return len(self._children)
