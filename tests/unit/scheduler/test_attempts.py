"""How an attempt is claimed, starts, runs and ends, and what its end means for the job."""

import pytest

from contracts.attempts import ExitCause
from contracts.base import Reason, ReasonCode
from contracts.jobs import JobPhase, Outcome
from services.scheduler.core.attempts import claim
from services.scheduler.core.model import (
    Cancel,
    Charge,
    Decision,
    Exited,
    Hung,
    Job,
    NodeLost,
    Place,
    Preempt,
    Ready,
    Started,
    Tick,
)
from services.scheduler.core.transitions import wake_at
from tests.unit.scheduler.builders import (
    LIMITS,
    OTHER_INCARNATION,
    claim_of,
    claimed,
    exited,
    freed,
    kinds,
    later,
    placed,
    rerun,
    running,
    seats,
    step,
    stops,
)

# ---- claims ----------------------------------------------------------------------------------------------------------


def test_the_first_claim_starts_the_job_and_its_charge() -> None:
    decision, reply = claim(placed(), claim_of(placed()), later(1), LIMITS)
    assert (reply.granted, reply.go, reply.rendezvous) == (True, True, "10.0.0.1:4000")
    assert decision.job.phase is JobPhase.STARTING
    charges = [effect for effect in decision.effects if isinstance(effect, Charge)]
    assert [(charge.attempt, charge.at) for charge in charges] == [(1, later(1))]


def test_the_same_claim_twice_is_one_claim() -> None:
    job = claim(placed(), claim_of(placed()), later(1), LIMITS)[0].job
    decision, reply = claim(job, claim_of(job), later(2), LIMITS)
    assert (decision.job, decision.effects) == (job, ())
    assert reply.granted
    assert reply.go


def test_nobody_goes_before_all_have_claimed_and_all_meet_at_member_0() -> None:
    job = placed(2)
    decision, reply = claim(job, claim_of(job, 1), later(1), LIMITS)
    assert (reply.granted, reply.go, reply.rendezvous) == (True, False, None)
    decision, reply = claim(decision.job, claim_of(job, 0), later(2), LIMITS)
    assert (reply.go, reply.rendezvous) == (True, "10.0.0.1:4000")
    decision, reply = claim(decision.job, claim_of(job, 1), later(3), LIMITS)
    assert (reply.go, reply.rendezvous) == (True, "10.0.0.1:4000")


def test_a_restarted_node_may_claim_again_only_while_nobody_was_told_to_go() -> None:
    job = placed(2)
    job = claim(job, claim_of(job, 0), later(1), LIMITS)[0].job
    decision, reply = claim(job, claim_of(job, 0, incarnation=OTHER_INCARNATION), later(2), LIMITS)
    assert reply.granted
    assert [effect for effect in decision.effects if isinstance(effect, Charge)] == []
    job = claim(decision.job, claim_of(job, 1), later(3), LIMITS)[0].job
    assert not claim(job, claim_of(job, 1, incarnation=OTHER_INCARNATION), later(4), LIMITS)[1].granted
    assert claim(job, claim_of(job, 1), later(4), LIMITS)[1].granted


@pytest.mark.parametrize(
    ("job", "node", "attempt"),
    [
        (placed(), "central-2", 1),
        (placed(), "central-1", 2),
        (step(placed(), Cancel("")).job, "central-1", 1),
        (step(claimed(), Cancel("")).job, "central-1", 1),
        (step(placed(), NodeLost("central-1")).job, "central-1", 1),
    ],
    ids=["another node", "another attempt", "cancelled", "being stopped", "lost"],
)
def test_claims_that_are_refused(job: Job, node: str, attempt: int) -> None:
    decision, reply = claim(job, claim_of(job, node=node, attempt=attempt), later(5), LIMITS)
    assert (reply.granted, reply.go) == (False, False)
    assert reply.message
    assert decision == Decision(job)


