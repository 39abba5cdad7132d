"""A node's machine: its power, its clock, its link, and the tasks under their shims.

A task lives apart from the agent: it outlives the agent's end, and its shim ends it when the lease passes. A machine
that is frozen does nothing at all, and wakes up in the middle of what it did.
"""

from dataclasses import dataclass, field
from datetime import datetime

from contracts.attempts import ExitCause
from services.agent.core.model import AttemptKey, Ended
from tests.sim.loop import Loop, at
from tests.sim.truth import Task, Truth

LEAD_MS = 1000


@dataclass(frozen=True)
class Work:
    """What a task does: `steps` of `step_ms` each, a save after each `save_every` (0: never).

    It fails at step `fails_at` (0: never). `closing_ms` is how long it takes to leave when it is told to.
    """

    steps: int
    step_ms: int
    save_every: int
    fails_at: int
    closing_ms: int
    serves: bool = False


@dataclass
class Proc:
    """A task's process under its shim."""

    key: AttemptKey
    work: Work
    started_ms: int
    first_step: int
    keeps: bool
    ends_by_ms: int | None
    saves: list[int] = field(default_factory=list[int])
    ended: Ended | None = None
    vanished: bool = False
    stopping: bool = False
    lost_ms: int = 0
    saved_step: int = 0

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.ended is None and not self.vanished

    def step_at(self, now_ms: int) -> int:
        """The last step that it has done."""
        done = (now_ms - self.started_ms - self.lost_ms) // self.work.step_ms
        return min(self.work.steps, self.first_step + max(0, done))


class Machine:
    """Power, clock, link and tasks of one node."""

    def __init__(self, name: str, loop: Loop, truth: Truth) -> None:
        self.name = name
        self.loop = loop
        self.truth = truth
        self.skew_ms = 0
        self.boot = 1
        self.booted_ms = 0
        self.down_until: int | None = None
        self.frozen_until: int | None = None
        self.cut_until: int | None = None
        self.deadline_ms = 0
        self.epoch = 0
        self.lapsed_ms: int | None = None
        self.procs: dict[AttemptKey, Proc] = {}
        self._watched = False

    @property
    def wall(self) -> datetime:
        """The node's time of day."""
        return at(self.loop.now_ms + self.skew_ms)

    @property
    def lease_runs(self) -> bool:
        """Whether the lease stands at this moment."""
        return self.loop.now_ms < self.deadline_ms

    def renew(self, sent_ms: int, lease_ms: int) -> bool:
        """A heartbeat sent at `sent_ms` was acknowledged; whether the lease runs anew."""
        now_ms, deadline_ms = self.loop.now_ms, sent_ms + lease_ms
        if deadline_ms <= now_ms or deadline_ms <= self.deadline_ms:
            return False
        anew = now_ms >= self.deadline_ms
        if anew:
            self.epoch += 1
            self.lapsed_ms = self.deadline_ms or None
        self.deadline_ms = deadline_ms
        if not self._watched:
            self._watched = True
            self.loop.at(deadline_ms - LEAD_MS, self._watch)
        return anew

    def _watch(self) -> None:
        """The shims look at the deadline of the lease: it has moved on, or it is there."""
        self._watched = self.loop.now_ms < self.deadline_ms - LEAD_MS
        if self._watched:
            self.loop.at(self.deadline_ms - LEAD_MS, self._watch)
        else:
            self.lapse()

    def lease_end(self, epoch: int) -> int | None:
        """When the lease of that number ran out or runs out, None where that is not known."""
        if epoch == self.epoch:
            return self.deadline_ms or None
        return self.lapsed_ms if epoch == self.epoch - 1 else None

    def begin(self, proc: Proc, cards: tuple[int, ...], share: int, members: int) -> None:
        """A shim has started its task."""
        key = proc.key
        self.procs[key] = proc
        task = Task(self.name, cards, share, proc.keeps)
        self.truth.task_begins((key.job_id, key.attempt, key.member), task, members)

    def end(self, proc: Proc, cause: ExitCause, code: int | None, words: str) -> None:
        """The task ends, and its shim writes down how."""
        if proc.alive:
            proc.ended = Ended(cause, code, words, at(proc.started_ms + self.skew_ms), self.wall)
            self.truth.task_ends((proc.key.job_id, proc.key.attempt, proc.key.member))

    def lapse(self) -> None:
        """The lease may have passed: shims end their tasks; those of a frozen machine cannot, and do nothing else."""
        if self.loop.now_ms < self.deadline_ms - LEAD_MS:
            return
        for proc in list(self.procs.values()):
            if proc.alive and not proc.keeps:
                if self.frozen_until is None:
                    self.end(proc, ExitCause.LEASE_EXPIRED, None, "the node's lease ran out")
                else:
                    self.truth.task_is_zombie((proc.key.job_id, proc.key.attempt, proc.key.member))

    def power_off(self, until_ms: int) -> None:
        """Everything on the machine is gone; its disks are not."""
        self.down_until, self.frozen_until = until_ms, None
        for proc in self.procs.values():
            if proc.alive:
                proc.vanished = True
                self.truth.task_ends((proc.key.job_id, proc.key.attempt, proc.key.member))

    def power_on(self) -> None:
        """A new boot, with nothing running and no lease."""
        self.down_until = None
        self.boot, self.booted_ms = self.boot + 1, self.loop.now_ms
        self.deadline_ms, self.lapsed_ms = 0, None

    def freeze(self, until_ms: int) -> None:
        """Nothing happens on the machine until then."""
        self.frozen_until = until_ms

    def thaw(self, since_ms: int) -> None:
        """Everything goes on where it was."""
        self.frozen_until = None
        for proc in self.procs.values():
            proc.lost_ms += self.loop.now_ms - max(since_ms, proc.started_ms)
