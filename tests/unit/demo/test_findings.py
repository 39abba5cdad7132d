"""The demo's own judgement: every condition is checked, and one that does not hold is named."""

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from contracts.alerts import Alert, AlertPhase
from contracts.base import Reason, ReasonCode, Tier
from contracts.jobs import AttemptState, JobKind, JobPhase, JobSpec, JobState, Member, Outcome
from deploy.demo.findings import AttemptBalance, Findings, compare, failures, report
from libs.journey import Journey
from libs.journey.span import Origin, Ref, Span

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB_ID = "0190aaaa-0000-7000-8000-000000000000"


def member(node: str, tier: Tier) -> Member:
    return Member(index=0, node=node, tier=tier, cards=[0])


def job(state: JobPhase, outcome: Outcome | None, *, attempts: int = 1, on: Member | None = None) -> JobState:
    spec = JobSpec(job_id=JOB_ID, tenant="acme", name="a", kind=JobKind.INFERENCE, command=["x"])
    attempt = AttemptState(number=attempts, generation=1, members=[on]) if on is not None else None
    return JobState(
        job_id=JOB_ID,
        tenant="acme",
        spec=spec,
        version=1,
        state=state,
        outcome=outcome,
        attempt=attempt,
        attempts=attempts,
        submitted_at=NOW,
        updated_at=NOW,
    )


def balance(**changes: Any) -> AttemptBalance:
    whole = AttemptBalance(
        "train", 1, killed=False, windows=3, gpu_ms=5_000, held_ms_x_cards=5_100, tolerance_ms=500, over=True
    )
    return replace(whole, **changes)


def alert(name: str, state: AlertPhase) -> Alert:
    return Alert(
        alert_id=JOB_ID,
        name=name,
        fingerprint="0123456789abcdef",
        level=1,
        labels={"alertname": name},
        annotations={},
        state=state,
        seen=1,
        fired_at=NOW,
    )


def once(name: str) -> list[Alert]:
    return [alert(name, AlertPhase.FIRING), alert(name, AlertPhase.RESOLVED)]


def span(service: str) -> Span:
    origin = Origin(service=service, instance="1", pid=1)
    return Span(Ref("t", service), "", "x", 0, 1, (), {}, error=False, origin=origin)


def trace(services: int = 7, orphans: int = 0) -> Journey:
    spans = tuple(span(f"s{number}") for number in range(services))
    return Journey(JOB_ID, "t", spans, spans[:orphans], {}, (), (), 0, 0)


def good() -> Findings:
    return Findings(
        train=job(JobPhase.FINISHED, Outcome.SUCCEEDED, attempts=2),
        train_members=[member("central-1", Tier.CENTRAL), member("central-2", Tier.CENTRAL)],
        killed_at_step=450,
        second_checkpoint_step=400,
        resumed_from_step=400,
        final_accuracy=0.98,
        compared=20,
        max_loss_difference=0.0,
        stale_commit_refused=True,
        infer=job(JobPhase.RUNNING, None, on=member("remote-1", Tier.REMOTE)),
        prediction_right=True,
        batch=job(JobPhase.FINISHED, Outcome.SUCCEEDED),
        batch_member=member("remote-2", Tier.REMOTE),
        greedy=Reason(
            code=ReasonCode.QUOTA_EXCEEDED, message="too much", resource="gpu_ms", used=0, asked=7_200_000, allowed=1
        ),
        balances=[balance(), balance(attempt=2, killed=True)],
        invoice_total_micro=41_104,
        recomputed_total_micro=41_104,
        alerts=[*once("NodeLost"), *once("CheckpointFailed")],
        trace=trace(),
    )


def test_what_holds_is_ok_and_the_report_has_the_agreed_shape() -> None:
    told = report(good(), 61.23)
    assert told == {
        "ok": True,
        "seconds": 61.2,
        "train": {
            "outcome": "succeeded",
            "attempts": 2,
            "nodes": ["central-1", "central-2"],
            "killed_at_step": 450,
            "second_checkpoint_step": 400,
            "resumed_from_step": 400,
            "final_accuracy": 0.98,
            "max_loss_difference": 0.0,
        },
        "infer": {"state": "running", "node": "remote-1", "tier": "remote"},
        "batch": {"state": "finished", "outcome": "succeeded", "node": "remote-2", "tier": "remote"},
        "greedy": {
            "outcome": "rejected",
            "reason": "quota_exceeded: too much (used 0 GPU-hours, asked 2 GPU-hours, allowed 2.778e-07 GPU-hours)",
        },
        "metering": {
            "windows": 6,
            "gpu_ms": 10_000,
            "held_ms_x_cards": 10_200,
            "attempts": [asdict(balance()), asdict(balance(attempt=2, killed=True))],
        },
        "billing": {"invoice_total_micro": 41_104, "recomputed_total_micro": 41_104},
        "alerts": [
            {"name": "NodeLost", "fired": 1, "resolved": 1},
            {"name": "CheckpointFailed", "fired": 1, "resolved": 1},
        ],
        "trace": {
            "trace_id": "t",
            "services": ["s0", "s1", "s2", "s3", "s4", "s5", "s6"],
            "spans": 7,
            "orphans": 0,
            "parent_killed": [],
        },
    }


