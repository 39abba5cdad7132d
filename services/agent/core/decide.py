"""What an agent does with an attempt: pure decisions over its journal row and one event.

In: the row (`Attempt`, None where there is none), an event, who speaks (`Speaker`) and the time. Out: effects, which
are the row to write and the messages to send, in this order. What the shell owes the attempt after them follows from
the row alone (`duty`), so that a restarted agent goes on where the last one stood.

The path of an attempt, and what the shell does in each phase (`duty`):

    offered  --granted-->  claimed  --inputs there-->  prepared  --go-->  spawning  --task runs-->  running
    running  --task ended-->  ending  --saves, logs and progress out-->  exited

Every attempt that was ever journalled ends in exactly one `exited` event, whichever way it took.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from contracts import attempts, registry
from contracts.attempts import Binding, ExitCause, ProgressPoint
from contracts.base import Model
from contracts.jobs import CheckpointPolicy
from contracts.work import WorkRun
from services.agent.core.model import (
    ALIVE,
    BEFORE_SPAWN,
    Attempt,
    AttemptKey,
    Claimed,
    Drained,
    Effect,
    Emit,
    Ended,
    Event,
    FellSilent,
    NeverStarted,
    NotStored,
    Offered,
    Phase,
    Prepared,
    PrepareFailed,
    ReadySaid,
    Record,
    Reported,
    Speaker,
    StopAsked,
    StopOrder,
    Stored,
    TaskEnded,
    TaskSeen,
)

MESSAGE_BYTES = 256 * 1024
TEXT_LIMIT = 4096


def decide(attempt: Attempt | None, event: Event, me: Speaker, now: datetime) -> tuple[Effect, ...]:
    """Effects of one event. An event that no longer fits the row (it came late, or twice) has none."""
    if attempt is None:
        return _first(event, me, now)
    if isinstance(event, StopAsked):
        return _stop(attempt, event.order, me, now)
    if attempt.phase in BEFORE_SPAWN:
        return _before_spawn(attempt, event, me, now)
    if attempt.phase is not Phase.EXITED:
        return _with_task(attempt, event, me, now)
    return ()


def binding(run: WorkRun) -> Binding:
    """What the attempt's checkpoints are bound to."""
    spec = run.spec
    code_version = None if spec.artefact is None else spec.artefact.sha256
    return Binding(dataset=spec.dataset, code_version=code_version, seed=spec.seed)


def _first(event: Event, me: Speaker, now: datetime) -> tuple[Effect, ...]:
    match event:
        case Offered(run, endpoint):
            key = AttemptKey(run.job_id, run.attempt, run.member)
            return (Record(Attempt(key, run.tenant, Phase.OFFERED, now, run=run, endpoint=endpoint)),)
        case StopAsked(key, tenant, order):
            tombstone = Attempt(key, tenant, Phase.OFFERED, now, stop=order)
            return _never(tombstone, f"stopped before it was offered: {order.reason}", me, now)
        case _:
            return ()


def _stop(attempt: Attempt, order: StopOrder, me: Speaker, now: datetime) -> tuple[Effect, ...]:
    if attempt.phase in BEFORE_SPAWN:
        return _never(replace(attempt, stop=order), f"stopped before it was started: {order.reason}", me, now)
    if attempt.phase in ALIVE:
        known = attempt.stop
        sooner = order if known is None else replace(known, grace_s=min(known.grace_s, order.grace_s))
        return (Record(replace(attempt, stop=sooner)),)
    return ()


def _before_spawn(attempt: Attempt, event: Event, me: Speaker, now: datetime) -> tuple[Effect, ...]:
    match event:
        case Claimed(granted=False, message=message):
            return _never(attempt, f"not claimed: {message}", me, now)
        case Claimed(go=go, rendezvous=rendezvous, epoch=epoch):
            return _granted(replace(attempt, rendezvous=rendezvous, epoch=epoch), go=go)
        case Prepared(inputs) if attempt.phase is Phase.CLAIMED:
            return (Record(replace(attempt, phase=Phase.PREPARED, inputs=inputs)),)
        case PrepareFailed(message, hopeless) if attempt.phase is Phase.CLAIMED:
            cause = ExitCause.FAILED if hopeless else ExitCause.NEVER_STARTED
            return _exit(attempt, Ended(cause, None, message, None, now), me)
        case _:
            return ()


def _granted(attempt: Attempt, *, go: bool) -> tuple[Effect, ...]:
    match attempt.phase:
        case Phase.OFFERED:
            return (Record(replace(attempt, phase=Phase.CLAIMED)),)
        case Phase.PREPARED if go:
            return (Record(replace(attempt, phase=Phase.SPAWNING)),)
        case _:
            return ()


def _with_task(attempt: Attempt, event: Event, me: Speaker, now: datetime) -> tuple[Effect, ...]:
    match event:
        case TaskSeen(started_at) if attempt.phase is Phase.SPAWNING:
            return _started(attempt, started_at, me)
        case TaskEnded(ended) if attempt.phase in ALIVE:
            return _ended(attempt, ended, me)
        case NeverStarted(message) if attempt.phase is Phase.SPAWNING:
            return _never(attempt, message, me, now)
        case Drained() if attempt.phase is Phase.ENDING and attempt.ended is not None:
            return _exit(attempt, attempt.ended, me)
        case _:
            return _told_by_task(attempt, event, me, now)


