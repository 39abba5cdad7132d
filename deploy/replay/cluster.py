"""A cluster in virtual time: jobs arrive, start when the planner says so, end, are preempted and resume.

In: the jobs of a trace, the number of cards, what an interruption costs, a planner. Out: what became of each job, and
the history of what tenants wanted and held. Nothing here reads a clock or throws dice: the same input gives the same
output.

An attempt that resumes first spends `restart_us` without progress. A preempted attempt makes no more progress, holds
its cards for `grace_us` and goes back to the newest checkpoint, one each `checkpoint_us` of its computing; what was
computed since is lost. An attempt that would end within its grace does so.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deploy.replay.philly import Job

NODE_CARDS = 8
ARRIVES, LEAVES, WAKES = range(3)

Cards = NDArray[np.int64]


@dataclass(frozen=True)
class Costs:
    """What an interruption costs a job."""

    checkpoint_us: int
    grace_us: int
    restart_us: int


@dataclass(frozen=True)
class Start:
    """A job (its index) gets these cards, in order of its members."""

    job: int
    cards: Cards


@dataclass(frozen=True)
class Stop:
    """A running job leaves so that another, if one is named, gets its cards; it `moves` if it has room elsewhere."""

    job: int
    for_job: int | None = None
    moves: bool = False


@dataclass(frozen=True)
class Moves:
    """What a planner decides: who starts, who is stopped, and when to ask again if nothing happens before."""

    starts: Sequence[Start] = ()
    stops: Sequence[Stop] = ()
    wake_us: int | None = None


@dataclass
class Attempt:
    """One run of a job. `computes_us` is when it begins to make progress, `leaves_us` when its cards become free."""

    job: int
    cards: Cards
    started_us: int
    computes_us: int
    leaves_us: int
    waited_us: int
    stopping: bool = False
    leaving_for: int | None = None
    moving: bool = False


@dataclass
class Life:
    """What became of one job; times in microseconds, `done_us` is computing that a checkpoint or the end has kept."""

    done_us: int = 0
    lost_us: int = 0
    held_us: int = 0
    first_start_us: int = -1
    ended_us: int = -1
    preempted_us: int = -1
    preemptions: int = 0
    attempts: int = 0


@dataclass
class History:
    """Changes in order of time: (time, tenant, cards wanted more, cards held more)."""

    changes: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])


@dataclass
class Cluster:
    """The state that a planner sees. Jobs are indices into `jobs`."""

    jobs: Sequence[Job]
    costs: Costs
    card_node: Cards
    card_free: NDArray[np.bool_]
    lives: list[Life]
    waiting: dict[int, int] = field(default_factory=dict[int, int])  # job -> waits since
    left_for: dict[int, int] = field(default_factory=dict[int, int])  # job that waits again -> job that it left for
    moved: set[int] = field(default_factory=set[int])  # those of them that only moved
    running: dict[int, Attempt] = field(default_factory=dict[int, Attempt])
    history: History = field(default_factory=History)
    changed_us: int = 0  # the last arrival or end

    @property
    def cards(self) -> int:
        """How many cards there are."""
        return len(self.card_node)

    def attained_us(self, job: int, now_us: int) -> int:
        """Computing that a job has behind it, kept or not."""
        attempt = self.running.get(job)
        progress = 0 if attempt is None else max(0, now_us - attempt.computes_us)
        return self.lives[job].done_us + progress

    def unsaved_us(self, job: int, now_us: int) -> int:
        """Computing that a running job would lose if it were stopped now."""
        return max(0, now_us - self.running[job].computes_us) % self.costs.checkpoint_us


class Planner(Protocol):
    """Decides at every event."""

    def plan(self, cluster: Cluster, now_us: int) -> Moves:
        """Starts that fit what is free, and attempts to stop."""
        ...


def card_nodes(cards: int) -> Cards:
    """The node of each card: nodes of eight, the last one smaller."""
    return np.arange(cards, dtype=np.int64) // NODE_CARDS


def members(cards: int) -> tuple[int, int]:
    """How a job's cards are spread over members of one node each: (members, cards of each), as few as possible."""
    count = next(n for n in range(-(-cards // NODE_CARDS), cards + 1) if cards % n == 0)
    return count, cards // count


def fits(job: Job, cards: int) -> bool:
    """Whether the empty cluster holds the job."""
    count, each = members(job.cards)
    return count <= sum(size // each for size in np.bincount(card_nodes(cards)))


class Simulation:
    """The loop over events. `run` ends when every job has ended; a job that can never fit must not be given to it."""

    def __init__(
        self,
        jobs: Sequence[Job],
        cards: int,
        costs: Costs,
        planner: Planner,
        on_end: Callable[[int], None] | None = None,
    ) -> None:
        """`on_end` is told at each job's end how many are left."""
        lives = [Life() for _ in jobs]
        self.cluster = Cluster(jobs, costs, card_nodes(cards), np.ones(cards, np.bool_), lives)
        self.planner = planner
        self.on_end = on_end
        self.events: list[tuple[int, int, int]] = [(job.arrival_us, ARRIVES, i) for i, job in enumerate(jobs)]
        heapq.heapify(self.events)
        self.left = len(jobs)
        self.decisions = 0
        self._wakes_us = -1

    def run(self) -> Cluster:
        """Play all events; returns the cluster with its jobs' lives and its history."""
        while self.left:
            assert self.events, (
                f"{len(self.cluster.waiting)} jobs wait and nothing will happen: the planner starts none"
            )
            now_us = self.events[0][0]
            while self.events and self.events[0][0] == now_us:
                self._happen(*heapq.heappop(self.events))
            if self.cluster.waiting:
                self._decide(now_us)
        return self.cluster

    def _happen(self, now_us: int, what: int, job: int) -> None:
        if what == ARRIVES:
            self._arrive(now_us, job)
        elif what == LEAVES:
            attempt = self.cluster.running.get(job)
            if attempt is not None and attempt.leaves_us == now_us:
                self._leave(now_us, attempt)

    def _arrive(self, now_us: int, job: int) -> None:
        self.cluster.waiting[job] = self.cluster.changed_us = now_us
        self._note(now_us, job, self.cluster.jobs[job].cards, 0)

    def _leave(self, now_us: int, attempt: Attempt) -> None:
        life, job = self.cluster.lives[attempt.job], self.cluster.jobs[attempt.job]
        del self.cluster.running[attempt.job]
        self.cluster.card_free[attempt.cards] = True
        life.held_us += now_us - attempt.started_us
        if attempt.stopping:
            self.cluster.waiting[attempt.job] = now_us
            if attempt.leaving_for is not None:
                self.cluster.left_for[attempt.job] = attempt.leaving_for
            if attempt.moving:
                self.cluster.moved.add(attempt.job)
            self._note(now_us, attempt.job, 0, -job.cards)
            return
        life.done_us, life.ended_us = job.duration_us, now_us
        self.cluster.changed_us = now_us
        self.left -= 1
        if self.on_end is not None:
            self.on_end(self.left)
        self._note(now_us, attempt.job, -job.cards, -job.cards)

    def _decide(self, now_us: int) -> None:
        self.decisions += 1
        moves = self.planner.plan(self.cluster, now_us)
        self._start_all(moves.starts, now_us)
        for stop in moves.stops:
            self._stop(now_us, stop)
        wake_us = moves.wake_us
        if wake_us is not None and (self._wakes_us <= now_us or wake_us < self._wakes_us):
            assert wake_us > now_us, f"the planner wants to be woken at {wake_us}, now is {now_us}"
            self._wakes_us = wake_us
            heapq.heappush(self.events, (wake_us, WAKES, -1))

    def _start_all(self, starts: Iterable[Start], now_us: int) -> None:
        for start in starts:
            self._start(now_us, start)

    def _start(self, now_us: int, start: Start) -> None:
        job, life = self.cluster.jobs[start.job], self.cluster.lives[start.job]
        waited_us = now_us - self.cluster.waiting.pop(start.job)
        self.cluster.left_for.pop(start.job, None)
        self.cluster.moved.discard(start.job)
        assert len(start.cards) == job.cards, f"{job.job_id} asks {job.cards} cards and is given {len(start.cards)}"
        assert self.cluster.card_free[start.cards].all(), f"{job.job_id} is given cards that others hold"
        self.cluster.card_free[start.cards] = False
        computes_us = now_us + (self.cluster.costs.restart_us if life.attempts else 0)
        leaves_us = computes_us + job.duration_us - life.done_us
        self.cluster.running[start.job] = Attempt(start.job, start.cards, now_us, computes_us, leaves_us, waited_us)
        life.attempts += 1
        life.first_start_us = now_us if life.first_start_us < 0 else life.first_start_us
        heapq.heappush(self.events, (leaves_us, LEAVES, start.job))
        self._note(now_us, start.job, 0, job.cards)

    def _stop(self, now_us: int, stop: Stop) -> None:
        attempt, life, costs = self.cluster.running[stop.job], self.cluster.lives[stop.job], self.cluster.costs
        leaves_us = now_us + costs.grace_us
        if attempt.stopping or attempt.leaves_us <= leaves_us:
            return
        progress_us = max(0, now_us - attempt.computes_us)
        lost_us = progress_us % costs.checkpoint_us
        life.done_us += progress_us - lost_us
        life.lost_us += lost_us
        life.preemptions, life.preempted_us = life.preemptions + 1, now_us
        attempt.stopping, attempt.leaves_us = True, leaves_us
        attempt.leaving_for, attempt.moving = stop.for_job, stop.moves
        heapq.heappush(self.events, (leaves_us, LEAVES, stop.job))

    def _note(self, now_us: int, job: int, wanted: int, held: int) -> None:
        self.cluster.history.changes.append((now_us, self.cluster.jobs[job].tenant, wanted, held))
