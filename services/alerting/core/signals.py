"""Events as signals: what rules need to know of each, as text, and where it stands in its subject's history."""

from contracts import registry
from contracts.checkpoints import CheckpointCommitted, CheckpointFailed
from contracts.fleet import BreakerMoved
from contracts.jobs import JobState
from contracts.nodes import NodePhase, NodeState
from services.alerting.core.model import FOR_GOOD, Point, Signal


def node(message_id: str, body: NodeState, sequence: int) -> Signal:
    """A node was lost or is back, is faulty or is no more. `out` is what of it is out of the pool for its faults."""
    return Signal(message_id, Point(sequence), {"node": body.node, "reason": body.reason, "out": _out(body)})


def _out(body: NodeState) -> str:
    cards = body.bad_cards
    if body.state == NodePhase.QUARANTINED:
        return "all of it"
    return f"card{'s' if len(cards) > 1 else ''} {', '.join(map(str, cards))}" if cards else "nothing"


def breaker(message_id: str, body: BreakerMoved, sequence: int) -> Signal:
    """A breaker of inventory has opened, or is closed again."""
    return Signal(message_id, Point(sequence), {"breaker": body.kind, "reason": body.reason})


def checkpoint_failed(body: CheckpointFailed, sequence: int) -> Signal:
    """A save became no checkpoint, or a checkpoint was found damaged."""
    facts = {
        "tenant": body.tenant,
        "job": body.job_id,
        "step": str(body.step),
        "attempt": str(body.attempt),
        "cause": str(body.cause),
        "message": body.message,
    }
    return Signal(registry.CHECKPOINTS_FAILED.id, Point(sequence, body.step), facts)


def checkpoint_committed(body: CheckpointCommitted, sequence: int) -> Signal:
    """A checkpoint may be restored from; it counts for all earlier steps as well."""
    facts = {"tenant": body.tenant, "job": body.job_id, "step": str(body.step), "attempt": str(body.attempt)}
    return Signal(registry.CHECKPOINTS_COMMITTED.id, Point(sequence, body.step), facts)


def job_finished(body: JobState) -> Signal:
    """Nothing of this job matters any more, so it stands behind all else; its own sequence is another count."""
    outcome = "unknown" if body.outcome is None else body.outcome.value
    return Signal(registry.JOBS_FINISHED.id, FOR_GOOD, {"tenant": body.tenant, "job": body.job_id, "outcome": outcome})
