"""Carrying out decisions: the job's row, its allocations and holdings, and what is told to the world."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import assert_never

from contracts.base import Reason
from contracts.jobs import AttemptState, JobPhase, JobState, Member
from contracts.registry import (
    JOBS_ACCEPTED,
    JOBS_FINISHED,
    JOBS_HELD,
    JOBS_PLACED,
    JOBS_RUNNING,
    JOBS_STARTING,
    JOBS_STOPPING,
    JOBS_UNREACHABLE,
    JOBS_WAITING,
    WORK_RUN,
    WORK_STOP,
    Message,
)
from contracts.work import WorkRun, WorkStop
from libs.bus import Tx
from libs.db import Connection
from libs.kit.logs import get_logger
from libs.telemetry import context, spans
from services.scheduler import allotments, store
from services.scheduler.core.model import (
    CARD,
    Allocate,
    Attempt,
    Charge,
    Decision,
    Effect,
    Free,
    Job,
    Limits,
    Offer,
    Publish,
    Seat,
    StopMember,
)
from services.scheduler.store import Stored

EVENTS: dict[JobPhase, Message[JobState]] = {
    JobPhase.ACCEPTED: JOBS_ACCEPTED,
    JobPhase.HELD: JOBS_HELD,
    JobPhase.WAITING: JOBS_WAITING,
    JobPhase.PLACED: JOBS_PLACED,
    JobPhase.STARTING: JOBS_STARTING,
    JobPhase.RUNNING: JOBS_RUNNING,
    JobPhase.STOPPING: JOBS_STOPPING,
    JobPhase.UNREACHABLE: JOBS_UNREACHABLE,
    JobPhase.FINISHED: JOBS_FINISHED,
}


@dataclass(frozen=True)
class _Rows:
    """What decisions change, until it is written: rows of each kind by one statement."""

    jobs: list[Stored] = field(default_factory=list[Stored])
    told: list[Publish] = field(default_factory=list[Publish])
    given: list[tuple[Job, Allocate]] = field(default_factory=list[tuple[Job, Allocate]])
    claimed: list[tuple[Job, Charge]] = field(default_factory=list[tuple[Job, Charge]])
    ended: list[tuple[Job, Free]] = field(default_factory=list[tuple[Job, Free]])

    async def write(self, conn: Connection, limits: Limits) -> None:
        await store.save_jobs(conn, self.jobs, limits)
        await store.add_transitions(conn, self.told)
        await allotments.allocate(conn, self.given)
        await allotments.charge(conn, self.claimed)
        await allotments.free(conn, self.ended)


async def carry_out(
    tx: Tx[Connection],
    stored: Stored,
    decision: Decision,
    *,
    actor: str,
    limits: Limits,
    new: bool = False,
    step: str = "decide job",
) -> None:
    """Carry out one decision: see carry_out_all."""
    await carry_out_all(tx, [(stored, decision)], actor=actor, limits=limits, new=new, step=step)


async def carry_out_all(
    tx: Tx[Connection],
    decided: Iterable[tuple[Stored, Decision]],
    *,
    actor: str,
    limits: Limits,
    new: bool = False,
    step: str,
) -> None:
    """Run the effects of decisions and write the jobs that have changed, in the caller's transaction.

    What is emitted belongs to the trace of each job's life; where another one caused it, `step` names the span there.
    Raises ConstraintError when a card that is given has its holder already.
    """
    rows = _Rows()
    for stored, decision in decided:
        if new or decision.job != stored.job:
            rows.jobs.append(replace(stored, job=decision.job))
        if decision.effects:
            with _in_life(stored.trace, step):
                _run_all(tx, rows, decision, actor)
    await rows.write(tx.conn, limits)


def _in_life(life: str | None, step: str) -> AbstractContextManager[object]:
    """A span below the job's life, linked to the one at hand, unless that belongs to the life itself."""
    current = context.current()
    if life is None or (current is not None and context.trace_id(current.hop) == context.trace_id(life)):
        return nullcontext()
    return spans.span(step, trace=context.Trace(life, life), links=[current] if current is not None else ())


