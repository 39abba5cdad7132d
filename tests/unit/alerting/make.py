"""Signals and times for the tests of alerting's core."""

import itertools
from datetime import UTC, datetime, timedelta

from contracts import registry
from contracts.checkpoints import CheckpointFailure
from services.alerting.core.model import FOR_GOOD, Effect, Point, Rule, Signal, Watch
from services.alerting.core.rules import decide

JOB = "01a22b77-f6e0-716f-94c4-1d0405dbb10e"
NOW = datetime(2026, 11, 30, 8, tzinfo=UTC)
_OF_JOB = {"tenant": "acme", "job": JOB, "attempt": "1"}


def lost(sequence: int, reason: str = "no heartbeat for 270 s", node: str = "central-1") -> Signal:
    return Signal(registry.NODES_LOST.id, Point(sequence), {"node": node, "reason": reason, "out": "nothing"})


def returned(sequence: int, reason: str = "heard again", out: str = "nothing") -> Signal:
    return Signal(registry.NODES_RETURNED.id, Point(sequence), {"node": "central-1", "reason": reason, "out": out})


def quarantined(sequence: int, out: str = "card 1", reason: str = "XID 79") -> Signal:
    return Signal(registry.NODES_QUARANTINED.id, Point(sequence), {"node": "central-1", "reason": reason, "out": out})


def released(sequence: int, out: str = "nothing", reason: str = "no more: XID 79") -> Signal:
    return Signal(registry.NODES_RELEASED.id, Point(sequence), {"node": "central-1", "reason": reason, "out": out})


def failed(sequence: int, step: int, cause: CheckpointFailure = CheckpointFailure.DIGEST_MISMATCH) -> Signal:
    facts = {**_OF_JOB, "step": str(step), "cause": cause.value, "message": f"step {step} is damaged"}
    return Signal(registry.CHECKPOINTS_FAILED.id, Point(sequence, step), facts)


def committed(sequence: int, step: int) -> Signal:
    return Signal(registry.CHECKPOINTS_COMMITTED.id, Point(sequence, step), {**_OF_JOB, "step": str(step)})


def finished() -> Signal:
    return Signal(registry.JOBS_FINISHED.id, FOR_GOOD, {**_OF_JOB, "outcome": "succeeded"})


def run(rule: Rule, *read: Signal, watch: Watch | None = None) -> tuple[Watch, list[Effect]]:
    """Read signals in this order, one second after the other; ids count from 0."""
    watch, effects = watch or Watch(), list[Effect]()
    ids = (f"01a22b7c-0000-7000-8000-{number:012x}" for number in itertools.count())
    for number, signal in enumerate(read):
        watch, more = decide(rule, watch, signal, now=NOW + timedelta(seconds=number), new_id=lambda: next(ids))
        effects += more
    return watch, effects