def test_an_offer_not_taken_up_gets_a_new_number_after_the_deadline() -> None:
    job = placed(2, start_deadline_s=20)
    job = claim(job, claim_of(job, 0), later(1), LIMITS)[0].job
    assert wake_at(job, LIMITS) == later(20)
    assert step(job, Tick(), at=19).job == job
    decision = step(job, Tick(), at=20)
    assert decision.job.phase is JobPhase.STOPPING
    assert freed(decision) == [1]
    assert stops(decision) == [("central-1", 1, 0), ("central-2", 1, 1)]
    decision = step(decision.job, exited(0, ExitCause.STOPPED, None))
    assert (decision.job.phase, decision.job.attempt, decision.job.losses) == (JobPhase.WAITING, None, 1)
    assert decision.job.reason is not None
    assert decision.job.reason.code is ReasonCode.NOT_CLAIMED
    again = step(decision.job, Place(seats(2))).job
    assert again.attempt is not None
    assert (again.attempt.number, again.attempt.generation) == (2, 2)


def test_no_deadline_after_all_have_claimed() -> None:
    assert wake_at(claimed(2), LIMITS) is None


# ---- starting, running, ending ---------------------------------------------------------------------------------------


def test_running_when_each_member_has_started() -> None:
    job = claimed(2)
    decision = step(job, Started(1, 0, "central-1"))
    assert (decision.job.phase, decision.effects) == (JobPhase.STARTING, ())
    decision = step(decision.job, Started(1, 1, "central-2"))
    assert (decision.job.phase, kinds(decision)) == (JobPhase.RUNNING, ["Publish"])


def test_ready_tells_the_endpoint() -> None:
    decision = step(running(), Ready(1, 0, "central-1", "http://10.0.0.1:9000"))
    assert decision.job.attempt is not None
    assert decision.job.attempt.endpoint == "http://10.0.0.1:9000"
    assert kinds(decision) == ["Publish"]
    assert step(decision.job, Ready(1, 0, "central-1", "http://10.0.0.1:9000")).effects == ()


def test_success_when_all_members_have_completed() -> None:
    decision = step(running(2), exited(0))
    assert (decision.job.phase, freed(decision)) == (JobPhase.RUNNING, [0])
    decision = step(decision.job, exited(1))
    assert (decision.job.phase, decision.job.outcome) == (JobPhase.FINISHED, Outcome.SUCCEEDED)
    assert kinds(decision) == ["Publish", "Free"]


def test_an_exit_that_overtakes_its_start_counts_and_the_start_changes_nothing() -> None:
    done = step(claimed(), exited(0)).job
    assert done.outcome is Outcome.SUCCEEDED
    assert step(done, Started(1, 0, "central-1")) == Decision(done)


def test_one_failed_member_stops_the_others_and_the_attempt_ends_with_the_last() -> None:
    decision = step(running(2, retries=1), exited(1, ExitCause.FAILED, 7))
    assert decision.job.phase is JobPhase.STOPPING
    assert stops(decision) == [("central-1", 1, 0)]
    decision = step(decision.job, exited(0, ExitCause.STOPPED, None))
    assert (decision.job.phase, decision.job.failures, decision.job.losses) == (JobPhase.WAITING, 1, 0)


def test_retries_are_counted_apart_from_losses_and_end() -> None:
    job = running(retries=1)
    job = step(job, NodeLost("central-1")).job
    assert (job.failures, job.losses) == (0, 1)
    job = rerun(job)
    job = step(job, exited(0, ExitCause.FAILED, 1, attempt=2)).job
    assert (job.phase, job.failures) == (JobPhase.WAITING, 1)
    job = rerun(job)
    job = step(job, exited(0, ExitCause.FAILED, 1, attempt=3)).job
    assert (job.phase, job.outcome, job.failures) == (JobPhase.FINISHED, Outcome.FAILED, 2)
    assert job.reason is not None
    assert job.reason.code is ReasonCode.RETRIES_EXHAUSTED
    assert "exit code 1" in job.reason.message