def _about(job: Job) -> None:
    """Say in the current span and its log lines which job it is about."""
    attempt = None if job.attempt is None else job.attempt.number
    spans.annotate(job=job.spec.job_id, tenant=job.spec.tenant, attempt=attempt)


def _run_all(tx: Tx[Connection], rows: _Rows, decision: Decision, actor: str) -> None:
    """What all offers of a decision list is made once: making it for each of them would take members squared."""
    _about(decision.job)
    offered = next((_members(effect.attempt) for effect in decision.effects if isinstance(effect, Offer)), None) or []
    for effect in decision.effects:
        _run(tx, rows, decision.job, effect, actor, offered)


def _run(tx: Tx[Connection], rows: _Rows, job: Job, effect: Effect, actor: str, offered: list[Member]) -> None:
    spec = job.spec
    match effect:
        case Publish(seen, refused):
            rows.told.append(effect)
            body = to_state(seen, refused)
            message = EVENTS[seen.phase]
            _log(seen)
            tx.emit(message, body, key=spec.tenant, subject=spec.job_id, sequence=seen.version, actor=actor)
        case Offer(_, attempt, member):
            run = _work_run(job, attempt, member.index, offered)
            node = member.seat.node
            tx.emit(WORK_RUN, run, key=node, subject=spec.job_id, sequence=job.version, actor=actor)
        case StopMember():
            stop = WorkStop(
                job_id=spec.job_id,
                tenant=spec.tenant,
                attempt=effect.attempt,
                member=effect.member,
                grace_s=effect.grace_s,
                reason=effect.reason,
            )
            tx.emit(WORK_STOP, stop, key=effect.node, subject=spec.job_id, sequence=job.version, actor=actor)
        case Allocate():
            rows.given.append((job, effect))
        case Charge():
            rows.claimed.append((job, effect))
        case Free():
            rows.ended.append((job, effect))
        case _:
            assert_never(effect)


def _log(job: Job) -> None:
    """One line a transition, in the trace of the job's life."""
    get_logger().info(
        "job.moved",
        job=job.spec.job_id,
        state=job.phase.value,
        version=job.version,
        nodes=[] if job.attempt is None else sorted({run.seat.node for run in job.attempt.members}),
        reason=None if job.reason is None else str(job.reason.code),
    )


def _work_run(job: Job, attempt: Attempt, index: int, members: list[Member]) -> WorkRun:
    return WorkRun(
        job_id=job.spec.job_id,
        tenant=job.spec.tenant,
        attempt=attempt.number,
        generation=attempt.generation,
        member=index,
        members=members,
        spec=job.spec,
    )


def _members(attempt: Attempt) -> list[Member]:
    return members_of([run.seat for run in attempt.members])


def members_of(seats: Sequence[Seat]) -> list[Member]:
    """Members with these seats, in the order of their indexes."""
    return [
        Member(
            index=index,
            node=seat.node,
            tier=seat.tier,
            cards=list(seat.cards),
            accelerator=seat.accelerator,
            card_memory_bytes=seat.card_memory_bytes,
            share_milli=None if seat.share == CARD else seat.share_milli,
            share_millionths=None if seat.share == CARD else seat.share,
        )
        for index, seat in enumerate(seats)
    ]


def to_state(job: Job, refused: Reason | None = None) -> JobState:
    """The job as events and queries show it; `refused` is told by the event of a refusal."""
    attempt = None
    if job.attempt is not None:
        attempt = AttemptState(
            number=job.attempt.number,
            generation=job.attempt.generation,
            members=_members(job.attempt),
            endpoint=job.attempt.endpoint,
            progress_step=job.progress_step,
        )
    return JobState(
        job_id=job.spec.job_id,
        tenant=job.spec.tenant,
        spec=job.spec,
        version=job.version,
        state=job.phase,
        outcome=job.outcome,
        reason=job.reason,
        attempt=attempt,
        attempts=job.attempts,
        failures=job.failures,
        losses=job.losses,
        cancel_requested=job.cancel_requested,
        held=job.held,
        refused=refused,
        submitted_at=job.submitted_at,
        updated_at=job.updated_at,
    )
