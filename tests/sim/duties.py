"""What an agent does with its attempts: claim, restore, start the task, watch it, bring its saves to the store.

Every answer may be late: an act looks at the row first, and does nothing where that has moved on.
"""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from contracts.attempts import ExitCause, Shard
from contracts.jobs import OnPartition
from contracts.requests import ClaimReply, ClaimRequest, RestoreReply, RestoreRequest
from services.agent.core.decide import binding
from services.agent.core.model import (
    Attempt,
    AttemptKey,
    Claimed,
    Drained,
    Duty,
    Ended,
    Inputs,
    NeverStarted,
    Phase,
    Prepared,
    PrepareFailed,
    StopOrder,
    Stored,
    TaskEnded,
    TaskSeen,
    duty,
    own_member,
)
from services.scheduler.core.arrays import CARD
from tests.sim.loop import SECOND, at
from tests.sim.machine import Proc
from tests.sim.names import job_name

if TYPE_CHECKING:
    from tests.sim.agent import Agent

RETRY_MS = SECOND
SPAWN_MS = 60
SEEN_MS = 20
SAVE_MS = 300
LATE_SHIM_MS = 3 * SECOND


class Duties:
    """The duties of one agent."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._loop = agent.loop
        self._busy: dict[AttemptKey, Phase] = {}
        self._uploading: set[tuple[AttemptKey, int]] = set()

    def forget(self) -> None:
        """The agent has started anew."""
        self._busy.clear()
        self._uploading.clear()

    def drive(self, key: AttemptKey) -> None:
        """Do the duty of the row's phase, unless that is being done."""
        row = self._agent.rows[key]
        owed = duty(row)
        if owed in {Duty.CLAIM, Duty.PREPARE}:
            if self._busy.get(key) is not row.phase:
                self._busy[key] = row.phase
                self._begin(key, row, owed)
            return
        self._busy.pop(key, None)
        if owed is Duty.SPAWN:
            self._spawn(key)
        elif owed is not Duty.NONE:
            self.look(key)

    def _begin(self, key: AttemptKey, row: Attempt, owed: Duty) -> None:
        start = self._agent.starts
        if owed is Duty.CLAIM:
            self._claim(start, key, row.phase, 1)
            return
        pause_ms = self._agent.bus.faults.amount(f"fetch {_name(key)} by {start}", 200, 6 * SECOND)
        self._later(pause_ms, start, self._restore, start, key, 1)

    def _later(self, pause_ms: int, start: int, act: Callable[..., None], *arguments: Any) -> None:
        self._loop.after(pause_ms, self._agent.when_awake, start, act, *arguments)

    # ---- claims and restores

    def _claim(self, start: int, key: AttemptKey, phase: Phase, count: int) -> None:
        agent, row = self._agent, self._agent.rows.get(key)
        if row is None or row.phase is not phase or row.run is None:
            return
        if not agent.machine.lease_runs:
            self._busy.pop(key, None)  # the next lease goes on from here
            return
        asked = ClaimRequest(
            job_id=key.job_id,
            tenant=row.tenant,
            attempt=key.attempt,
            generation=row.run.generation,
            member=key.member,
            node=agent.node,
            incarnation=agent.me.incarnation,
            endpoint=row.endpoint or "",
        )
        about = f"claim of {_name(key)} by {agent.node}, {phase} {start}.{count}"
        answer = partial(agent.when_awake, start, self._claimed, start, key, phase, count, agent.machine.epoch)
        self._ask(about, partial(agent.desks.claim, asked), answer)

    def _ask(self, about: str, serve: Callable[[], Any], answer: Callable[[Any], None]) -> None:
        cut_until = self._agent.machine.cut_until
        if cut_until is None:
            self._agent.bus.request(about, serve, answer)
        else:
            self._loop.at(cut_until + RETRY_MS, answer, None)

    def _claimed(
        self, start: int, key: AttemptKey, phase: Phase, count: int, epoch: int, reply: ClaimReply | None
    ) -> None:
        agent, row = self._agent, self._agent.rows.get(key)
        if row is None or row.phase is not phase or row.run is None:
            return
        if reply is not None and (not reply.granted or reply.go or phase is Phase.OFFERED):
            agent.apply(key, Claimed(reply.granted, reply.go, reply.rendezvous, reply.message, epoch))
            return
        waited_s = (agent.machine.wall - row.offered_at).total_seconds()
        if reply is None and phase is Phase.OFFERED and waited_s > row.run.spec.start_deadline_s:
            agent.apply(key, Claimed(granted=False, go=False, rendezvous=None, message="no answer", epoch=epoch))
            return
        self._later(RETRY_MS, start, self._claim, start, key, phase, count + 1)

    def _restore(self, start: int, key: AttemptKey, count: int) -> None:
        agent, row = self._agent, self._agent.rows.get(key)
        if row is None or row.phase is not Phase.CLAIMED or row.run is None:
            return
        asked = RestoreRequest(
            job_id=key.job_id,
            tenant=row.tenant,
            attempt=key.attempt,
            member=key.member,
            members=len(row.run.members),
            node=agent.node,
            binding=binding(row.run),
        )
        about = f"restore of {_name(key)} by {agent.node}, {start}.{count}"
        answer = partial(agent.when_awake, start, self._restored, start, key, count)
        self._ask(about, partial(agent.desks.restore, asked), answer)

    def _restored(self, start: int, key: AttemptKey, count: int, reply: RestoreReply | None) -> None:
        row = self._agent.rows.get(key)
        if row is None or row.phase is not Phase.CLAIMED:
            return
        if reply is None:
            self._later(RETRY_MS, start, self._restore, start, key, count + 1)
        elif reply.granted:
            self._agent.apply(key, Prepared(Inputs(restore_step=reply.step)))
        else:
            self._agent.apply(key, PrepareFailed(reply.message))

    # ---- the task

    def _spawn(self, key: AttemptKey) -> None:
        """Start the shim if this start of the agent was told to; that of an earlier one is only looked for."""
        agent = self._agent
        if key in agent.may_spawn:
            agent.may_spawn.discard(key)
            self._loop.after(SPAWN_MS, self._shim, agent.starts, key)
        elif key in agent.machine.procs:
            self.look(key)
        else:
            self._later(LATE_SHIM_MS, agent.starts, self._give_up, key)

    def _give_up(self, key: AttemptKey) -> None:
        if key not in self._agent.machine.procs:
            self._agent.apply(key, NeverStarted("no shim took the attempt up"))

    def _shim(self, start: int, key: AttemptKey) -> None:
        """The shim begins, if its agent still lives, and refuses what the lease or a stop forbids."""
        agent, machine = self._agent, self._agent.machine
        until_ms = agent.stopped_until_ms
        if start != agent.starts:
            return
        if until_ms is not None:
            self._loop.at(until_ms + 1, self._shim, start, key)
            return
        row = agent.rows[key]
        assert row.run is not None
        keeps = row.run.spec.on_partition is OnPartition.KEEP
        if row.phase is not Phase.SPAWNING:
            return
        if row.stop is not None or not (keeps or (machine.lease_runs and row.epoch == machine.epoch)):
            agent.apply(key, NeverStarted("stopped, or its lease has lapsed, before its task began"))
            return
        longest_s, now_ms = row.run.spec.max_runtime_s, self._loop.now_ms
        proc = Proc(
            key=key,
            work=agent.desks.work(key.job_id, key.attempt),
            started_ms=now_ms,
            first_step=row.inputs.restore_step or 0,
            keeps=keeps,
            ends_by_ms=None if longest_s is None else now_ms + longest_s * SECOND,
        )
        member = own_member(row.run)
        machine.begin(proc, tuple(member.cards), member.share_millionths or CARD, len(row.run.members))
        self._go_on(proc)
        self._later(SEEN_MS, start, self.look, key)

    def _go_on(self, proc: Proc) -> None:
        """Wait for the next step at which something happens to the task."""
        work, now_ms = proc.work, self._loop.now_ms
        step = proc.step_at(now_ms)
        turns = [work.steps]
        if work.save_every:
            turns.append((step // work.save_every + 1) * work.save_every)
        if work.fails_at > step:
            turns.append(work.fails_at)
        turn = max(step + 1, min(turns))
        due_ms = proc.started_ms + proc.lost_ms + (turn - proc.first_step) * work.step_ms
        if proc.ends_by_ms is not None:
            due_ms = min(due_ms, proc.ends_by_ms)
        self._loop.at(due_ms, self._turn, proc, turn)

    def _turn(self, proc: Proc, turn: int) -> None:
        machine, now_ms = self._agent.machine, self._loop.now_ms
        if not proc.alive or proc.stopping:
            return
        if machine.frozen_until is not None:
            self._loop.at(machine.frozen_until + 1, self._turn, proc, turn)
            return
        if proc.ends_by_ms is not None and now_ms >= proc.ends_by_ms:
            machine.end(proc, ExitCause.MAX_RUNTIME, None, "it ran as long as it may")
        elif proc.step_at(now_ms) < turn:
            self._go_on(proc)
            return
        elif turn >= proc.work.steps:
            machine.end(proc, ExitCause.COMPLETED, 0, "")
        elif turn == proc.work.fails_at:
            machine.end(proc, ExitCause.FAILED, 1, "the task failed")
        else:
            self.save(proc, turn)
            self._go_on(proc)
            return
        self._later(SEEN_MS, self._agent.starts, self.look, proc.key)

    def look(self, key: AttemptKey) -> None:
        """See what became of the task, and tell the row."""
        agent, row = self._agent, self._agent.rows.get(key)
        proc = agent.machine.procs.get(key)
        if row is None or proc is None or agent.stopped_until_ms is not None:
            return
        if row.phase is Phase.SPAWNING and proc.alive:
            agent.apply(key, TaskSeen(at(proc.started_ms + agent.machine.skew_ms)))
        elif row.phase in {Phase.SPAWNING, Phase.RUNNING} and not proc.alive:
            agent.apply(key, TaskEnded(proc.ended or self._vanished(proc)))
        elif row.phase is Phase.RUNNING and row.stop is not None:
            self._stop(proc, row.stop)
        elif row.phase is Phase.ENDING and not proc.saves:
            agent.apply(key, Drained())
        self._upload(proc)

    def _vanished(self, proc: Proc) -> Ended:
        machine = self._agent.machine
        started_at = at(proc.started_ms + machine.skew_ms)
        return Ended(ExitCause.KILLED, None, "the machine went down", started_at, machine.wall, unseen=True)

    def _stop(self, proc: Proc, order: StopOrder) -> None:
        """The shim asks the task to leave: it saves where it is, if the grace is long enough, and goes."""
        if proc.stopping:
            return
        proc.stopping = True
        grace_ms = int(order.grace_s * SECOND)
        saves = proc.work.save_every and proc.work.closing_ms <= grace_ms
        self._loop.after(min(grace_ms, proc.work.closing_ms), self._leave, proc, order, bool(saves))

    def _leave(self, proc: Proc, order: StopOrder, saves: bool) -> None:  # noqa: FBT001 - an argument of an act
        machine = self._agent.machine
        if machine.frozen_until is not None:
            self._loop.at(machine.frozen_until + 1, self._leave, proc, order, saves)
            return
        if proc.alive and saves:
            self.save(proc, proc.step_at(self._loop.now_ms))
        machine.end(proc, order.cause, 143, order.reason)
        self._later(SEEN_MS, self._agent.starts, self.look, proc.key)

    # ---- saves

    def save(self, proc: Proc, step: int) -> None:
        """The task hands over a checkpoint."""
        if step > proc.first_step and step not in proc.saves and step > proc.saved_step:
            proc.saved_step = step
            proc.saves.append(step)
            self._upload(proc)

    def _upload(self, proc: Proc) -> None:
        for step in proc.saves:
            if (proc.key, step) not in self._uploading:
                self._uploading.add((proc.key, step))
                self._later(SAVE_MS, self._agent.starts, self._stored, self._agent.starts, proc, step)

    def _stored(self, start: int, proc: Proc, step: int) -> None:
        agent, key = self._agent, proc.key
        if agent.machine.cut_until is not None:
            self._loop.at(agent.machine.cut_until + SAVE_MS, agent.when_awake, start, self._stored, start, proc, step)
            return
        self._uploading.discard((key, step))
        if step in proc.saves:
            proc.saves.remove(step)
            digest = sha256(f"{_name(key)} {step}".encode()).hexdigest()
            uri = f"s3://farside/{key.job_id}/{step}/{key.attempt}/{key.member}"
            shard = Shard(member=key.member, uri=uri, sha256=digest, size_bytes=1)
            agent.apply(key, Stored(step, shard, stall_ms=0, persist_ms=0))
        self.look(key)


def _name(key: AttemptKey) -> str:
    return f"{job_name(key.job_id)}/{key.attempt}/{key.member}"
