"""Plain words for spans: the table by which a journey is told."""

from libs.journey.span import Span

SUBMIT, ACCEPT, STOP = "submit", "accept", "stop"
WINDOWS = "usage windows"
CLAIM = "claim"

STARTED = "attempts.v1.started.{node}"
EXITED = "attempts.v1.exited.{node}"
FINISHED = "jobs.v1.finished.{tenant}"
RUN = "run attempt"
RUN_ORDER, STOP_ORDER = "work.v1.run.{node}", "work.v1.stop.{node}"
LOSE = "lose attempt"
RESTORE = "restore checkpoint"
NOTHING_TO_RESTORE = "no checkpoint to restore"

# Ends of an attempt that are no error.
COMPLETED, STOPPED = "completed", "stopped"

STEPS = {
    "place job": "place",
    RUN: "run attempt {attempt}",
    "commit checkpoint": "checkpoint step {step} committed",
    RESTORE: "restore step {step}",
    LOSE: "requeue",
    "measure usage": WINDOWS,
    "roll up usage": "roll-up",
    "rate usage": "rate",
    "move dataset": "stage dataset",
}

MESSAGES = {
    "jobs.v1.rejected.{tenant}": "refuse",
    "jobs.v1.waiting.{tenant}": "wait",
    "jobs.v1.placed.{tenant}": "place",
    "jobs.v1.held.{tenant}": "held",
    "jobs.v1.hold.{tenant}": "hold",
    "jobs.v1.release.{tenant}": "release",
    "jobs.v1.cancel.{tenant}": "cancel",
    "jobs.v1.unreachable.{tenant}": "unreachable",
    FINISHED: "finish",
    STOP_ORDER: STOP,
    "attempts.v1.unsaved.{node}": "save failed",
    "attempts.v1.hung.{node}": "hung",
    "checkpoints.v1.failed.{tenant}": "checkpoint failed",
    "transfers.v1.request.{tenant}": "stage dataset",
    "nodes.v1.lost.{node}": "node lost",
    "nodes.v1.returned.{node}": "node returned",
    "usage.v1.rolled_up.{tenant}": "roll-up",
    "invoices.v1.issued.{tenant}": "invoice",
    "alerts.v1.fired._": "alert fired",
    "alerts.v1.resolved._": "alert resolved",
    "deadletters.v1.buried.{consumer}": "dead letter",
    "call.v1.scheduler.claim.{node}": CLAIM,
}

TABLE = {
    **STEPS,
    "publish jobs.v1.submit.{tenant}": SUBMIT,
    "process jobs.v1.submit.{tenant}": ACCEPT,
    **{f"{verb} {template}": told for template, told in MESSAGES.items() for verb in ("publish", "process")},
    **{f"{verb} {template}": told for template, told in MESSAGES.items() for verb in ("ask", "answer")},
}


def words_of(span: Span) -> str | None:
    """What the span tells, or None where it tells nothing that another does not."""
    pattern = TABLE.get(span.name)
    if pattern is None:
        return None
    step, attempt = span.text("farside.step"), span.text("farside.attempt")
    if span.name == RESTORE and not step:
        return NOTHING_TO_RESTORE
    return pattern.format(step=step or "?", attempt=attempt or "?")
