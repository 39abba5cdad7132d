"""A simulated agent around the agent's core: heartbeats, claims, restores, tasks, saves, usage.

Its journal, outbox and inbox survive its end; everything else begins anew with each start. Answers that come while it
is stopped wait for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contracts.attempts import ExitCause
from contracts.nodes import LiveAttempt, NodeFacts
from contracts.requests import ClaimReply, ClaimRequest, RestoreReply, RestoreRequest
from contracts.usage import UsageMeasured
from contracts.work import WorkRun, WorkStop
from services.agent.core.decide import decide
from services.agent.core.model import (
    Attempt,
    AttemptKey,
    Emit,
    Event,
    Offered,
    Phase,
    Speaker,
    StopAsked,
    StopOrder,
)
from services.agent.core.usage import HeldCard
from services.inventory.core.model import Announcement, Beat
from tests.sim.bus import LATENCY_MS, Bus, Mail
from tests.sim.duties import Duties
from tests.sim.inventory import Inventory
from tests.sim.loop import SECOND
from tests.sim.machine import Machine, Work
from tests.sim.meter import HOUR_S, Meter
from tests.sim.names import incarnation, job_name
from tests.sim.settings import Times
from tests.sim.truth import Truth

MIB = 1024 * 1024


@dataclass(frozen=True)
class Desks:
    """Whom an agent asks, and what its jobs' tasks do."""

    claim: Callable[[ClaimRequest], ClaimReply | None]
    restore: Callable[[RestoreRequest], RestoreReply | None]
    work: Callable[[str, int], Work]
    inventory: Inventory
    truth: Truth
    told_ms: dict[tuple[str, int], int]


