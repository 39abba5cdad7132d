"""Cores broken on purpose, one fault each: what the simulator is for."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from contracts.attempts import AttemptSaved
from contracts.requests import ClaimReply
from services.checkpoint.core import restoring, saving
from services.checkpoint.core.model import Checkpoint, Effect, Grant
from services.checkpoint.core.model import Job as CheckpointJob
from services.checkpoint.core.saving import Known
from services.inventory.core import liveness
from services.inventory.core.model import TickEffect
from services.metering.core.model import Identity, Refused, Sample
from services.scheduler.core import attempts, jobs
from services.scheduler.core.model import Claim, Decision, Event, Exited, Free, Job, Limits, NodeLost, Publish, Started
from tests.sim.settings import Cores


def fence_ignored(job: CheckpointJob, known: Known | None, saved: AttemptSaved, now: datetime) -> Sequence[Effect]:
    """Saves of overtaken attempts are taken."""
    return saving.take(replace(job, fence=1), known, saved, now)


def any_attempt_may_start(attempt: int, fence: int) -> str | None:
    """Overtaken attempts are let start."""
    assert attempt <= fence
    return None


def oldest_restored(checkpoints: Sequence[Checkpoint], grants: Sequence[Grant]) -> list[Checkpoint]:
    """The oldest checkpoint is chosen."""
    return restoring.candidates(checkpoints, grants)[::-1]


def lost_early(*arguments: Any, timings: Any, **named: Any) -> Iterator[TickEffect]:
    """A node is lost once it has been silent for twice as long as makes it suspect."""
    early_ms = 2 * timings.suspect_ms
    early = replace(timings, lease_ms=early_ms - 1, lost_ms=early_ms)
    nodes = [replace(node, lease_ms=0) for node in arguments[0]]
    beats = [replace(beat, lease_ms=0) for beat in arguments[1]]
    return liveness.judge_tick(nodes, beats, timings=early, **named)


def attempt_not_compared(job: Job, event: Event, now: datetime, limits: Limits) -> Decision:
    """A late exit of an attempt before is taken for one of the attempt that runs."""
    if isinstance(event, Exited) and job.attempt is not None:
        event = replace(event, attempt=job.attempt.number)
    return jobs.decide(job, event, now, limits)


def cards_never_freed(job: Job, event: Event, now: datetime, limits: Limits) -> Decision:
    """The cards of a lost node are forgotten."""
    decision = jobs.decide(job, event, now, limits)
    if isinstance(event, NodeLost):
        return Decision(decision.job, tuple(one for one in decision.effects if not isinstance(one, Free)))
    return decision


def freed_at_once(job: Job, event: Event, now: datetime, limits: Limits) -> Decision:
    """A node of an attempt is called gone as soon as its process is seen."""
    decision = jobs.decide(job, event, now, limits)
    if isinstance(event, Started) and decision.job.attempt is not None:
        late = Exited(event.attempt, event.member, event.node, "killed")
        second = jobs.decide(decision.job, late, now, limits)
        return Decision(second.job, decision.effects + second.effects)
    return decision


def version_skipped(job: Job, event: Event, now: datetime, limits: Limits) -> Decision:
    """A cancel counts twice in the version."""
    decision = jobs.decide(job, event, now, limits)
    if not job.cancel_requested and decision.job.cancel_requested:
        seen = replace(decision.job, version=decision.job.version + 1)
        return Decision(seen, tuple(Publish(seen) if isinstance(e, Publish) else e for e in decision.effects))
    return decision


def no_barrier(job: Job, event: Claim, now: datetime, limits: Limits) -> tuple[Decision, ClaimReply]:
    """Whoever has claimed may go, whether the others have or not."""
    decision, reply = attempts.claim(job, event, now, limits)
    return decision, reply.model_copy(update={"go": reply.granted})


def counted_twice(samples: Sequence[Sample], standing: dict[Identity, Any]) -> tuple[list[Sample], list[Refused]]:
    """What came before counts again."""
    assert standing is not None
    return list(samples), []


MUTANTS: dict[str, Cores] = {
    "fence ignored": Cores(take=fence_ignored),
    "any attempt may start": Cores(refuse_old=any_attempt_may_start),
    "oldest restored": Cores(candidates=oldest_restored),
    "lost early": Cores(judge_tick=lost_early),
    "attempt not compared": Cores(decide=attempt_not_compared),
    "cards never freed": Cores(decide=cards_never_freed),
    "freed at once": Cores(decide=freed_at_once),
    "version skipped": Cores(decide=version_skipped),
    "no barrier": Cores(claim=no_barrier),
    "counted twice": Cores(distinct=counted_twice),
    "inbox ignored": Cores(inbox=False),
}

# Seeds that were seen to find the rarer ones; the others are tried after them.
LIKELY = {"fence ignored": 19, "any attempt may start": 41, "attempt not compared": 69, "inbox ignored": 7}
