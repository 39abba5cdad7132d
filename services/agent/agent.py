"""The agent as a whole: announcement, heartbeats, one runner for each attempt, and tidying up.

In: the journal and the bus. Out: `nodes.announced` once a start, heartbeats straight to the stream, and every
unfinished attempt in the hands of a runner, those of an earlier agent first of all.
"""

import asyncio
import math
import shutil
from datetime import timedelta

from nats.errors import Error as NatsError

from contracts import registry
from contracts.nodes import LiveAttempt, NodeAnnounced, NodeFacts, NodeHeartbeat
from libs.bus import BusError
from libs.kit.logs import get_logger
from libs.kit.retry import delay
from services.agent import proctree, store
from services.agent.core.model import AttemptKey
from services.agent.runner import Runner
from services.agent.tools import Tools

SCAN_S = 5.0
CLEAN_S = 30.0
RESTART_FIRST_S = 0.5
RESTART_CAP_S = 30.0
ROWS_KEPT = timedelta(seconds=registry.WORK_CMD.max_age_s + registry.DAY_S)


class Agent:
    """Everything an agent does outside its handlers."""

    def __init__(self, tools: Tools, facts: NodeFacts) -> None:
        self._tools = tools
        self._facts = facts
        self._runners: dict[AttemptKey, Runner] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._live: set[AttemptKey] = set()
        self._changed = asyncio.Event()
        self._announced = False
        self._heard = True
        self._round_trip_ms: int | None = None

    def wake(self, key: AttemptKey) -> None:
        """The row of an attempt changes in the transaction that calls this; look at it once it has committed."""
        runner = self._runners.get(key)
        if runner is not None:
            runner.nudge()
        self._changed.set()

    async def supervise(self) -> None:
        """Keep a runner for every unfinished attempt."""
        self._tools.lease.load()
        self._tools.cache.clear_parts()
        await self._announce()
        try:
            while True:
                self._changed.clear()
                self._live = {attempt.key for attempt in await self._tools.journal.read(store.unfinished)}
                for key in self._live - self._runners.keys():
                    self._start(key)
                await self._changed_within(SCAN_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._runners.clear()

    async def heartbeats(self) -> None:
        """Say every `heartbeat_s` that the node lives; each PubAck renews the lease from before the sending."""
        self._tools.lease.load()
        self._live = {attempt.key for attempt in await self._tools.journal.read(store.unfinished)}
        counter = 0
        interval_s = self._tools.settings.heartbeat_s
        while True:
            counter += 1
            sent = proctree.boottime()
            await self._heartbeat(counter, sent, interval_s)
            await asyncio.sleep(max(0.0, sent + interval_s - proctree.boottime()))

    async def clean(self) -> None:
        """Remove the folders of exited attempts beyond the bound, and rows that no message can concern any more."""
        settings = self._tools.settings
        while True:
            now = self._tools.journal.clock.now()
            before = now - timedelta(seconds=settings.keep_attempts_s)
            keys = await self._tools.journal.read(
                lambda conn, before=before: store.cleanable(conn, settings.keep_attempts, before)
            )
            for key in keys:
                await asyncio.to_thread(self._remove, key)
                await self._tools.journal.read(lambda conn, key=key: store.mark_cleaned(conn, key))
            await self._tools.journal.read(lambda conn, now=now: store.forget(conn, now - ROWS_KEPT))
            await asyncio.sleep(CLEAN_S)

    async def _announce(self) -> None:
        if self._announced:
            return
        me, clock = self._tools.journal.me, self._tools.journal.clock
        async with self._tools.journal.transaction() as tx:
            live = [_live(attempt.key) for attempt in store.unfinished(tx.conn)]
            body = NodeAnnounced(facts=self._facts, incarnation=me.incarnation, attempts=live, announced_at=clock.now())
            tx.emit(
                registry.NODES_ANNOUNCED,
                body,
                key=me.node,
                subject=me.node,
                sequence=store.count_up(tx.conn, "announcements"),
                actor=f"agent/{me.node}",
                incarnation=me.incarnation,
            )
        self._announced = True
        get_logger().info("node.announced", node=me.node, incarnation=me.incarnation, attempts=len(live))

    async def _heartbeat(self, counter: int, sent: float, timeout_s: float) -> None:
        me = self._tools.journal.me
        body = NodeHeartbeat(
            node=me.node,
            incarnation=me.incarnation,
            counter=counter,
            lease_s=math.ceil(self._tools.settings.lease_s),
            attempts=[_live(key) for key in sorted(self._live)],
            sent_at=self._tools.journal.clock.now(),
            round_trip_ms=self._round_trip_ms,
        )
        try:
            await self._tools.client().publish(
                registry.NODES_HEARTBEAT,
                body,
                key=me.node,
                subject=me.node,
                sequence=counter,
                actor=f"agent/{me.node}",
                incarnation=me.incarnation,
                timeout_s=timeout_s,
            )
            self._round_trip_ms = int((proctree.boottime() - sent) * 1000)
            await self._tools.lease.renew(sent)
        except (NatsError, BusError, OSError, TimeoutError) as error:
            if self._heard:
                get_logger().warning("heartbeat.unheard", node=me.node, error=repr(error))
            self._heard = False
            return
        if not self._heard:
            get_logger().info("heartbeat.heard", node=me.node)
        self._heard = True

    def _start(self, key: AttemptKey) -> None:
        runner = Runner(key, self._tools)
        self._runners[key] = runner
        task = asyncio.create_task(self._drive(key), name=f"attempt {key.job_id}/{key.attempt}/{key.member}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drive(self, key: AttemptKey) -> None:
        """Run the attempt to its end; a runner that fails is replaced, for the row says how to go on."""
        failures = 0
        while True:
            try:
                await self._runners[key].run()
            except Exception:  # noqa: BLE001 - logged whole; the next runner goes on from the row
                get_logger().exception("attempt.runner_failed", job=key.job_id, attempt=key.attempt)
                await asyncio.sleep(delay(failures, RESTART_FIRST_S, RESTART_CAP_S))
                failures += 1
                self._runners[key] = Runner(key, self._tools)
            else:
                self._runners.pop(key, None)
                self._live.discard(key)
                return

    async def _changed_within(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _remove(self, key: AttemptKey) -> None:
        folder = self._tools.places.folder(key)
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()


def _live(key: AttemptKey) -> LiveAttempt:
    return LiveAttempt(job_id=key.job_id, attempt=key.attempt, member=key.member)
