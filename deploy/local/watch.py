"""The supervisor's end of the reaper: tells it which parts run, so that it can end them when the supervisor cannot."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from deploy.local.fleet import REPOSITORY
from deploy.local.process import Child
from deploy.local.reaper import GOODBYE

GOODBYE_WAIT_S = 10.0


class Watch:
    """One reaper process in a session of its own; it reads from a pipe that ends with this process.

    It shares the folder's `lock`, so that no other supervisor starts before it is done.
    """

    def __init__(self, directory: Path, run_dir: Path, log: Path, lock: int) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "deploy.local.reaper", str(directory), str(run_dir)],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=descriptor,
                stderr=descriptor,
                pass_fds=(lock,),
                start_new_session=True,
                text=True,
            )
        finally:
            os.close(descriptor)

    def born(self, child: Child) -> None:
        """A part has started."""
        self._tell(f"+ {child.pid} {child.who.start_time} {int(child.death_signal)}")

    def gone(self, child: Child) -> None:
        """A part has ended."""
        self._tell(f"- {child.pid}")

    def close(self, *, in_order: bool) -> None:
        """Send the reaper away; unless all has ended `in_order`, it first ends what is left."""
        if in_order:
            self._tell(GOODBYE)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(GOODBYE_WAIT_S)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed; the kernel's own signal to the parts remains
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