def _told_by_task(attempt: Attempt, event: Event, me: Speaker, now: datetime) -> tuple[Effect, ...]:
    match event:
        case Reported(points, serial):
            return _reported(attempt, points, serial, me, now)
        case ReadySaid(endpoint) if attempt.phase is Phase.RUNNING:
            body = attempts.AttemptReady(**_ref(attempt, me), endpoint=endpoint[:TEXT_LIMIT], ready_at=now)
            return _send(attempt, [(registry.ATTEMPTS_READY, body)])
        case Stored():
            return _stored(attempt, event, me, now)
        case NotStored(step, message):
            body = attempts.AttemptUnsaved(**_ref(attempt, me), step=step, message=message[:TEXT_LIMIT], failed_at=now)
            return _send(attempt, [(registry.ATTEMPTS_UNSAVED, body)])
        case FellSilent(silent_s) if attempt.phase is Phase.RUNNING and attempt.stop is None:
            return _hung(attempt, silent_s, me, now)
        case _:
            return ()


def _started(attempt: Attempt, started_at: datetime, me: Speaker) -> tuple[Effect, ...]:
    body = attempts.AttemptStarted(**_ref(attempt, me), started_at=started_at)
    return _send(replace(attempt, phase=Phase.RUNNING), [(registry.ATTEMPTS_STARTED, body)])


def _ended(attempt: Attempt, ended: Ended, me: Speaker) -> tuple[Effect, ...]:
    after = replace(attempt, phase=Phase.ENDING, ended=ended)
    if attempt.phase is Phase.RUNNING or ended.started_at is None:
        return (Record(after),)
    body = attempts.AttemptStarted(**_ref(attempt, me), started_at=ended.started_at)
    return _send(after, [(registry.ATTEMPTS_STARTED, body)])


def _reported(
    attempt: Attempt, points: Sequence[ProgressPoint], serial: int, me: Speaker, now: datetime
) -> tuple[Effect, ...]:
    ref = _ref(attempt, me)
    bodies = [attempts.AttemptProgressed(**ref, points=part, reported_at=now) for part in portions(points)]
    after = replace(attempt, serial=max(serial, attempt.serial))
    return _send(after, [(registry.ATTEMPTS_PROGRESSED, body) for body in bodies])


def portions(points: Sequence[ProgressPoint]) -> Iterator[list[ProgressPoint]]:
    """Cut points into messages: at most MAX_POINTS and about MESSAGE_BYTES each, in order."""
    part: list[ProgressPoint] = []
    size = 0
    for point in points:
        weight = 40 + sum(30 + len(name) * 4 for name in point.metrics)
        if part and (len(part) == attempts.MAX_POINTS or size + weight > MESSAGE_BYTES):
            yield part
            part, size = [], 0
        part.append(point)
        size += weight
    if part:
        yield part


def _stored(attempt: Attempt, event: Stored, me: Speaker, now: datetime) -> tuple[Effect, ...]:
    assert attempt.run is not None, "only an offered attempt has saves"
    policy = attempt.run.spec.checkpoint or CheckpointPolicy()
    body = attempts.AttemptSaved(
        **_ref(attempt, me),
        step=event.step,
        members=len(attempt.run.members),
        shard=event.shard,
        binding=binding(attempt.run),
        keep_last=policy.keep_last,
        stall_ms=event.stall_ms,
        persist_ms=event.persist_ms,
        saved_at=now,
    )
    return _send(attempt, [(registry.ATTEMPTS_SAVED, body)])


def _hung(attempt: Attempt, silent_s: int, me: Speaker, now: datetime) -> tuple[Effect, ...]:
    assert attempt.run is not None, "only an offered attempt has a task"
    order = StopOrder(ExitCause.HUNG, attempt.run.spec.stop_grace_s, f"no progress for {silent_s} s")
    body = attempts.AttemptHung(**_ref(attempt, me), silent_s=silent_s, hung_at=now)
    return _send(replace(attempt, stop=order), [(registry.ATTEMPTS_HUNG, body)])


def _never(attempt: Attempt, message: str, me: Speaker, now: datetime) -> tuple[Effect, ...]:
    return _exit(attempt, Ended(ExitCause.NEVER_STARTED, None, message, None, now), me)


def _exit(attempt: Attempt, ended: Ended, me: Speaker) -> tuple[Effect, ...]:
    body = attempts.AttemptExited(
        **_ref(attempt, me),
        cause=ended.cause,
        exit_code=ended.exit_code,
        message=ended.message[:TEXT_LIMIT],
        ended_at=ended.ended_at,
    )
    return _send(replace(attempt, phase=Phase.EXITED, ended=ended), [(registry.ATTEMPTS_EXITED, body)])


def _send(attempt: Attempt, messages: Sequence[tuple[registry.Message[Any], Model]]) -> tuple[Effect, ...]:
    """Number the messages and write the row that remembers the count."""
    after = replace(attempt, sequence=attempt.sequence + len(messages))
    emits = [Emit(message, body, attempt.sequence + n) for n, (message, body) in enumerate(messages, start=1)]
    return (Record(after), *emits)


def _ref(attempt: Attempt, me: Speaker) -> dict[str, Any]:
    return {
        "job_id": attempt.key.job_id,
        "tenant": attempt.tenant,
        "attempt": attempt.key.attempt,
        "member": attempt.key.member,
        "node": me.node,
        "incarnation": me.incarnation,
    }
