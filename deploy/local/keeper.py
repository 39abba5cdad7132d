"""Keeps one part alive: starts it, waits until it does its work, starts it again when it dies, ends it.

A restart waits longer after each failure in a row, up to a cap; after a steady while the count begins anew.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import PartFailedError
from deploy.local.part import Part, PartState, PartStatus
from deploy.local.process import Child, describe_exit, spawn
from libs.kit.retry import delay

PROBE_S = 0.1
RESTART_FIRST_S, RESTART_CAP_S = 0.2, 10.0
STEADY_S = 30.0


@dataclass(frozen=True)
class Hooks:
    """What the stack is told: `say` gets a part's name, a word and the rest of a line; children come and go."""

    say: Callable[[str, str, str], None]
    born: Callable[[Child], None]
    gone: Callable[[Child], None]


def restart_delay_s(failures: int) -> float:
    """Seconds to wait before the restart that follows `failures` (at least 1) failures in a row."""
    return delay(failures - 1, RESTART_FIRST_S, RESTART_CAP_S)


class Keeper:
    """One part and its process."""

    def __init__(self, part: Part, log_path: Path, hooks: Hooks) -> None:
        self.part = part
        self.state = PartState.WAITING
        self.restarts = 0
        self._log_path = log_path
        self._hooks = hooks
        self._child: Child | None = None
        self._up_since: float | None = None
        self._failures = 0
        self._held = False
        self._hurry = asyncio.Event()
        self._minding: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Pid of the running process."""
        return None if self._child is None or self._child.code is not None else self._child.pid

    def status(self) -> PartStatus:
        """The part at this moment."""
        part = self.part
        up_s = None if self._up_since is None else time.monotonic() - self._up_since
        return PartStatus(part.name, self.state, self.pid, self.restarts, up_s, part.version, part.detail)

    async def start(self) -> None:
        """Bring the part up and mind it from then on. Raises PartFailedError when it ends or takes too long."""
        try:
            async with asyncio.timeout(self.part.start_s):
                await self._bring_up()
        except TimeoutError:
            reason = f"not ready after {self.part.start_s:g} s"
            raise self._failed(reason) from None
        self._minding = asyncio.create_task(self._mind(), name=f"mind {self.part.name}")
        self._minding.add_done_callback(self._mind_ended)

    def hold(self) -> None:
        """Do not start it again when it ends; a process that runs goes on."""
        self._held = True
        if self.state is PartState.RESTARTING:
            self.state = PartState.HELD
        self._hurry.set()

    def release(self) -> None:
        """Start it again when it ends, and at once when it is down."""
        self._held = False
        self._failures = 0
        self._hurry.set()

    async def stop_process(self) -> None:
        """End the process that runs now, in its orderly way; without `hold` it is started again."""
        if self._child is not None:
            await self._child.stop(self.part.stop_signal, self.part.stop_s)

    async def stop(self) -> None:
        """End the part for good."""
        if self._minding is not None:
            self._minding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._minding
        await self.stop_process()
        self._forget()
        self.part.tidy()
        self.state = PartState.STOPPED

    def kill(self) -> None:
        """SIGKILL, now."""
        if self._child is not None:
            self._child.kill()

    async def _bring_up(self) -> None:
        self.state = PartState.STARTING
        await self.part.prepare()
        try:
            self._child = child = await spawn(self.part.command, self._log_path)
        except OSError as error:
            reason = f"it cannot be run: {error}"
            raise self._failed(reason) from None
        self._hooks.born(child)
        ended = asyncio.create_task(child.wait())
        try:
            await self._until_ready(ended)
        finally:
            if not ended.done():
                ended.cancel()
        self._up_since = time.monotonic()
        self.state = PartState.UP

    async def _until_ready(self, ended: asyncio.Task[int]) -> None:
        """Probe until it says yes, for as long as the process runs; the caller sets the limit."""
        while not await self._probe(ended):
            if ended.done():
                raise self._failed(describe_exit(ended.result()))
            await asyncio.wait({ended}, timeout=PROBE_S)

    async def _probe(self, ended: asyncio.Task[int]) -> bool:
        """One probe, given up when the process ends meanwhile; what the probe raises is the part's failure."""
        probing = asyncio.ensure_future(self.part.probe())
        probing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait({probing, ended}, return_when=asyncio.FIRST_COMPLETED)
            return not ended.done() and probing.result()
        except Exception as error:
            reason = f"it runs, but {type(error).__name__}: {error}"
            raise self._failed(reason) from error
        finally:
            probing.cancel()

    def _failed(self, reason: str) -> PartFailedError:
        self.state = PartState.FAILED
        if self._child is None:
            return PartFailedError(self.part.name, reason)
        log = self._child.log
        return PartFailedError(self.part.name, reason, log.path, log.tail())

    async def _mind(self) -> None:
        """Until cancelled: wait for the end, then wait some more or for a release, then start it again."""
        while True:
            how = "did not start" if self._child is None else describe_exit(await self._child.wait())
            if self._up_since is not None and time.monotonic() - self._up_since > STEADY_S:
                self._failures = 0
            self._forget()
            await self._pause(how)
            self.restarts += 1
            try:
                await self._bring_up()
                self._hooks.say(self.part.name, "up", "again")
            except PartFailedError:  # its end is noticed, counted and told at the top of the loop
                await self.stop_process()

    async def _pause(self, how: str) -> None:
        """Wait for the restart's turn; as long as the part is held, wait for its release."""
        self._failures += 1
        wait_s = restart_delay_s(self._failures)
        if not self._held:
            self.state = PartState.RESTARTING
            self._hooks.say(self.part.name, "died", f"{how}; starts again in {wait_s:.1f} s, see {self._log_path}")
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), wait_s)
        if self._held:
            self._hooks.say(self.part.name, "held", f"{how}; stays down until it is released")
        while self._held:
            self.state = PartState.HELD
            self._hurry.clear()
            await self._hurry.wait()

    def _mind_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.state = PartState.FAILED
            self._hooks.say(self.part.name, "lost", f"its supervision ended, a mistake in the stack: {error!r}")

    def _forget(self) -> None:
        self._up_since = None
        if self._child is not None:
            self._hooks.gone(self._child)
            self._child = None
