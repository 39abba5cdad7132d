"""Shims for tests: a folder, a plan, a lease that the test holds."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.agent import handoff, proctree
from services.agent.executor import Gone, ProcessExecutor
from services.agent.handoff import Ending, Lease, LeaseTerms, LogBound, Plan
from tests.waiting import until_sync

BOUND = LogBound(head_bytes=64 * 1024, tail_bytes=16 * 1024, segment_bytes=8 * 1024)
EPOCH = 3


@dataclass
class Shim:
    """One attempt's folder and the executor that runs it."""

    folder: Path
    executor: ProcessExecutor

    def plan(
        self,
        *command: str,
        lease: LeaseTerms | None = None,
        max_runtime_s: float | None = None,
        grace_s: float = 1.0,
        env: dict[str, str] | None = None,
    ) -> Plan:
        (self.folder / "work").mkdir(exist_ok=True)
        base = {"PATH": os.environ["PATH"], "HERE": str(self.folder), **(env or {})}
        return Plan(command, base, str(self.folder / "work"), BOUND, grace_s, max_runtime_s, lease)

    def start(self, plan: Plan) -> None:
        self.executor.spawn(self.folder, plan)

    def python(self, script: str, **options: float) -> None:
        """Run a Python script, given as text."""
        self.start(self.plan(sys.executable, "-c", script, **options))  # pyright: ignore[reportArgumentType]

    def holds_lease(self, seconds: float, *, epoch: int = EPOCH, boot: str | None = None) -> float:
        """Write a lease that runs `seconds` from now; its deadline on the boot clock."""
        deadline = proctree.boottime() + seconds
        handoff.write(self.folder / "lease.json", Lease(deadline, epoch, boot or proctree.boot_id()))
        return deadline

    def terms(self, grace_s: float = 0.3, lead_s: float = 0.5) -> LeaseTerms:
        return LeaseTerms(str(self.folder / "lease.json"), EPOCH, grace_s, lead_s)

    def ended(self, timeout_s: float = 15.0) -> Ending:
        """Wait for the end."""
        until_sync(lambda: isinstance(self.executor.look(self.folder), Gone), timeout_s, "exit.json")
        ending = handoff.read_ending(self.folder)
        assert ending is not None
        return ending

    def task_pid(self) -> int:
        task = until_sync(lambda: handoff.read_task(self.folder), 15.0, "task.json")
        assert task is not None
        return task.process.pid

    def said(self, name: str) -> str:
        """Wait for a file that the task writes and read it."""
        path = self.folder / name
        until_sync(lambda: path.exists() and path.read_text(), 15.0, f"{name} by the task")
        return path.read_text()

    def output(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((self.folder / "log").glob("*.log")))


def runs(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    return proctree.start_of(pid) is not None


@contextmanager
def shim_in(folder: Path) -> Generator[Shim, None, None]:
    """A shim whose processes are gone afterwards, whatever the test did."""
    made = Shim(folder, ProcessExecutor())
    try:
        yield made
    finally:
        owner = handoff.read_owner(folder)
        if owner is not None and owner.shim is not None:
            owner.shim.signal(9)
        made.executor.sweep(folder)
        until_sync(lambda: made.executor.collect() == 0, 10.0, "the shim to end")
