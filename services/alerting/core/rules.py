"""The rules, and what an event does to the subject of one: fire, count, resolve, or nothing."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime

from contracts import registry
from contracts.alerts import Alert, AlertPhase
from contracts.base import INT64_MAX
from services.alerting.core.model import Count, Effect, Fire, Point, Resolve, Rule, Signal, Watch, add

ALERTNAME = "alertname"
FINGERPRINT_CHARS = 16
LABEL_LIMIT = 256
TEXT_LIMIT = 4096

NODE_LOST = Rule(
    name="NodeLost",
    level=1,
    labels=("node",),
    opens=registry.NODES_LOST.id,
    closes={registry.NODES_RETURNED.id: "node {node} is back: {reason}"},
    annotations={"summary": "node {node} is lost", "description": "{reason}"},
)
CHECKPOINT_FAILED = Rule(
    name="CheckpointFailed",
    level=3,
    labels=("tenant", "job"),
    opens=registry.CHECKPOINTS_FAILED.id,
    closes={
        registry.CHECKPOINTS_COMMITTED.id: "step {step} was committed by attempt {attempt}",
        registry.JOBS_FINISHED.id: "the job has finished: {outcome}",
    },
    annotations={
        "summary": "checkpoint of step {step} of job {job} failed: {cause}",
        "description": "{message}",
        "step": "{step}",
        "attempt": "{attempt}",
        "cause": "{cause}",
    },
    # An attempt that was declared dead is refused its save: that is the fence at work, and no failure.
    harmless={"cause": frozenset({"fenced"})},
)

RULES = (NODE_LOST, CHECKPOINT_FAILED)


def rules_for(signal: Signal) -> Iterator[Rule]:
    """The rules that look at an event."""
    return (rule for rule in RULES if rule.concerns(signal))


def identity(rule: Rule, facts: Mapping[str, str]) -> dict[str, str]:
    """The labels that say which alert of a rule it is."""
    return {ALERTNAME: rule.name, **{label: facts[label][:LABEL_LIMIT] for label in rule.labels}}


def fingerprint(labels: Mapping[str, str]) -> str:
    """16 hexadecimal digits over the identity labels, whatever their order."""
    text = "".join(f"{name}\xff{value}\xff" for name, value in sorted(labels.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARS]


def decide(
    rule: Rule, watch: Watch, signal: Signal, *, now: datetime, alert_id: str
) -> tuple[Watch, Fire | Count | Resolve | None]:
    """What an event means. `now` is when it was received: senders' clocks are not asked. `alert_id` is for a firing."""
    if signal.message != rule.opens:
        words = rule.closes[signal.message].format_map(signal.facts)
        return _close(watch, signal.at, words, now)
    if any(signal.facts[fact] in values for fact, values in rule.harmless.items()) or watch.is_covered(signal.at):
        return watch, None
    openings = add(watch.openings, signal.at)
    effect: Effect
    if watch.firing is None:
        effect = Fire(_episode(rule, signal, now, alert_id))
    else:
        effect = Count(_again(rule, watch, watch.firing, signal))
    return Watch(openings, watch.closings, effect.alert), effect


def resolve_by_hand(watch: Watch, words: str, now: datetime) -> tuple[Watch, Resolve | None]:
    """An operator has dealt with whatever has been told up to now."""
    return _close(watch, Point(max(watch.newest(), 0), INT64_MAX), words, now)


def _close(watch: Watch, at: Point, words: str, now: datetime) -> tuple[Watch, Resolve | None]:
    closed = watch.closed_by(at)
    if closed.firing is None or closed.openings:
        return closed, None
    over = {"state": AlertPhase.RESOLVED, "resolved_at": now, "resolution": words[:TEXT_LIMIT]}
    return Watch((), closed.closings), Resolve(closed.firing.model_copy(update=over))


def _episode(rule: Rule, signal: Signal, now: datetime, alert_id: str) -> Alert:
    labels = identity(rule, signal.facts)
    return Alert(
        alert_id=alert_id,
        name=rule.name,
        fingerprint=fingerprint(labels),
        level=rule.level,
        labels=labels,
        annotations=_annotations(rule, signal),
        state=AlertPhase.FIRING,
        seen=1,
        fired_at=now,
    )


def _again(rule: Rule, watch: Watch, alert: Alert, signal: Signal) -> Alert:
    """One more of the same; the annotations tell of the newest."""
    newest = signal.at.sequence > watch.newest()
    annotations = _annotations(rule, signal) if newest else alert.annotations
    return alert.model_copy(update={"seen": alert.seen + 1, "annotations": annotations})


def _annotations(rule: Rule, signal: Signal) -> dict[str, str]:
    written = {name: words.format_map(signal.facts)[:TEXT_LIMIT] for name, words in rule.annotations.items()}
    return {name: text for name, text in written.items() if text}
