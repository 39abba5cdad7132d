"""Processes told apart for good: a pid is used again, a pid with its start time is not."""

import os
from dataclasses import dataclass

import psutil

START_TOLERANCE_S = 2.0  # the kernel tells the time of boot in whole seconds, and corrects it


@dataclass(frozen=True)
class Identity:
    """One process, wherever it is written down."""

    pid: int
    start_time: float

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        try:
            process = psutil.Process(self.pid)
            return (
                abs(process.create_time() - self.start_time) < START_TOLERANCE_S
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False

    def signal(self, number: int) -> None:
        """Send a signal to this process, if it is still the same one."""
        if not self.alive():
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def signal_group(self, number: int) -> None:
        """Send a signal to the process group that this process leads."""
        if not self.alive():
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            self.signal(number)


def identity(pid: int) -> Identity:
    """The identity of a process that runs now; psutil.NoSuchProcess when it does not."""
    return Identity(pid, psutil.Process(pid).create_time())
