"""Everything beside one running task: its socket, its progress, its saves, its log, and the watch for silence.

In: requests of the task and its output. Out: events into the journal, objects into the store. It can be opened anew by
a restarted agent at any time; what it holds in memory only, the SDK sends again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, assert_never

from libs.kit.logs import get_logger
from services.agent import places, task
from services.agent.activity import Activity
from services.agent.core.model import Attempt, FellSilent, ReadySaid, Reported
from services.agent.handoff import LOG
from services.agent.logs import LogShipper
from services.agent.progress import ProgressBuffer
from services.agent.server import AttachOp, Op, ProgressOp, ReadyOp, SaveOp, SavesOp, SocketServer
from services.agent.tools import Tools
from services.agent.uploads import Uploads

START_WAIT_S = 60.0
RESTART_PAUSE_S = 1.0
LOOKS_PER_TIMEOUT = 10


class Attendant:
    """Attends one attempt from before its task starts until its exit is told."""

    def __init__(self, attempt: Attempt, folder: Path, tools: Tools, wake: Callable[[], None]) -> None:
        assert attempt.run is not None, "only an offered attempt has a task"
        self._attempt = attempt
        self._folder = folder
        self._tools = tools
        self._wake = wake
        self._started = asyncio.Event()
        self._activity = Activity()
        self._progress = ProgressBuffer(attempt.serial)
        self._kept = attempt.serial
        self._flushing = asyncio.Lock()
        self._hang_s = attempt.run.spec.hang_timeout_s
        self._uploads = Uploads(
            key=attempt.key,
            tenant=attempt.tenant,
            folder=folder / places.CHECKPOINTS,
            objects=tools.objects,
            journal=tools.journal,
            progress=self._progress,
            activity=self._activity,
            limit=tools.settings.pending_saves,
        )
        self._logs = LogShipper(
            key=attempt.key,
            tenant=attempt.tenant,
            folder=folder / LOG,
            bound=task.log_bound(tools.settings),
            objects=tools.objects,
            journal=tools.journal,
        )
        self._server = SocketServer(tools.places.socket(attempt.key), self._answer)
        self._loops: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Take up what an earlier agent left, listen, and begin to ship."""
        await self._uploads.load()
        await self._logs.load()
        await self._server.start()
        settings = self._tools.settings
        self._spawn("uploads", self._uploads.run)
        self._spawn("logs", lambda: self._logs.run(settings.log_s))
        self._spawn("progress", self._flush_often)
        if self._hang_s is not None:
            self._spawn("silence", self._watch_silence)

    def task_started(self) -> None:
        """The start is told to the scheduler; from now on the task is answered."""
        if not self._started.is_set():
            self._activity.touch()
            self._started.set()

    async def drain(self, limit_s: float) -> None:
        """The task is gone: get saves, log and progress out, in `limit_s` at most."""
        await self._server.close()
        try:
            async with asyncio.timeout(limit_s):
                await self._uploads.settled(limit_s)
                await self._logs.finish()
        except TimeoutError:
            get_logger().error("attempt.not_drained", **self._names(), pending=self._uploads.pending)
        await self._flush()

    async def close(self) -> None:
        """Stop all of it; what is not out stays noted down."""
        await self._server.close()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    async def _answer(self, op: Op) -> dict[str, Any]:
        async with asyncio.timeout(START_WAIT_S):
            await self._started.wait()
        match op:
            case AttachOp():
                self._activity.touch()
                return task.job_info(self._attempt, self._folder, self._kept).to_json()
            case ProgressOp():
                return await self._report(op)
            case SaveOp():
                self._activity.touch()
                await self._uploads.accept(op)
                return {}
            case SavesOp(wait_s=wait_s):
                await self._uploads.settled(wait_s)
                return {"pending": self._uploads.pending, "saved": await self._uploads.newest()}
            case ReadyOp(endpoint=endpoint):
                self._activity.touch()
                await self._tools.journal.apply(self._attempt.key, ReadySaid(endpoint))
                return {}
            case _:
                assert_never(op)

    async def _report(self, op: ProgressOp) -> dict[str, Any]:
        self._activity.touch()
        self._progress.add([(point.serial, point) for point in op.points])
        if op.flush or self._progress.full:
            await self._flush()
        return {"serial": self._kept}

    async def _flush(self) -> None:
        async with self._flushing:
            points, serial = self._progress.take()
            if points:
                try:
                    await self._tools.journal.apply(self._attempt.key, Reported(points, serial))
                except BaseException:
                    self._progress.put_back(points)
                    raise
            self._kept = serial

    async def _flush_often(self) -> None:
        while True:
            await asyncio.sleep(self._tools.settings.progress_s)
            await self._flush()

    async def _watch_silence(self) -> None:
        assert self._hang_s is not None, "only jobs with a hang_timeout_s are watched"
        await self._started.wait()
        while True:
            silent_s = self._activity.silent_s()
            if silent_s > self._hang_s:
                await self._tools.journal.apply(self._attempt.key, FellSilent(int(silent_s)))
                self._wake()
                return
            await asyncio.sleep(min(self._hang_s / LOOKS_PER_TIMEOUT, self._hang_s - silent_s + 0.01))

    def _spawn(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        self._loops.append(asyncio.create_task(self._forever(name, loop), name=f"{name} {self._attempt.key.job_id}"))

    async def _forever(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """A loop that failed (the disk was full, say) is begun again; the task does not pay for it."""
        while True:
            try:
                await loop()
            except Exception:  # noqa: BLE001 - logged whole, and the loop begins anew
                get_logger().exception("attendant.failed", loop=name, **self._names())
                await asyncio.sleep(RESTART_PAUSE_S)
            else:
                return

    def _names(self) -> dict[str, Any]:
        key = self._attempt.key
        return {"job": key.job_id, "attempt": key.attempt, "member": key.member}
