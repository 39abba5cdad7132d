"""Carrying out decisions: the job's row, its allocations and holdings, and what is told to the world."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
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


class CardTakenError(Exception):
    """A card of a placement belongs to somebody else; the transaction must be given up."""


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
    """Write the job if it has changed and run the effects, in the caller's transaction.

    What is emitted belongs to the trace of the job's life; where another one caused it, `step` names the span there.
    Raises CardTakenError.
    """
    if new or decision.job != stored.job:
        await store.save_job(tx.conn, replace(stored, job=decision.job), limits)
    offered = next((_members(effect.attempt) for effect in decision.effects if isinstance(effect, Offer)), None) or []
    if not decision.effects:
        return
    with _in_life(stored.trace, step):
        _about(decision.job)
        for effect in decision.effects:
            await _run(tx, decision.job, effect, actor, offered)


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


async def _run(tx: Tx[Connection], job: Job, effect: Effect, actor: str, offered: list[Member]) -> None:
    """`offered` is what all offers of one decision list: making it for each of them would take members squared."""
    spec = job.spec
    match effect:
        case Publish(seen, refused):
            await store.add_transition(tx.conn, seen, refused)
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
        case Allocate(number, member):
            if not await allotments.allocate(tx.conn, job, number, member):
                msg = f"node {member.seat.node}: a card of {member.seat.cards} is taken"
                raise CardTakenError(msg)
        case Free(number, member, at):
            await allotments.free(tx.conn, spec.job_id, number, member, at)
        case Charge(number, member, at):
            await allotments.charge(tx.conn, job, number, member, at)
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
