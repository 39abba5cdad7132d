"""What the demo makes of events: late and repeated ones change nothing, questions are answered from what was seen."""

from datetime import UTC, datetime

import pytest

from contracts.attempts import AttemptProgressed, ProgressPoint
from contracts.base import Reason, ReasonCode, Tier
from contracts.jobs import AttemptState, JobKind, JobPhase, JobRejected, JobSpec, JobState, Member, Outcome
from deploy.demo import finders
from deploy.demo.watcher import Seen, StoryError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB_ID = "0190aaaa-0000-7000-8000-000000000000"
SPEC = JobSpec(job_id=JOB_ID, tenant="acme", name="a", kind=JobKind.INFERENCE, command=["x"])


def job(version: int, state: JobPhase, *, outcome: Outcome | None = None, endpoint: str | None = None) -> JobState:
    member = Member(index=0, node="remote-1", tier=Tier.REMOTE, cards=[0])
    attempt = AttemptState(number=1, generation=1, members=[member], endpoint=endpoint)
    return JobState(
        job_id=JOB_ID,
        tenant="acme",
        spec=SPEC,
        version=version,
        state=state,
        outcome=outcome,
        attempt=attempt,
        attempts=1,
        submitted_at=NOW,
        updated_at=NOW,
    )


def test_an_older_state_does_not_undo_a_newer_one() -> None:
    seen = Seen()
    assert seen.take(job(4, JobPhase.RUNNING)) == "job a is running, attempt 1 on remote-1"
    assert seen.take(job(3, JobPhase.STARTING)) is None
    assert seen.take(job(4, JobPhase.RUNNING)) is None
    assert seen.jobs[JOB_ID].state is JobPhase.RUNNING
    assert seen.placements[JOB_ID][1].node == "remote-1"


def test_serving_waits_for_the_endpoint() -> None:
    seen = Seen()
    assert finders.serving(JOB_ID)(seen) is None
    seen.take(job(4, JobPhase.RUNNING))
    assert finders.serving(JOB_ID)(seen) is None
    seen.take(job(5, JobPhase.RUNNING, endpoint="http://127.0.0.1:1/predict"))
    assert finders.serving(JOB_ID)(seen) is seen.jobs[JOB_ID]


def test_a_job_that_ends_or_is_refused_ends_the_wait_for_its_running() -> None:
    seen = Seen()
    seen.take(job(9, JobPhase.FINISHED, outcome=Outcome.FAILED))
    with pytest.raises(StoryError, match="ended as failed before it was seen running"):
        finders.running(JOB_ID)(seen)
    reason = Reason(code=ReasonCode.INVALID, message="no")
    refused = Seen()
    refused.take(JobRejected(submission_id="x", tenant="acme", job_id=JOB_ID, name="a", reason=reason, rejected_at=NOW))
    with pytest.raises(StoryError, match="job a was refused: invalid: no"):
        finders.ended(JOB_ID)(refused)


def test_progress_is_gathered_by_attempt() -> None:
    seen = Seen()
    for first in (1, 3):
        points = [ProgressPoint(step=step, metrics={"loss": 1.0 / step}) for step in (first, first + 1)]
        seen.take(
            AttemptProgressed(
                job_id=JOB_ID,
                tenant="acme",
                attempt=2,
                member=0,
                node="central-2",
                incarnation=JOB_ID,
                points=points,
                reported_at=NOW,
            )
        )
    report = seen.progress[JOB_ID, 2]
    assert sorted(report.points) == [1, 2, 3, 4]
    assert [step for _, step in report.times] == [2, 4]
    assert finders.reported(JOB_ID, 2, 4)(seen) is None
