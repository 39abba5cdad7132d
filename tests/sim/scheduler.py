"""The scheduler's shell in memory: submissions, claims, reports, nodes. Placing is in cycle.py."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from contracts.attempts import AttemptExited, AttemptHung, AttemptStarted
from contracts.jobs import JobSpec, Member
from contracts.nodes import NodePhase, NodeState
from contracts.requests import ClaimReply, ClaimRequest
from contracts.work import WorkStop
from services.scheduler.core import quota
from services.scheduler.core.admission import CardGroup, NodeShape, Terms
from services.scheduler.core.arrays import CARD
from services.scheduler.core.model import (
    Allocate,
    Cancel,
    Charge,
    Claim,
    Decision,
    Effect,
    Event,
    Exited,
    Free,
    Hold,
    Hung,
    Intent,
    Job,
    MemberRun,
    NodeBack,
    NodeLost,
    Offer,
    Publish,
    Release,
    Started,
    StopMember,
)
from services.scheduler.core.transitions import wake_at
from tests.sim.board import Board
from tests.sim.books import Books
from tests.sim.bus import Bus, Mail
from tests.sim.ledger import GivenUpError, Service, Tx
from tests.sim.loop import SECOND, ms_of
from tests.sim.names import job_name
from tests.sim.offers import Used, members_of, work_run
from tests.sim.settings import Cores, Times
from tests.sim.truth import Truth

THERE = frozenset(NodePhase) - {NodePhase.SUSPECT, NodePhase.LOST}
Run = tuple[str, int, int]


class Scheduler(Service):
    """Owns jobs and allocations."""

    name = "scheduler"

    def __init__(
        self, bus: Bus, truth: Truth, times: Times, cores: Cores, tenants: dict[str, quota.Tenant], books: Books
    ) -> None:
        super().__init__(bus, inbox=cores.inbox)
        self.jobs: dict[str, Job] = {}
        self.nodes: dict[str, NodeState] = {}
        self.used: dict[str, Used] = {}
        self.queue: dict[str, None] = {}
        self.arrived: list[JobSpec] = []
        self.board = Board(tenants, times.node_slots)
        self.books = books
        self.limits = times.limits
        self._keep_ms = times.keep_s * SECOND
        self.cores = cores
        self.truth = truth
        self._tenants = tenants
        self._on_node: dict[str, dict[Run, None]] = {}
        self._intents: dict[tuple[str, str], Intent] = {}
        self._shapes: dict[NodeShape, None] = {}
        self._wakes: list[tuple[int, str]] = []
        self._woken: dict[str, int] = {}
        self._over: deque[tuple[int, str]] = deque()
        self.on("jobs.submit", self._submit)
        self.on("jobs.cancel", self._cancel)
        self.on("jobs.hold", self._hold)
        self.on("jobs.release", self._release)
        for event in ("graded", "suspect", "lost", "returned", "quarantined", "released"):
            self.on(f"nodes.{event}", self._node)
        self.on("attempts.started", self._started)
        self.on("attempts.hung", self._hung)
        self.on("attempts.exited", self._exited)

    # ---- what tenants ask

    def _submit(self, tx: Tx, mail: Mail) -> None:
        spec: JobSpec = mail.body
        if spec.job_id in self.jobs:
            return
        tenant = self._tenants.get(spec.tenant)
        standing = self.books.standing(spec.tenant, self.jobs)
        reason = self.cores.refusal(spec, tenant, Terms(tuple(self._shapes)), standing, self.loop.now)
        tx.then(partial(self.truth.answered, mail.id, spec.job_id, accepted=reason is None))
        if reason is not None:
            tx.then(partial(self.tell, f"scheduler rejects {job_name(spec.job_id)}: {reason.message}", spec.job_id))
            return
        intent = self._intents.get((spec.tenant, spec.job_id), Intent())
        tx.drop(self._intents, (spec.tenant, spec.job_id))
        self.carry_out(tx, None, self.cores.admit(spec, intent, self.loop.now, self.limits))

    def _cancel(self, tx: Tx, mail: Mail) -> None:
        tenant, job_id, _ = mail.body
        if job_id in self.jobs:
            self.apply(tx, job_id, Cancel("asked for"))
        else:
            intent = self._intents.get((tenant, job_id), Intent())
            tx.put(self._intents, (tenant, job_id), replace(intent, cancel_reason="asked for"))

    def _hold(self, tx: Tx, mail: Mail) -> None:
        self._hold_or_release(tx, mail, held=True)

    def _release(self, tx: Tx, mail: Mail) -> None:
        self._hold_or_release(tx, mail, held=False)

    def _hold_or_release(self, tx: Tx, mail: Mail, *, held: bool) -> None:
        tenant, job_id, asked_at = mail.body
        if job_id in self.jobs:
            self.apply(tx, job_id, Hold(asked_at) if held else Release(asked_at))
            return
        intent = self._intents.get((tenant, job_id), Intent())
        if intent.hold_changed_at is None or asked_at > intent.hold_changed_at:
            tx.put(self._intents, (tenant, job_id), replace(intent, held=held, hold_changed_at=asked_at))

    # ---- what agents say

    def claim(self, body: ClaimRequest) -> ClaimReply | None:
        """A node takes up an offer; None when there is no answer now."""
        if self.back_ms() is not None:
            return None
        job, state = self.jobs.get(body.job_id), self.nodes.get(body.node)
        if job is None:
            return ClaimReply(granted=False, message=f"job {body.job_id} is not known")
        asked = Claim(body.attempt, body.generation, body.member, body.node, body.incarnation, body.endpoint)
        decision, reply = self.cores.claim(job, asked, self.loop.now, self.limits)
        if reply.granted and (state is None or state.state is not NodePhase.READY):
            return None
        about = f"claim of {job_name(body.job_id)}/{body.attempt}/{body.member} at {self.loop.now_ms}"
        try:
            with self.transaction() as tx:
                self.carry_out(tx, job, decision)
                if reply.granted:
                    tx.then(partial(self.truth.claimed, body.job_id, body.attempt, body.member))
                self.may_fail(about)
        except GivenUpError:
            return None
        return reply

    def _started(self, tx: Tx, mail: Mail) -> None:
        body: AttemptStarted = mail.body
        if body.job_id in self.jobs:
            self.apply(tx, body.job_id, Started(body.attempt, body.member, body.node))
            return
        stop = WorkStop(
            job_id=body.job_id,
            tenant=body.tenant,
            attempt=body.attempt,
            member=body.member,
            grace_s=0,
            reason="unknown",
        )
        self.emit(tx, "work.stop", stop, key=body.node, subject=mail.subject, sequence=1)

    def _hung(self, tx: Tx, mail: Mail) -> None:
        body: AttemptHung = mail.body
        self.apply(tx, body.job_id, Hung(body.attempt, body.member, body.node, body.silent_s))

    def _exited(self, tx: Tx, mail: Mail) -> None:
        body: AttemptExited = mail.body
        exited = Exited(body.attempt, body.member, body.node, body.cause, body.exit_code, body.message)
        self.apply(tx, body.job_id, exited)

    # ---- what inventory says

    def _node(self, tx: Tx, mail: Mail) -> None:
        state: NodeState = mail.body
        known = self.nodes.get(state.node)
        if known is not None and known.version >= state.version:
            return
        tx.put(self.nodes, state.node, state)
        tx.then(partial(self._keep_node, state))
        there = sorted({job_id for job_id, _, _ in self._on_node.get(state.node, ())})
        if state.state is NodePhase.LOST:
            for job_id in there:
                self.apply(tx, job_id, NodeLost(state.node, state.requeue_held))
        elif state.state in THERE and (known is None or _is_back(mail.topic, known, state)):
            self._returned(tx, state, there)

    def _returned(self, tx: Tx, state: NodeState, there: list[str]) -> None:
        """A node that is back answers for the jobs that it holds, or should."""
        listed: dict[str, set[tuple[int, int]]] = {}
        for held in state.attempts:
            listed.setdefault(held.job_id, set()).add((held.attempt, held.member))
        for job_id in sorted({*there, *listed}):
            pairs = frozenset(listed.get(job_id, ()))
            self.apply(tx, job_id, NodeBack(state.node, pairs, state.since, state.incarnation))

    def _keep_node(self, state: NodeState) -> None:
        self.board.node(state)
        self.board.changed_us = self.now_us
        counts: dict[tuple[str, int], int] = {}
        for card in state.facts.cards:
            counts[card.model, card.memory_bytes] = counts.get((card.model, card.memory_bytes), 0) + 1
        groups = tuple(CardGroup(model, memory, count) for (model, memory), count in sorted(counts.items()))
        self._shapes[NodeShape(state.facts.tier, state.facts.cpu_milli, state.facts.memory_bytes, groups)] = None

    # ---- carrying out

    @property
    def now_us(self) -> int:
        """The present, as the arrays have it."""
        return self.books.us(self.loop.now_ms)

    def apply(self, tx: Tx, job_id: str, event: Event) -> None:
        """Let something happen to a job, if it is known."""
        job = self.jobs.get(job_id)
        if job is not None:
            self.carry_out(tx, job, self.cores.decide(job, event, self.loop.now, self.limits))

    def carry_out(self, tx: Tx, before: Job | None, decision: Decision) -> None:
        """Write the job and run the effects, in the caller's transaction."""
        job = decision.job
        if job != before:
            tx.put(self.jobs, job.spec.job_id, job)
            tx.then(partial(self._index, before, job))
        offered: list[Member] = []
        for effect in decision.effects:
            if isinstance(effect, Offer) and not offered:
                offered = members_of(effect.attempt)
            self._run(tx, job, effect, offered)
        if job.finished or job.attempt is None:
            tx.then(partial(self.truth.over, job))

    def _run(self, tx: Tx, job: Job, effect: Effect, offered: list[Member]) -> None:
        job_id = job.spec.job_id
        match effect:
            case Publish(seen):
                tx.then(partial(self._published, seen))
                topic = f"jobs.{seen.phase}"
                self.emit(tx, topic, seen, key=seen.spec.tenant, subject=job_name(job_id), sequence=seen.version)
            case Offer(_, attempt, member):
                run = work_run(job, attempt, member.index, offered)
                self._order(tx, "work.run", job, member.seat.node, attempt.number, member.index, run)
            case StopMember():
                self._stop(tx, job, effect)
            case Allocate(number, member):
                self._allocate(tx, job, number, member)
            case Free(number, member, _):
                self._free(tx, job, number, member)
            case Charge(number, member, _):
                self.books.charge(tx, job, number, member, self.loop.now_ms)
            case _:
                assert_never(effect)

    def _order(self, tx: Tx, topic: str, job: Job, node: str, attempt: int, member: int, body: object) -> None:
        subject = f"{job_name(job.spec.job_id)}/{attempt}/{member}"
        self.emit(tx, topic, body, key=node, subject=subject, sequence=job.version)

    def _stop(self, tx: Tx, job: Job, effect: StopMember) -> None:
        body = WorkStop(
            job_id=job.spec.job_id,
            tenant=job.spec.tenant,
            attempt=effect.attempt,
            member=effect.member,
            grace_s=effect.grace_s,
            reason=effect.reason,
        )
        self._order(tx, "work.stop", job, effect.node, effect.attempt, effect.member, body)

    def _allocate(self, tx: Tx, job: Job, number: int, member: MemberRun) -> None:
        node, key = member.seat.node, (job.spec.job_id, number, member.index)
        used = self.used.get(node, Used()).give(member, job.spec)
        if any(share > CARD for _, share in used.shares):
            raise GivenUpError
        tx.put(self.used, node, used)
        tx.put(self._on_node.setdefault(node, {}), key, None)
        tx.then(partial(self.truth.allocated, job.spec.job_id, number, member))
        tx.then(partial(self.board.allocate, job.spec, member))

    def _free(self, tx: Tx, job: Job, number: int, member: MemberRun) -> None:
        node, key = member.seat.node, (job.spec.job_id, number, member.index)
        tx.put(self.used, node, self.used[node].take_back(member, job.spec))
        tx.drop(self._on_node[node], key)
        held_ms = self.books.free(tx, job, number, member, self.loop.now_ms)
        tx.then(partial(self.truth.freed, job.spec.job_id, member))
        tx.then(partial(self.board.free, job.spec, member, held_ms))

    def _published(self, job: Job) -> None:
        self.truth.published(job)
        if self.bus.story.silent:
            return
        attempt = job.attempt
        where = (
            ""
            if attempt is None
            else f", attempt {attempt.number} on {', '.join(m.seat.node for m in attempt.members)}"
        )
        why = "" if job.reason is None else f" ({job.reason.message})"
        outcome = "" if job.outcome is None else f" {job.outcome}"
        self.tell(f"scheduler: {job_name(job.spec.job_id)} is {job.phase}{outcome}{where}{why}", job.spec.job_id)

    def tell(self, text: str, job_id: str) -> None:
        """A line of the story."""
        self.bus.story.tell(self.loop.now_ms, text, job_name(job_id))

    # ---- what is kept beside the rows

    def _index(self, before: Job | None, job: Job) -> None:
        job_id = job.spec.job_id
        self.books.moved(before, job)
        if job.placeable:
            self.queue[job_id] = None
        else:
            self.queue.pop(job_id, None)
        had = before is not None and before.attempt is not None
        if (had and job.attempt is None) or job.finished:
            self.board.end(before or job)
        elif job.attempt is not None and not had:
            self.board.place(job)
        if before is None or job.finished:
            self.board.changed_us = self.now_us
        if before is None:
            self.arrived.append(job.spec)
        wake = wake_at(job, self.limits)
        if wake is not None and self._woken.get(job_id) != ms_of(wake):
            self._woken[job_id] = ms_of(wake)
            heapq.heappush(self._wakes, (ms_of(wake) + 1, job_id))
        if job.finished:
            self._over.append((self.loop.now_ms + self._keep_ms, job_id))

    def due(self) -> list[str]:
        """Jobs one of whose deadlines has passed."""
        found: dict[str, None] = {}
        while self._wakes and self._wakes[0][0] <= self.loop.now_ms:
            found[heapq.heappop(self._wakes)[1]] = None
        for job_id in found:
            self._woken.pop(job_id, None)
        return list(found)

    def forget_old(self, gone: Callable[[Job], bool]) -> None:
        """Drop jobs that finished long ago, where `gone` drops them too."""
        while self._over and self._over[0][0] <= self.loop.now_ms:
            job_id = self._over.popleft()[1]
            if gone(self.jobs[job_id]):
                del self.jobs[job_id]
                self._woken.pop(job_id, None)


def _is_back(topic: str, known: NodeState, state: NodeState) -> bool:
    """Whether the list of attempts is to be compared: the node was away, or its agent has started anew."""
    away = known.state in {NodePhase.SUSPECT, NodePhase.LOST}
    return away or topic == "nodes.returned" or state.incarnation != known.incarnation
