"""Every transition of the one table, by the event that makes it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from contracts.attempts import ExitCause
from contracts.base import Reason, ReasonCode
from contracts.jobs import JobPhase, OnPartition, Outcome
from services.scheduler.core.admission import admit
from services.scheduler.core.attempts import claim
from services.scheduler.core.model import (
    Allocate,
    Cancel,
    Charge,
    Decision,
    Exited,
    Free,
    Hold,
    Hung,
    Intent,
    Job,
    MemberPhase,
    NodeBack,
    NodeLost,
    Offer,
    Place,
    Preempt,
    Publish,
    Ready,
    Release,
    Started,
    StopMember,
    StopWhy,
    Tick,
    Wait,
)
from services.scheduler.core.transitions import TRANSITIONS, wake_at
from tests.unit.scheduler.builders import (
    LIMITS,
    NOW,
    OTHER_INCARNATION,
    accepted,
    claim_of,
    claimed,
    later,
    placed,
    running,
    seats,
    spec,
    step,
)

NO_ROOM = Reason(code=ReasonCode.WAITING_FOR_CARDS, message="0 of 4 free", resource="cards", used=4, asked=2, allowed=4)


def kinds(decision: Decision) -> list[str]:
    return [type(effect).__name__ for effect in decision.effects]


def stops(decision: Decision) -> list[tuple[str, int, int]]:
    return [(e.node, e.attempt, e.member) for e in decision.effects if isinstance(e, StopMember)]


def freed(decision: Decision) -> list[int]:
    return [effect.member.index for effect in decision.effects if isinstance(effect, Free)]


def exited(member: int = 0, cause: ExitCause = ExitCause.COMPLETED, code: int | None = 0, attempt: int = 1) -> Exited:
    return Exited(attempt, member, f"central-{member + 1}", cause, code)


# ---- admission, waiting, placing -------------------------------------------------------------------------------------


def test_submit_is_accepted_as_version_1() -> None:
    decision = admit(spec(), Intent(), NOW, LIMITS)
    assert (decision.job.phase, decision.job.version) == (JobPhase.ACCEPTED, 1)
    assert decision.effects == (Publish(decision.job),)


def test_a_cancel_that_came_before_its_job_ends_it_at_once() -> None:
    decision = admit(spec(), Intent(cancel_reason="changed my mind"), NOW, LIMITS)
    published = [effect.job for effect in decision.effects if isinstance(effect, Publish)]
    assert [(job.version, job.phase) for job in published] == [(1, JobPhase.ACCEPTED), (2, JobPhase.FINISHED)]
    assert decision.job.outcome is Outcome.CANCELLED
    assert decision.job.cancel_requested


def test_a_hold_that_came_before_its_job_holds_it() -> None:
    decision = admit(spec(), Intent(held=True, hold_changed_at=NOW), NOW, LIMITS)
    assert decision.job.phase is JobPhase.HELD


def test_a_release_that_overtook_its_hold_wins_by_its_time() -> None:
    job = admit(spec(), Intent(held=False, hold_changed_at=later(5)), NOW, LIMITS).job
    assert step(job, Hold(later(4))).job == job
    assert step(job, Hold(later(6))).job.phase is JobPhase.HELD


def test_waiting_tells_a_new_reason_and_keeps_figures_quietly() -> None:
    job = step(accepted(), Wait(NO_ROOM)).job
    assert (job.phase, job.version, job.reason) == (JobPhase.WAITING, 2, NO_ROOM)
    figures = step(job, Wait(NO_ROOM.model_copy(update={"used": 3, "message": "1 of 4 free"})))
    assert figures.effects == ()
    assert figures.job.version == 2
    assert figures.job.reason is not None
    assert figures.job.reason.used == 3
    other = step(job, Wait(Reason(code=ReasonCode.WAITING_FOR_QUOTA, message="", resource="cards")))
    assert (other.job.version, kinds(other)) == (3, ["Publish"])


def test_hold_and_release_of_a_waiting_job() -> None:
    held = step(accepted(), Hold(later(1), "maintenance")).job
    assert held.phase is JobPhase.HELD
    assert held.reason is not None
    assert "maintenance" in held.reason.message
    assert step(held, Place(seats())).job == held
    assert step(held, Release(later(2))).job.phase is JobPhase.WAITING


def test_a_hold_leaves_a_running_attempt_alone_and_keeps_the_job_afterwards() -> None:
    decision = step(running(), Hold(later(3)))
    assert decision.effects == ()
    lost = step(decision.job, NodeLost("central-1"))
    assert lost.job.phase is JobPhase.HELD


def test_placing_allocates_and_offers_each_member() -> None:
    decision = step(accepted(members=2), Place(seats(2)))
    assert decision.job.phase is JobPhase.PLACED
    assert kinds(decision) == ["Publish", "Allocate", "Allocate", "Offer", "Offer"]
    offers = [effect for effect in decision.effects if isinstance(effect, Offer)]
    assert [offer.member.seat.node for offer in offers] == ["central-1", "central-2"]
    assert all(
        isinstance(effect.member.seat.cards, tuple) for effect in decision.effects if isinstance(effect, Allocate)
    )


def test_a_cancelled_job_is_not_placed() -> None:
    cancelled = step(accepted(), Cancel("")).job
    assert cancelled.outcome is Outcome.CANCELLED
    assert step(cancelled, Place(seats())).job == cancelled


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


def rerun(job: Job) -> Job:
    job = step(job, Place(seats())).job
    job = claim(job, claim_of(job), later(11), LIMITS)[0].job
    return step(job, Started(job.attempts, 0, "central-1"), at=12).job


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


# ---- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [accepted, lambda: step(accepted(), Wait(NO_ROOM)).job, placed])
def test_cancel_without_a_claim_ends_at_once(make: Callable[[], Job]) -> None:
    job = step(make(), Cancel("no longer needed")).job
    assert job.outcome is Outcome.CANCELLED
    assert job.reason is not None
    assert "no longer needed" in job.reason.message


def test_cancel_of_an_offer_frees_the_cards_and_leaves_a_tombstone_at_the_node() -> None:
    decision = step(placed(), Cancel(""))
    assert (freed(decision), stops(decision)) == ([0], [("central-1", 1, 0)])


def test_cancel_of_a_running_job_waits_for_its_members() -> None:
    decision = step(running(2), Cancel(""))
    assert (decision.job.phase, decision.job.cancel_requested) == (JobPhase.STOPPING, True)
    assert stops(decision) == [("central-1", 1, 0), ("central-2", 1, 1)]
    job = step(decision.job, exited(0, ExitCause.STOPPED, 143)).job
    assert job.phase is JobPhase.STOPPING
    job = step(job, NodeLost("central-2")).job
    assert (job.phase, job.outcome) == (JobPhase.FINISHED, Outcome.CANCELLED)


def test_cancel_twice_says_it_once() -> None:
    job = step(running(), Cancel("")).job
    assert step(job, Cancel("")) == Decision(job)


def test_cancel_wins_over_a_retry_that_was_under_way() -> None:
    job = step(running(2, retries=3), exited(0, ExitCause.FAILED, 1)).job
    decision = step(job, Cancel(""))
    assert (kinds(decision), decision.job.cancel_requested) == (["Publish"], True)
    assert step(decision.job, exited(1, ExitCause.STOPPED, None)).job.outcome is Outcome.CANCELLED


def test_work_that_was_done_before_the_cancel_reached_it_is_a_success() -> None:
    job = step(running(), Cancel("")).job
    assert step(job, exited(0)).job.outcome is Outcome.SUCCEEDED


def test_the_first_terminal_state_wins() -> None:
    done = step(running(), exited(0)).job
    for event in (Cancel(""), exited(0, ExitCause.FAILED, 1), NodeLost("central-1"), Tick(), Hold(later(20))):
        assert step(done, event) == Decision(done)


# ---- nodes -----------------------------------------------------------------------------------------------------------


def test_a_lost_node_ends_its_members_and_stops_the_rest() -> None:
    decision = step(running(2), NodeLost("central-2"))
    assert (decision.job.phase, freed(decision)) == (JobPhase.STOPPING, [1])
    assert stops(decision) == [("central-1", 1, 0)]
    job = step(decision.job, exited(0, ExitCause.STOPPED, None)).job
    assert (job.phase, job.losses, job.attempt) == (JobPhase.WAITING, 1, None)


def test_a_lost_node_that_holds_nothing_of_the_job_changes_nothing() -> None:
    job = running()
    assert step(job, NodeLost("central-9")) == Decision(job)


def test_the_breaker_holds_requeueing_until_it_is_clear() -> None:
    job = step(running(), NodeLost("central-1", held=True)).job
    assert job.phase is JobPhase.UNREACHABLE
    assert job.reason is not None
    assert job.reason.code is ReasonCode.BREAKER_OPEN
    back = step(job, NodeBack("central-1", frozenset({(1, 0)}), later(20)), at=20).job
    assert (back.phase, back.reason, back.attempts) == (JobPhase.RUNNING, None, 1)
    lost = step(job, NodeLost("central-1", held=False)).job
    assert (lost.phase, lost.losses) == (JobPhase.WAITING, 1)


def kept() -> Job:
    return running(kind="inference", on_partition=OnPartition.KEEP, max_runtime_s=None)


def test_keep_is_unreachable_and_comes_back_with_its_attempt() -> None:
    job = step(kept(), NodeLost("central-1")).job
    assert (job.phase, job.attempts) == (JobPhase.UNREACHABLE, 1)
    assert job.reason is not None
    assert job.reason.code is ReasonCode.NODE_SILENT
    back = step(job, NodeBack("central-1", frozenset({(1, 0)}), later(20)), at=20).job
    assert (back.phase, back.attempts) == (JobPhase.RUNNING, 1)


def test_keep_that_was_cancelled_unseen_is_stopped_when_the_node_is_back() -> None:
    job = step(step(kept(), NodeLost("central-1")).job, Cancel("")).job
    assert job.phase is JobPhase.STOPPING
    job = step(job, NodeBack("central-1", frozenset({(1, 0)}), later(20)), at=20).job
    assert job.phase is JobPhase.STOPPING
    assert step(job, exited(0, ExitCause.STOPPED, 143)).job.outcome is Outcome.CANCELLED


def test_an_offer_of_a_kept_job_is_lost_with_its_node() -> None:
    job = placed(kind="inference", on_partition=OnPartition.KEEP)
    assert step(job, NodeLost("central-1")).job.phase is JobPhase.WAITING


def test_a_node_that_comes_back_without_its_attempt_has_a_grace_to_say_how_it_ended() -> None:
    decision = step(running(), NodeBack("central-1", frozenset(), later(20)), at=20)
    assert decision.effects == ()
    assert wake_at(decision.job, LIMITS) == later(20 + LIMITS.reconcile_grace_s)
    assert step(decision.job, exited(0), at=25).job.outcome is Outcome.SUCCEEDED
    lost = step(decision.job, Tick(), at=20 + LIMITS.reconcile_grace_s).job
    assert (lost.phase, lost.losses) == (JobPhase.WAITING, 1)


def test_a_list_older_than_the_claim_proves_nothing() -> None:
    job = claimed()
    assert step(job, NodeBack("central-1", frozenset(), later(0.5))).job == job


def test_attempts_without_a_right_to_run_are_stopped() -> None:
    job = rerun(step(running(), NodeLost("central-1")).job)
    decision = step(job, NodeBack("central-9", frozenset({(1, 0)}), later(20)))
    assert stops(decision) == [("central-9", 1, 0)]
    decision = step(job, NodeBack("central-1", frozenset({(1, 0), (2, 0)}), later(20)))
    assert stops(decision) == [("central-1", 1, 0)]
    assert decision.job.phase is JobPhase.RUNNING
    assert stops(step(job, Started(1, 0, "central-1"))) == [("central-1", 1, 0)]


def test_late_reports_of_an_old_attempt_change_nothing() -> None:
    job = rerun(step(running(), NodeLost("central-1")).job)
    for event in (
        exited(0, ExitCause.LEASE_EXPIRED, None, attempt=1),
        Ready(1, 0, "central-1", "x"),
        Hung(1, 0, "central-1", 9),
    ):
        assert step(job, event) == Decision(job)


# ---- the table -------------------------------------------------------------------------------------------------------


def test_finished_is_final_and_every_phase_has_a_row() -> None:
    assert set(TRANSITIONS) == set(JobPhase)
    assert TRANSITIONS[JobPhase.FINISHED] == frozenset()


def test_members_that_end_are_told_apart() -> None:
    job = step(running(2), NodeLost("central-2")).job
    assert job.attempt is not None
    assert [member.phase for member in job.attempt.members] == [MemberPhase.STARTED, MemberPhase.LOST]
    assert job.attempt.stop is not None
    assert job.attempt.stop.why is StopWhy.LOST
    assert replace(job, attempt=None).placeable is False
