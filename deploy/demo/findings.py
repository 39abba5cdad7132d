"""What the demo saw, and what of it must hold: pure, so that each condition is tested without a stack.

In: a `Findings` filled step by step. Out: the report of `farside demo --json` and the list of conditions that fail.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from contracts.alerts import Alert, AlertPhase
from contracts.base import Reason, ReasonCode, Tier
from contracts.jobs import JobState, Member, Outcome
from libs.cli.words import figures
from libs.journey import Journey

COMPARED_LOSSES = 20
MAX_LOSS_DIFFERENCE = 1e-9
MIN_ACCURACY = 0.95
ATTEMPTS = 2
ALERTS = ("NodeLost", "CheckpointFailed")
MIN_SERVICES = 7

Losses = Mapping[int, float]


@dataclass(frozen=True)
class AttemptBalance:
    """What was measured of an attempt beside what it held: card-milliseconds, equal within `tolerance_ms`."""

    job: str
    attempt: int
    killed: bool
    windows: int
    gpu_ms: int
    held_ms_x_cards: int
    tolerance_ms: int
    over: bool

    @property
    def holds(self) -> bool:
        """Whether the attempt is over and both sides agree."""
        return self.over and self.gpu_ms > 0 and abs(self.gpu_ms - self.held_ms_x_cards) <= self.tolerance_ms


@dataclass
class Findings:
    """Everything the report tells; None means that the demo did not get that far."""

    train: JobState | None = None
    train_members: list[Member] = field(default_factory=list[Member])
    killed_at_step: int | None = None
    second_checkpoint_step: int | None = None
    resumed_from_step: int | None = None
    final_accuracy: float | None = None
    compared: int = 0
    max_loss_difference: float | None = None
    stale_commit_refused: bool = False
    infer: JobState | None = None
    prediction_right: bool = False
    batch: JobState | None = None
    batch_member: Member | None = None
    greedy: Reason | None = None
    balances: list[AttemptBalance] = field(default_factory=list[AttemptBalance])
    invoice_total_micro: int | None = None
    recomputed_total_micro: int | None = None
    bill_differences: list[str] = field(default_factory=list[str])
    alerts: list[Alert] = field(default_factory=list[Alert])
    trace: Journey | None = None
    error: str | None = None


def compare(resumed: Losses, reference: Losses, after_step: int) -> tuple[int, float | None]:
    """How many of the next COMPARED_LOSSES losses after `after_step` both runs have, and their largest difference."""
    steps = range(after_step + 1, after_step + 1 + COMPARED_LOSSES)
    differences = [abs(resumed[step] - reference[step]) for step in steps if step in resumed and step in reference]
    return len(differences), max(differences, default=None)


def failures(found: Findings) -> list[str]:
    """Every condition that does not hold, in words; of a demo that was given up, why: the rest was not reached."""
    if found.error is not None:
        return [found.error]
    conditions = [*_train(found), *_others(found), *_accounts(found), *_watched(found)]
    return [words for holds, words in conditions if not holds]


def _train(found: Findings) -> Iterator[tuple[bool, str]]:
    train, nodes = found.train, [member.node for member in found.train_members]
    outcome = train.outcome if train is not None else None
    attempts = train.attempts if train is not None else 0
    yield outcome is Outcome.SUCCEEDED, f"the training job ended as {outcome}, not as succeeded"
    yield attempts == ATTEMPTS, f"the training job took {attempts} attempts, not {ATTEMPTS}"
    yield len(set(nodes)) == ATTEMPTS, f"the training job ran on {nodes}, not on two different nodes"
    tiers = {member.tier for member in found.train_members}
    yield tiers == {Tier.CENTRAL}, f"the training job ran on tiers {sorted(tiers)}, not on central alone"
    order = (found.second_checkpoint_step, found.resumed_from_step, found.killed_at_step)
    yield _ascending(*order), f"second checkpoint <= resumed from <= killed at does not hold: {order}"
    accuracy = found.final_accuracy
    yield accuracy is not None and accuracy >= MIN_ACCURACY, f"final accuracy is {accuracy}, below {MIN_ACCURACY}"
    yield found.compared == COMPARED_LOSSES, f"{found.compared} losses compared, not {COMPARED_LOSSES}"
    worst = found.max_loss_difference
    close = worst is not None and worst <= MAX_LOSS_DIFFERENCE
    yield close, f"losses differ by {worst}, more than {MAX_LOSS_DIFFERENCE}"
    yield found.stale_commit_refused, "the dead attempt's commit was not refused"


def _others(found: Findings) -> Iterator[tuple[bool, str]]:
    infer, member = found.infer, _member(found.infer)
    state = infer.state if infer is not None else None
    yield state == "running", f"the inference job is {state}, not running"
    yield member is not None and member.tier is Tier.REMOTE, f"the inference job is on {_where(member)}, not on remote"
    yield found.prediction_right, "the inference job did not answer with the right digit"
    outcome = found.batch.outcome if found.batch is not None else None
    yield outcome is Outcome.SUCCEEDED, f"the batch job ended as {outcome}, not as succeeded"
    batch = found.batch_member
    yield batch is not None and batch.tier is Tier.REMOTE, f"the batch job ran on {_where(batch)}, not on remote"
    greedy = found.greedy
    code = greedy.code if greedy is not None else None
    yield code is ReasonCode.QUOTA_EXCEEDED, f"the greedy job got {code}, not {ReasonCode.QUOTA_EXCEEDED}"
    amounts = (greedy.used, greedy.asked, greedy.allowed) if greedy is not None else (None, None, None)
    yield None not in amounts, f"the refusal carries used, asked, allowed = {amounts}"


def _accounts(found: Findings) -> Iterator[tuple[bool, str]]:
    yield bool(found.balances), "nothing was measured"
    for item in found.balances:
        sides = f"measured {item.gpu_ms} gpu_ms, held {item.held_ms_x_cards}"
        words = f"{sides}, more than {item.tolerance_ms} apart or not over"
        yield item.holds, f"{item.job} attempt {item.attempt}: {words}"
    billed, again = found.invoice_total_micro, found.recomputed_total_micro
    yield billed is not None and billed > 0, f"the invoice's total is {billed}, not above zero"
    yield billed == again, f"the invoice says {billed} millionths, computed anew it is {again}"
    yield not found.bill_differences, f"the invoice is not proved: {'; '.join(found.bill_differences)}"


def _watched(found: Findings) -> Iterator[tuple[bool, str]]:
    told = {line["name"]: line for line in alerts(found)}
    for name in ALERTS:
        counts = (told[name]["fired"], told[name]["resolved"]) if name in told else (0, 0)
        yield counts == (1, 1), f"alert {name} fired {counts[0]} times and was over {counts[1]} times, not once each"
    services = found.trace.services if found.trace is not None else ()
    yield len(services) >= MIN_SERVICES, f"the trace has spans of {len(services)} services, not of {MIN_SERVICES}"
    orphans = len(found.trace.orphans) if found.trace is not None else None
    yield orphans == 0, f"the trace has {orphans} orphans, not 0"


def alerts(found: Findings) -> list[dict[str, Any]]:
    """How often each alert was told to fire and to be over."""
    names = dict.fromkeys(alert.name for alert in found.alerts)
    return [
        {
            "name": name,
            "fired": sum(alert.name == name and alert.state is AlertPhase.FIRING for alert in found.alerts),
            "resolved": sum(alert.name == name and alert.state is AlertPhase.RESOLVED for alert in found.alerts),
        }
        for name in names
    ]


def report(found: Findings, seconds: float) -> dict[str, Any]:
    """The object of `farside demo --json`."""
    train, infer, batch = found.train, found.infer, found.batch
    infer_member = _member(infer)
    return {
        "ok": not failures(found),
        "seconds": round(seconds, 1),
        "train": {
            "outcome": train.outcome if train is not None else None,
            "attempts": train.attempts if train is not None else 0,
            "nodes": [member.node for member in found.train_members],
            "killed_at_step": found.killed_at_step,
            "second_checkpoint_step": found.second_checkpoint_step,
            "resumed_from_step": found.resumed_from_step,
            "final_accuracy": found.final_accuracy,
            "max_loss_difference": found.max_loss_difference,
        },
        "infer": {"state": infer.state if infer is not None else None, **_place(infer_member)},
        "batch": {
            "state": batch.state if batch is not None else None,
            "outcome": batch.outcome if batch is not None else None,
            **_place(found.batch_member),
        },
        "greedy": {
            "outcome": "rejected" if found.greedy is not None else None,
            "reason": _reason(found.greedy),
        },
        "metering": {
            "windows": sum(item.windows for item in found.balances),
            "gpu_ms": sum(item.gpu_ms for item in found.balances),
            "held_ms_x_cards": sum(item.held_ms_x_cards for item in found.balances),
            "attempts": [asdict(item) for item in found.balances],
        },
        "billing": {
            "invoice_total_micro": found.invoice_total_micro,
            "recomputed_total_micro": found.recomputed_total_micro,
        },
        "alerts": alerts(found),
        "trace": _trace(found.trace),
    }


def _trace(trace: Journey | None) -> dict[str, Any] | None:
    if trace is None:
        return None
    return {
        "trace_id": trace.trace_id,
        "services": list(trace.services),
        "spans": len(trace.spans),
        "orphans": len(trace.orphans),
        "parent_killed": [span.name for span in trace.parent_killed],
    }


def _ascending(*steps: int | None) -> bool:
    known = [step for step in steps if step is not None]
    return len(known) == len(steps) and known == sorted(known)


def _member(job: JobState | None) -> Member | None:
    return job.attempt.members[0] if job is not None and job.attempt is not None else None


def _where(member: Member | None) -> str:
    return f"{member.node} ({member.tier})" if member is not None else "no node"


def _place(member: Member | None) -> dict[str, str | None]:
    return {"node": member.node if member is not None else None, "tier": member.tier if member is not None else None}


def _reason(reason: Reason | None) -> str | None:
    return f"{reason.code}: {reason.message} ({figures(reason)})" if reason is not None else None
