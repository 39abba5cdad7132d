"""One attempt driven to its end: look at the row, do the duty of its phase, feed the outcome back.

In: a journal row in any phase, of this agent or of the one before. Out: exactly one `exited`. A stop interrupts
whatever waits before the spawn; after it, it reaches the shim.
"""

import asyncio
import shutil
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, assert_never

from contracts import registry
from contracts.attempts import ExitCause
from contracts.requests import ClaimReply, ClaimRequest, ProblemCode
from libs.bus import BusError, Problem
from libs.kit.logs import get_logger
from libs.kit.retry import delays
from libs.telemetry import context, spans
from services.agent import handoff, places, proctree, store, task
from services.agent.attendant import Attendant
from services.agent.core.model import (
    Attempt,
    AttemptKey,
    Claimed,
    Drained,
    Duty,
    Ended,
    Event,
    NeverStarted,
    Phase,
    Prepared,
    PrepareFailed,
    StopOrder,
    TaskEnded,
    TaskSeen,
    duty,
)
from services.agent.core.usage import STOPPED_S
from services.agent.errors import InputError
from services.agent.executor import Absent, Alive, GivenUp, Gone, Sighting, Vanished
from services.agent.tools import Tools

CLAIM_TIMEOUT_S = 5.0
CLAIM_FIRST_S = 0.1
CLAIM_CAP_S = 1.0
SPAWN_TIMEOUT_S = 60.0
LATE_SHIM_S = 3.0
NEVER = "no shim took the attempt up: the agent ended between its decision to start and the start"
LOOK_FIRST_S = 0.02
LOOK_CAP_S = 0.25