def change(**changes: object) -> Callable[[Findings], None]:
    def apply(found: Findings) -> None:
        for name, value in changes.items():
            setattr(found, name, value)

    return apply


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (change(train=job(JobPhase.FINISHED, Outcome.FAILED, attempts=2)), "ended as failed"),
        (change(train=job(JobPhase.FINISHED, Outcome.SUCCEEDED, attempts=3)), "took 3 attempts"),
        (change(train_members=[member("central-1", Tier.CENTRAL)] * 2), "not on two different nodes"),
        (
            change(train_members=[member("central-1", Tier.CENTRAL), member("remote-1", Tier.REMOTE)]),
            "not on central alone",
        ),
        (change(resumed_from_step=200), "does not hold: (400, 200, 450)"),
        (change(killed_at_step=399), "(400, 400, 399)"),
        (change(second_checkpoint_step=None), "(None, 400, 450)"),
        (change(final_accuracy=0.949), "accuracy is 0.949"),
        (change(final_accuracy=None), "accuracy is None"),
        (change(compared=19), "19 losses compared"),
        (change(max_loss_difference=1.1e-9), "losses differ by 1.1e-09"),
        (change(max_loss_difference=None), "losses differ by None"),
        (change(stale_commit_refused=False), "commit was not refused"),
        (change(infer=job(JobPhase.FINISHED, Outcome.FAILED)), "inference job is finished"),
        (change(infer=job(JobPhase.RUNNING, None, on=member("central-1", Tier.CENTRAL))), "not on remote"),
        (change(prediction_right=False), "right digit"),
        (change(batch=None), "batch job ended as None"),
        (change(batch_member=member("central-1", Tier.CENTRAL)), "batch job ran on central-1 (central)"),
        (change(greedy=None), "greedy job got None"),
        (
            change(greedy=Reason(code=ReasonCode.QUOTA_EXCEEDED, message="")),
            "used, asked, allowed = (None, None, None)",
        ),
        (change(balances=[]), "nothing was measured"),
        (change(balances=[balance(gpu_ms=4_599)]), "measured 4599 gpu_ms, held 5100"),
        (change(balances=[balance(over=False)]), "not over"),
        (change(invoice_total_micro=0, recomputed_total_micro=0), "total is 0"),
        (change(recomputed_total_micro=41_105), "computed anew it is 41105"),
        (change(bill_differences=["row 7"]), "not proved: row 7"),
        (change(alerts=once("NodeLost")), "CheckpointFailed fired 0 times"),
        (change(alerts=[*once("NodeLost"), *once("NodeLost"), *once("CheckpointFailed")]), "NodeLost fired 2 times"),
        (change(trace=trace(services=6)), "spans of 6 services"),
        (change(trace=trace(orphans=1)), "1 orphans"),
        (change(trace=None), "None orphans"),
        (change(error="the bus fell over"), "the bus fell over"),
    ],
)
def test_what_does_not_hold_is_named(damage: Callable[[Findings], None], words: str) -> None:
    found = good()
    damage(found)
    assert any(words in line for line in failures(found))
    assert report(found, 1.0)["ok"] is False


def test_a_demo_that_got_nowhere_still_reports() -> None:
    told = report(Findings(error="no"), 0.0)
    assert told["ok"] is False
    assert told["train"]["outcome"] is None
    assert told["trace"] is None


def test_compare_takes_the_next_twenty_steps_that_both_have() -> None:
    reference = {step: float(step) for step in range(1, 100)}
    resumed = {step: float(step) + (0.5 if step == 60 else 0.25 if step == 45 else 0.0) for step in range(41, 100)}
    assert compare(resumed, reference, 40) == (20, 0.5)
    assert compare(resumed, reference, 60) == (20, 0.0)
    assert compare(resumed, reference, 90) == (9, 0.0)
    assert compare({}, reference, 40) == (0, None)