class Agent:
    """The agent of one node."""

    def __init__(self, facts: NodeFacts, number: int, bus: Bus, times: Times, desks: Desks) -> None:
        self.name = f"agent {facts.node}"
        self.node = facts.node
        self.machine = Machine(facts.node, bus.loop, desks.truth)
        self.rows: dict[AttemptKey, Attempt] = {}
        self._facts = facts
        self._number = number
        self.bus = bus
        self.loop = bus.loop
        self._times = times
        self.desks = desks
        self._inbox: dict[int, None] = {}
        self.starts = 0
        self._said = 0
        self._counter = 0
        self._down_until: int | None = None
        self._halted_until: int | None = None
        self.may_spawn: set[AttemptKey] = set()
        self.live: dict[AttemptKey, None] = {}
        self._listed: str | None = None
        cards = {c.index: HeldCard(c.index, c.uuid, c.model, c.memory_bytes // MIB) for c in facts.cards}
        self.meter = Meter(self.machine, cards, times.usage_period_s, self.rows, desks.told_ms, self._measured)
        self.duties = Duties(self)
        bus.attach(facts.node, self)

    # ---- being there

    @property
    def me(self) -> Speaker:
        """The node, and this start of its agent."""
        return Speaker(self.node, incarnation(self._number * 1_000_000 + self.starts))

    def back_ms(self) -> int | None:
        """When the agent takes messages again, None when it does."""
        machine = self.machine
        if self._down_until is machine.down_until is machine.cut_until is None:
            return self.stopped_until_ms
        times = (self._down_until, self._halted_until, machine.down_until, machine.frozen_until, machine.cut_until)
        return max((ms for ms in times if ms is not None), default=None)

    @property
    def stopped_until_ms(self) -> int | None:
        """Until when the process does nothing; None while it runs."""
        halted, frozen = self._halted_until, self.machine.frozen_until
        if halted is None or frozen is None:
            return frozen if halted is None else halted
        return max(halted, frozen)

    def start(self) -> None:
        """A new start of the agent: it announces itself with what it has adopted, and goes on from the journal."""
        self.starts += 1
        self._down_until = None
        self.meter.awake_ms = self.loop.now_ms
        self.may_spawn.clear()
        self.duties.forget()
        self._tell(f"agent of {self.node} starts, start {self.starts}")
        announcement = Announcement(
            facts=self._facts,
            incarnation=self.me.incarnation,
            attempts=self._list(),
            announced_at=self.machine.wall,
            stored_at=self.machine.wall,
            replayed=False,
        )
        self._send("nodes.announced", announcement, self.node, self.starts)
        self._beat(self.starts)
        if self._times.usage_period_s < HOUR_S:
            self._measure(self.starts)
        for key in list(self.live):
            self.duties.drive(key)

    def crash(self, until_ms: int) -> None:
        """The agent ends; its tasks go on. It is started again later."""
        if self._down_until is None and self.machine.down_until is None:
            self._down_until = until_ms
            self._starts_again(until_ms)

    def _starts_again(self, until_ms: int) -> None:
        self.starts += 1  # what the start before was waiting for comes to nothing
        self.loop.at(until_ms, self.start)

    def stop_process(self, until_ms: int) -> None:
        """The agent alone is stopped, and goes on later as if nothing had been."""
        if self._down_until is None and self.machine.down_until is None:
            self._halted_until = until_ms
            self.loop.at(until_ms, self._wake)

    def freeze(self, until_ms: int) -> None:
        """The whole machine is stopped."""
        machine = self.machine
        if machine.down_until is None and machine.frozen_until is None:
            machine.freeze(until_ms)
            self.loop.at(until_ms, self._thaw, self.loop.now_ms)

    def _thaw(self, since_ms: int) -> None:
        """What was frozen after its lease had passed may still say something before its shim ends it."""
        machine = self.machine
        if machine.frozen_until is None:
            return
        machine.thaw(since_ms)
        if not machine.lease_runs:
            for proc in machine.procs.values():
                if proc.alive and not proc.keeps and proc.work.save_every:
                    self.duties.save(proc, proc.step_at(self.loop.now_ms) + 1)
        machine.lapse()
        self._wake()

    def _wake(self) -> None:
        if self._halted_until is not None and self._halted_until <= self.loop.now_ms:
            self._halted_until = None
        self.meter.awake_ms = self.loop.now_ms
        for key in list(self.live):
            self.duties.look(key)

    def power_off(self, until_ms: int) -> None:
        """The machine loses its power and comes back later."""
        if self.machine.down_until is None:
            self._halted_until = self._down_until = None
            self.machine.power_off(until_ms)
            self.starts += 1
            self.loop.at(until_ms, self.machine.power_on)
            self.loop.at(until_ms + 1, self.start)

    def cut(self, until_ms: int) -> None:
        """The node's link is cut until then."""
        self.machine.cut_until = until_ms
        self.loop.at(until_ms, self._join, until_ms)

    def _join(self, until_ms: int) -> None:
        if self.machine.cut_until == until_ms:
            self.machine.cut_until = None

    def when_awake(self, start: int, act: Callable[..., None], *arguments: Any) -> None:
        """Do it now, or once a stopped process goes on; never in another start."""
        if start != self.starts or self._down_until is not None or self.machine.down_until is not None:
            return
        until_ms = self.stopped_until_ms
        if until_ms is not None:
            self.loop.at(until_ms + 1, self.when_awake, start, act, *arguments)
        else:
            act(*arguments)

    # ---- heartbeats and the lease

    def _beat(self, start: int) -> None:
        if start != self.starts:
            return
        self.loop.after(self._times.heartbeat_s * SECOND, self._beat, start)
        if self.stopped_until_ms is not None or self.machine.cut_until is not None or not self.bus.up:
            return
        faults, about = self.bus.faults, f"heartbeat of {self.node} at {self.loop.now_ms}"
        if faults.hits("lost", faults.rates.drop, about):
            return
        self._counter += 1
        skew_ms = -self.machine.skew_ms
        lease_ms = self._times.lease_s * SECOND
        beat = Beat(self.node, self.me.incarnation, self._counter, lease_ms, skew_ms, self._list())
        pause_ms = faults.amount(about, 500, 8 * SECOND) if faults.hits("late", faults.rates.delay, about) else 1
        self.loop.after(pause_ms, self._store, start, beat, self.loop.now_ms, about)

    def _store(self, start: int, beat: Beat, sent_ms: int, about: str) -> None:
        if not self.bus.up:
            return
        self.desks.inventory.stream.store(beat)
        faults = self.bus.faults
        if not faults.hits("acknowledgement lost", faults.rates.ack_lost, about):
            self.loop.after(LATENCY_MS, self.when_awake, start, self._renew, sent_ms)

    def _renew(self, sent_ms: int) -> None:
        machine = self.machine
        if machine.cut_until is not None or machine.down_until is not None:
            return
        anew = machine.renew(sent_ms, self._times.lease_s * SECOND)
        if anew:
            for key in list(self.live):
                self.duties.drive(key)

    def _list(self) -> str:
        if self._listed is None:
            live = [
                LiveAttempt(job_id=key.job_id, attempt=key.attempt, member=key.member).model_dump_json()
                for key in sorted(self.live)
            ]
            self._listed = f"[{','.join(live)}]"
        return self._listed

    # ---- the journal

    def take(self, mail: Mail, attempt: str) -> bool:
        """An offer or a stop: inbox, row and outbox in one transaction of the journal."""
        assert attempt
        if mail.id in self._inbox:
            return True
        self._inbox[mail.id] = None
        body: WorkRun | WorkStop = mail.body
        key = AttemptKey(body.job_id, body.attempt, body.member)
        if isinstance(body, WorkRun):
            self.apply(key, Offered(body, f"{self._facts.address}:4000"))
        else:
            order = StopOrder(ExitCause.STOPPED, float(body.grace_s), body.reason)
            self.apply(key, StopAsked(key, body.tenant, order))
        return True

    def forget(self, mail: Mail) -> None:
        """No copy will come any more."""
        self._inbox.pop(mail.id, None)

    def apply(self, key: AttemptKey, event: Event) -> None:
        """Let the core decide, write the row and send what it says."""
        before = self.rows.get(key)
        effects = decide(before, event, self.me, self.machine.wall)
        for effect in effects:
            if isinstance(effect, Emit):
                subject = f"{job_name(key.job_id)}/{key.attempt}/{key.member}"
                topic = f"{effect.message.domain}.{effect.message.name}"
                self._send(topic, effect.body, subject, effect.sequence)
            else:
                self._record(before, effect.attempt)
        if effects:
            self.duties.drive(key)

    def _record(self, before: Attempt | None, after: Attempt) -> None:
        key = after.key
        self.rows[key] = after
        if after.phase is Phase.EXITED:
            self.live.pop(key, None)
            self._listed = None
            self.loop.after(self._times.keep_s * SECOND, self._drop, key)
        elif key not in self.live:
            self.live[key] = None
            self._listed = None
        self.meter.follow(before, after)
        if before is not None and after.phase is Phase.SPAWNING and before.phase is not Phase.SPAWNING:
            self.may_spawn.add(key)
        if before is None or before.phase is not after.phase:
            words = f"{self.node}: {job_name(key.job_id)}/{key.attempt}/{key.member} is {after.phase}"
            ended = "" if after.ended is None else f" ({after.ended.cause}: {after.ended.message})"
            self._tell(words + ended, job_name(key.job_id))

    def _drop(self, key: AttemptKey) -> None:
        self.rows.pop(key, None)
        self.machine.procs.pop(key, None)

    def _send(self, topic: str, body: Any, subject: str, sequence: int) -> None:
        """Put a message into the outbox, which is published once the bus can be reached."""
        mail = Mail(self.bus.next_id(), topic, self.node, subject, sequence, body)
        faults, about, pause_ms = self.bus.faults, f"{mail.about} of {self.node}", LATENCY_MS
        if faults.hits("outbox slow", faults.rates.outbox_slow, about):
            pause_ms = faults.amount(f"slow {about}", 500, 10 * SECOND)
        self.loop.after(pause_ms, self._publish, mail)

    def _publish(self, mail: Mail) -> None:
        back_ms = self.back_ms()
        if back_ms is not None:
            self.loop.at(back_ms + LATENCY_MS, self._publish, mail)
        else:
            self.bus.publish(mail)

    def _measured(self, body: UsageMeasured) -> None:
        self._said += 1
        self._send("usage.measured", body, self.node, self._said)

    def _measure(self, start: int) -> None:
        """Every full minute, tell what is held."""
        if start != self.starts:
            return
        period_ms = self._times.usage_period_s * SECOND
        self.loop.after(period_ms - self.loop.now_ms % period_ms + 10, self._measure, start)
        if self.stopped_until_ms is None:
            procs = self.machine.procs
            tasks = (key for key in self.live if key not in procs or procs[key].alive)
            self.meter.measure(frozenset(tasks))

    def _tell(self, text: str, *tags: str) -> None:
        self.bus.story.tell(self.loop.now_ms, text, self.node, *tags)
