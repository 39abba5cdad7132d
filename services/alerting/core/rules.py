"""The rules, and what an event does to the subject of one: fire, count, resolve, or nothing."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from contracts import registry
from contracts.alerts import Alert, AlertPhase
from contracts.base import INT64_MAX
from services.alerting.core.history import Ended, episodes, mark_told, trim, untold
from services.alerting.core.model import Closing, Count, Effect, Fire, Opening, Point, Resolve, Rule, Signal, Watch

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
NODE_QUARANTINED = Rule(
    name="NodeQuarantined",
    level=2,
    labels=("node",),
    opens=registry.NODES_QUARANTINED.id,
    closes={
        registry.NODES_RELEASED.id: "nothing of node {node} is out of the pool any more: {reason}",
        registry.NODES_RETURNED.id: "node {node} is back, with nothing out of the pool: {reason}",
    },
    annotations={"summary": "node {node} is faulty: {out} is out of the pool", "description": "{reason}"},
    # One of several faults may be over while others stand.
    mended={"out": "nothing"},
)
BREAKER_OPEN = Rule(
    name="BreakerOpen",
    level=1,
    labels=("breaker",),
    opens=registry.BREAKERS_OPENED.id,
    closes={registry.BREAKERS_CLOSED.id: "the breaker of {breaker} is closed: {reason}"},
    annotations={"summary": "the breaker of {breaker} is open", "description": "{reason}"},
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

RULES = (NODE_LOST, NODE_QUARANTINED, BREAKER_OPEN, CHECKPOINT_FAILED)


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
    rule: Rule, watch: Watch, signal: Signal, *, now: datetime, new_id: Callable[[], str]
) -> tuple[Watch, list[Effect]]:
    """What an event means. `now` is when it was received: senders' clocks are not asked.

    What is over is told in the order in which it was, then what fires. An alert that fires becomes the first of those:
    a receiver knows alerts by their fingerprint, and would take the end of another episode for the end of this one.
    """
    if rule.ignores(signal) or watch.has(signal.at):
        return watch, []
    openings, closings = _enter(rule, watch, signal)
    found = episodes(openings, closings)
    firing, effects = watch.firing, list[Effect]()
    late = untold(closings, found.ended, signal.at)
    for episode in late:
        if firing is None:
            firing = _fire(rule, signal, episode.openings, now, new_id())
            effects.append(Fire(firing))
        elif found.standing or episode is not late[-1]:  # it was counted together with what turns out to be another
            firing = firing.model_copy(update={"seen": len(episode.openings)})
        told = firing.model_copy(update={"annotations": episode.openings[-1].annotations})
        effects.append(Resolve(_over(told, episode.closing.words, now)))
        firing = None
    if found.standing and firing is None:
        firing = _fire(rule, signal, found.standing, now, new_id())
        effects.append(Fire(firing))
    elif firing is not None and signal.message == rule.opens and not _is_in(found.ended, signal.at):
        annotations = found.standing[-1].annotations
        firing = firing.model_copy(update={"seen": firing.seen + 1, "annotations": annotations})
        effects.append(Count(firing))
    return Watch(*trim(openings, mark_told(closings, found.ended, signal.at)), firing), effects


def resolve_by_hand(watch: Watch, words: str, now: datetime) -> tuple[Watch, Resolve | None]:
    """An operator has dealt with whatever has been told up to now."""
    if watch.firing is None:
        return watch, None
    newest = max(opening.at.sequence for opening in watch.openings)
    closing = Closing(Point(newest, INT64_MAX), words[:TEXT_LIMIT], told=True)
    openings, closings = trim(watch.openings, (*watch.closings, closing))
    return Watch(openings, closings), Resolve(_over(watch.firing, closing.words, now))


def _enter(rule: Rule, watch: Watch, signal: Signal) -> tuple[tuple[Opening, ...], tuple[Closing, ...]]:
    if signal.message == rule.opens:
        return (*watch.openings, Opening(signal.at, _annotations(rule, signal))), watch.closings
    words = rule.closes[signal.message].format_map(signal.facts)[:TEXT_LIMIT]
    return watch.openings, (*watch.closings, Closing(signal.at, words))


def _is_in(ended: Sequence[Ended], point: Point) -> bool:
    return any(opening.at == point for episode in ended for opening in episode.openings)


def _over(alert: Alert, words: str, now: datetime) -> Alert:
    return alert.model_copy(update={"state": AlertPhase.RESOLVED, "resolved_at": now, "resolution": words})


def _fire(rule: Rule, signal: Signal, openings: Sequence[Opening], now: datetime, alert_id: str) -> Alert:
    """A new episode of these openings; `signal` is any event of the subject."""
    labels = identity(rule, signal.facts)
    return Alert(
        alert_id=alert_id,
        name=rule.name,
        fingerprint=fingerprint(labels),
        level=rule.level,
        labels=labels,
        annotations=openings[-1].annotations,
        state=AlertPhase.FIRING,
        seen=len(openings),
        fired_at=now,
    )


def _annotations(rule: Rule, signal: Signal) -> dict[str, str]:
    written = {name: words.format_map(signal.facts)[:TEXT_LIMIT] for name, words in rule.annotations.items()}
    return {name: text for name, text in written.items() if text}