def test_losses_are_bounded_too() -> None:
    job = running()
    for _ in range(LIMITS.max_losses):
        job = rerun(step(job, NodeLost("central-1")).job)
    job = step(job, NodeLost("central-1")).job
    assert (job.outcome, job.losses) == (Outcome.FAILED, LIMITS.max_losses + 1)
    assert job.reason is not None
    assert job.reason.code is ReasonCode.NODE_LOST


def test_the_first_end_requeues_at_once_and_later_ones_rest_longer() -> None:
    job = step(running(), NodeLost("central-1")).job
    assert job.not_before is None
    job = step(rerun(job), NodeLost("central-1")).job
    assert job.not_before == later(10 + LIMITS.backoff_first_s)
    job = step(rerun(job), NodeLost("central-1")).job
    assert job.not_before == later(10 + 2 * LIMITS.backoff_first_s)


@pytest.mark.parametrize(
    "cause", [ExitCause.STOPPED, ExitCause.LEASE_EXPIRED, ExitCause.NEVER_STARTED, ExitCause.KILLED]
)
def test_ends_that_are_not_the_jobs_own_count_as_losses(cause: ExitCause) -> None:
    job = step(running(), exited(0, cause, None)).job
    assert (job.phase, job.failures, job.losses) == (JobPhase.WAITING, 0, 1)


def test_an_end_by_a_word_of_a_newer_agent_is_the_nodes_doing() -> None:
    job = step(running(), Exited(1, 0, "central-1", "power_cut", None, "the rack is dark")).job
    assert (job.phase, job.failures, job.losses, job.avoid) == (JobPhase.WAITING, 0, 1, ("central-1",))
    assert job.reason is not None
    assert job.reason.code is ReasonCode.NODE_LOST
    assert "(power_cut): the rack is dark" in job.reason.message


def test_only_nodes_at_fault_are_avoided_next_time() -> None:
    job = step(running(2), NodeLost("central-2")).job
    assert step(job, exited(0, ExitCause.STOPPED, None)).job.avoid == ("central-2",)
    job = step(running(2), exited(0, ExitCause.LEASE_EXPIRED, None)).job
    assert step(job, exited(1, ExitCause.STOPPED, None)).job.avoid == ("central-1",)
    job = step(running(2), exited(1, ExitCause.STOPPED, 0)).job
    assert step(job, exited(0, ExitCause.STOPPED, 0)).job.avoid == ("central-2",)


def test_running_out_of_time_is_final() -> None:
    job = step(running(retries=5), exited(0, ExitCause.MAX_RUNTIME, None)).job
    assert (job.outcome, job.failures) == (Outcome.FAILED, 0)
    assert job.reason is not None
    assert job.reason.code is ReasonCode.MAX_RUNTIME


def test_a_hung_member_is_stopped_by_its_agent_and_the_others_by_us() -> None:
    decision = step(running(2, retries=1), Hung(1, 0, "central-1", 900))
    assert (decision.job.phase, stops(decision)) == (JobPhase.STOPPING, [("central-2", 1, 1)])
    job = step(decision.job, exited(0, ExitCause.HUNG, None)).job
    job = step(job, exited(1, ExitCause.STOPPED, None)).job
    assert (job.phase, job.failures) == (JobPhase.WAITING, 1)
    assert job.reason is not None
    assert "900 s" in job.reason.message


def test_a_failure_that_a_dying_node_caused_is_a_loss() -> None:
    job = step(running(2), exited(1, ExitCause.FAILED, 1)).job
    job = step(job, NodeLost("central-1")).job
    assert (job.phase, job.failures, job.losses) == (JobPhase.WAITING, 0, 1)


def test_exit_0_during_a_preemption_is_a_success_and_any_other_requeues_uncounted() -> None:
    reason = Reason(code=ReasonCode.WAITING_FOR_CARDS, message="cards wanted")
    job = step(running(), Preempt(reason)).job
    assert job.phase is JobPhase.STOPPING
    assert step(job, exited(0, ExitCause.STOPPED, 0)).job.outcome is Outcome.SUCCEEDED
    back = step(job, exited(0, ExitCause.STOPPED, 143)).job
    assert (back.phase, back.failures, back.losses) == (JobPhase.WAITING, 0, 0)
