"""The demo's own judgement: every condition is checked, and one that does not hold is named."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from contracts.base import Reason, ReasonCode, Tier
from contracts.jobs import AttemptState, JobKind, JobPhase, JobSpec, JobState, Member, Outcome
from deploy.demo.findings import Findings, compare, failures, report

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


def test_compare_takes_the_next_twenty_steps_that_both_have() -> None:
    reference = {step: float(step) for step in range(1, 100)}
    resumed = {step: float(step) + (0.5 if step == 60 else 0.25 if step == 45 else 0.0) for step in range(41, 100)}
    assert compare(resumed, reference, 40) == (20, 0.5)
    assert compare(resumed, reference, 60) == (20, 0.0)
    assert compare(resumed, reference, 90) == (9, 0.0)
    assert compare({}, reference, 40) == (0, None)