class Runner:
    """Drives one attempt."""

    def __init__(self, key: AttemptKey, tools: Tools) -> None:
        self._key = key
        self._tools = tools
        self._folder = tools.places.folder(key)
        self._nudged = asyncio.Event()
        self._attendant: Attendant | None = None
        self._may_spawn = False
        self._alive_at: float | None = None
        self._give_up_at = proctree.boottime() + LATE_SHIM_S
        self._pins: list[str] = []
        self._log = get_logger().bind(job=key.job_id, attempt=key.attempt, member=key.member)

    def nudge(self) -> None:
        """The row has changed from outside: look again."""
        self._nudged.set()

    async def run(self) -> None:
        """Return when the attempt has exited. Safe to cancel and to begin anew at any point.

        All of it belongs to the trace of the job: what is asked, told and logged.
        """
        trace = await self._tools.journal.read(lambda conn: store.trace_of(conn, self._key))
        with context.within(trace):
            spans.annotate(job=self._key.job_id, attempt=self._key.attempt, node=self._tools.journal.me.node)
            await self._run()

    async def _run(self) -> None:
        try:
            attempt = await self._tools.journal.apply(self._key)
            if attempt is not None and attempt.inputs.dataset is not None:
                self._pin(self._tools.cache.name_of(attempt.inputs.dataset))
            while attempt is not None and attempt.phase is not Phase.EXITED:
                self._nudged.clear()
                attempt = await self._step(attempt)
            await asyncio.to_thread(self._tidy)
        finally:
            await self._let_go()

    async def _step(self, attempt: Attempt) -> Attempt | None:
        event = await self._do(attempt)
        events = () if event is None else (event,)
        after = await self._tools.journal.apply(self._key, *events)
        if after is not None and after.phase is not attempt.phase:
            self._may_spawn = after.phase is Phase.SPAWNING
            self._log.info("attempt.phase", phase=after.phase.value, after=type(event).__name__)
            self._record(after)
        return after

    def _record(self, attempt: Attempt) -> None:
        """A span for the whole run, once it is over; none where nobody saw when it ended."""
        ended = attempt.ended
        if ended is None or ended.unseen or ended.started_at is None:
            return
        if attempt.phase is Phase.EXITED:
            about: dict[str, Any] = {
                "farside.job": self._key.job_id,
                "farside.attempt": self._key.attempt,
                "farside.member": self._key.member,
                "farside.tenant": attempt.tenant,
                "farside.node": self._tools.journal.me.node,
                "farside.cause": ended.cause.value,
            }
            spans.record("run attempt", start=ended.started_at, end=max(ended.started_at, ended.ended_at), **about)

    async def _do(self, attempt: Attempt) -> Event | None:
        """The duty of the phase; None when the row changed meanwhile."""
        owed = duty(attempt)
        match owed:
            case Duty.CLAIM:
                return await self._interruptible(self._claim(attempt))
            case Duty.PREPARE:
                return await self._interruptible(self._prepare(attempt))
            case Duty.SPAWN:
                return await self._spawn(attempt)
            case Duty.WATCH:
                return await self._watch(attempt)
            case Duty.DRAIN:
                await (await self._attended(attempt)).drain(self._tools.settings.drain_s)
                return Drained()
            case Duty.NONE:
                return None
            case _:
                assert_never(owed)

    async def _interruptible(self, work: Coroutine[None, None, Event]) -> Event | None:
        doing = asyncio.create_task(work)
        nudge = asyncio.create_task(self._nudged.wait())
        try:
            await asyncio.wait((doing, nudge), return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            for each in (doing, nudge):
                each.cancel()
            await asyncio.gather(doing, nudge, return_exceptions=True)

    async def _claim(self, attempt: Attempt) -> Event:
        """Ask until the scheduler says yes or no; with everything prepared, until it says go."""
        assert attempt.run is not None, "only an offered attempt is claimed"
        assert attempt.endpoint is not None, "an offer comes with an address"
        self._tools.ports.hold(self._key, attempt.endpoint)
        deadline_s = attempt.run.spec.start_deadline_s
        for delay_s in delays(CLAIM_FIRST_S, CLAIM_CAP_S):
            epoch = await self._tools.lease.wait_valid()
            reply = await self._ask(attempt, attempt.endpoint)
            if reply is not None and (not reply.granted or reply.go or attempt.phase is Phase.OFFERED):
                return Claimed(reply.granted, reply.go, reply.rendezvous, reply.message, epoch)
            waited_s = (self._tools.journal.clock.now() - attempt.offered_at).total_seconds()
            if reply is None and attempt.phase is Phase.OFFERED and waited_s > deadline_s:
                words = f"the scheduler did not answer within start_deadline_s = {deadline_s}"
                return Claimed(granted=False, go=False, rendezvous=None, message=words, epoch=epoch)
            await asyncio.sleep(delay_s)
        raise AssertionError(attempt.key)

    async def _ask(self, attempt: Attempt, endpoint: str) -> ClaimReply | None:
        assert attempt.run is not None, "only an offered attempt is claimed"
        me = self._tools.journal.me
        request = ClaimRequest(
            job_id=self._key.job_id,
            tenant=attempt.tenant,
            attempt=self._key.attempt,
            generation=attempt.run.generation,
            member=self._key.member,
            node=me.node,
            incarnation=me.incarnation,
            endpoint=endpoint,
        )
        try:
            return await self._tools.client().request(
                registry.CALL_CLAIM, request, key=me.node, timeout_s=CLAIM_TIMEOUT_S
            )
        except Problem as problem:
            if problem.code in (ProblemCode.INVALID, ProblemCode.NOT_FOUND):
                return ClaimReply(granted=False, message=problem.message)
            self._log.warning("claim.unanswered", error=str(problem))
            return None
        except BusError as error:
            self._log.warning("claim.unanswered", error=str(error))
            return None

    async def _prepare(self, attempt: Attempt) -> Event:
        assert attempt.run is not None, "only an offered attempt is prepared"
        for name in (places.CHECKPOINTS, places.TEMPORARY):
            await asyncio.to_thread((self._folder / name).mkdir, parents=True, exist_ok=True, mode=0o700)
        limit_s = self._tools.settings.prepare_s
        try:
            async with asyncio.timeout(limit_s):
                return Prepared(await self._tools.fetcher.fetch(attempt.run, self._folder, self._pin))
        except InputError as error:
            self._log.error("attempt.not_prepared", error=str(error))
            return PrepareFailed(str(error))
        except TimeoutError:
            self._log.error("attempt.not_prepared_in_time", limit_s=limit_s)
            words = f"code, data and checkpoint were not on the node after FARSIDE_PREPARE_S = {limit_s:g}"
            return PrepareFailed(words, hopeless=False)

    async def _spawn(self, attempt: Attempt) -> Event | None:
        """Start the shim if this very runner was told to; the shim of an earlier agent is only looked for."""
        attendant = await self._attended(attempt)
        if attempt.stop is not None:
            self._order_stop(attempt.stop)
        if self._may_spawn:
            self._may_spawn = False
            self._tools.ports.release(self._key)
            self._give_up_at = proctree.boottime() + SPAWN_TIMEOUT_S
            await asyncio.to_thread(self._start_shim, attempt)
        event = await self._settle()
        if isinstance(event, TaskSeen):
            attendant.task_started()
        return event

    def _start_shim(self, attempt: Attempt) -> None:
        tools = self._tools
        socket = tools.places.socket(self._key)
        plan = task.plan(attempt, self._folder, socket, tools.cards, tools.lease.path, tools.settings)
        try:
            tools.executor.spawn(self._folder, plan)
        except OSError as error:
            self._log.error("attempt.not_spawned", error=str(error))
            self._give_up_at = proctree.boottime()

    async def _settle(self) -> Event | None:
        """What became of the spawn. Once it is time to give up, a shim that has not come never will.

        One that an earlier agent started with its last breath gets LATE_SHIM_S to appear.
        """
        for delay_s in delays(LOOK_FIRST_S, LOOK_CAP_S):
            sighting = self._look()
            match sighting:
                case GivenUp():
                    return NeverStarted(NEVER)
                case Absent():
                    if proctree.boottime() >= self._give_up_at and self._tools.executor.renounce(self._folder):
                        return NeverStarted(NEVER)
                case Alive(started_at):
                    if started_at is not None:
                        return TaskSeen(datetime.fromisoformat(started_at))
                case Gone() | Vanished():
                    return await self._task_ended(sighting)
                case _:
                    assert_never(sighting)
            if await self._nudged_within(delay_s):
                return None
        raise AssertionError(self._key)

    async def _watch(self, attempt: Attempt) -> Event | None:
        """Until the task ends, or the row changes."""
        attendant = await self._attended(attempt)
        attendant.task_started()
        if attempt.stop is not None:
            self._order_stop(attempt.stop)
        while True:
            sighting = self._look()
            if isinstance(sighting, Gone | Vanished):
                return await self._task_ended(sighting)
            if await self._nudged_within(LOOK_CAP_S):
                return None

    async def _task_ended(self, sighting: Gone | Vanished) -> Event:
        match sighting:
            case Gone(ending):
                started_at = None if ending.started_at is None else datetime.fromisoformat(ending.started_at)
                ended_at = datetime.fromisoformat(ending.ended_at)
                cause = ExitCause(ending.cause)
                return TaskEnded(Ended(cause, ending.exit_code, ending.message, started_at, ended_at))
            case Vanished(started):
                unseen = self._alive_at is None or proctree.boottime() - self._alive_at > STOPPED_S
                await asyncio.to_thread(self._tools.executor.sweep, self._folder)
                started_at = None if started is None else datetime.fromisoformat(started)
                words = "the shim died without a word: it was killed, or the machine went down"
                now = self._tools.journal.clock.now()
                return TaskEnded(Ended(ExitCause.KILLED, None, words, started_at, now, unseen))

    def _look(self) -> Sighting:
        sighting = self._tools.executor.look(self._folder)
        if isinstance(sighting, Alive):
            self._alive_at = proctree.boottime()
        return sighting

    def _order_stop(self, order: StopOrder) -> None:
        stop = handoff.Stop(order.cause.value, order.grace_s, proctree.boottime(), order.reason)
        self._tools.executor.stop(self._folder, stop)

    async def _nudged_within(self, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                return await self._nudged.wait()
        except TimeoutError:
            return False

    async def _attended(self, attempt: Attempt) -> Attendant:
        if self._attendant is None:
            attendant = Attendant(attempt, self._folder, self._tools, self.nudge)
            await attendant.open()
            self._attendant = attendant
        return self._attendant

    def _pin(self, name: str | None) -> None:
        if name is not None:
            self._tools.cache.pin(name)
            self._pins.append(name)

    def _tidy(self) -> None:
        """What only the living attempt needed goes at once; the rest stays for a while."""
        self._tools.places.socket(self._key).unlink(missing_ok=True)
        for name in (places.CHECKPOINTS, places.RESTORE, places.TEMPORARY):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    async def _let_go(self) -> None:
        if self._attendant is not None:
            await self._attendant.close()
        self._tools.ports.release(self._key)
        for name in self._pins:
            self._tools.cache.unpin(name)
