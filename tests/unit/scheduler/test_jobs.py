"""Every transition of the one table, by the event that makes it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from contracts.attempts import ExitCause
from contracts.base import Priority, Reason, ReasonCode
from contracts.jobs import JobPhase, OnPartition, Outcome
from services.scheduler.core.admission import admit
from services.scheduler.core.model import (
    Allocate,
    Cancel,
    Decision,
    Hold,
    Hung,
    Intent,
    Job,
    MemberPhase,
    NodeBack,
    NodeLost,
    Offer,
    Place,
    Publish,
    Ready,
    Release,
    Reprioritize,
    Started,
    StopWhy,
    Tick,
    Wait,
)
from services.scheduler.core.transitions import TRANSITIONS, wake_at
from tests.unit.scheduler.builders import (
    INCARNATION,
    LIMITS,
    NOW,
    OTHER_INCARNATION,
    accepted,
    claimed,
    exited,
    freed,
    kinds,
    later,
    placed,
    rerun,
    running,
    seats,
    spec,
    step,
    stops,
)

NO_ROOM = Reason(code=ReasonCode.WAITING_FOR_CARDS, message="0 of 4 free", resource="cards", used=4, asked=2, allowed=4)


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
    before = running()
    decision = step(before, Hold(later(3), "inspection"))
    assert decision.effects == (Publish(decision.job),)
    assert (decision.job.phase, decision.job.version) == (JobPhase.RUNNING, before.version + 1)
    assert decision.job.reason is not None
    assert decision.job.reason.message == "held (inspection): attempt 1 goes on, and the job is not placed again"
    assert step(decision.job, Release(later(4))).job.reason is None
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


# ---- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [accepted, placed, running, lambda: step(accepted(), Hold(later(1))).job])
def test_the_class_of_a_job_changes_whatever_it_does_and_the_newest_counts(make: Callable[[], Job]) -> None:
    job = make()
    decision = step(job, Reprioritize(later(5), Priority.BATCH))
    assert (decision.job.phase, decision.job.version) == (job.phase, job.version + 1)
    assert decision.job.spec.effective_priority is Priority.BATCH
    assert decision.effects == (Publish(decision.job),)
    assert step(decision.job, Reprioritize(later(4), Priority.ONLINE)).job == decision.job
    assert step(decision.job, Reprioritize(later(6), Priority.BATCH)).effects == ()


def test_a_class_above_the_highest_changes_nothing_and_the_event_says_so() -> None:
    job = step(accepted(), Wait(NO_ROOM)).job
    refused = Reason(code=ReasonCode.PRIORITY_NOT_ALLOWED, message="")
    decision = step(job, Reprioritize(later(5), Priority.ONLINE, refused))
    assert decision.effects == (Publish(decision.job, refused),)
    assert (decision.job.spec, decision.job.reason, decision.job.version) == (job.spec, job.reason, job.version + 1)


def test_a_class_asked_before_the_job_came_is_its_class() -> None:
    intent = Intent(priority=Priority.BATCH, priority_changed_at=later(1))
    assert admit(spec(), intent, NOW, LIMITS).job.spec.effective_priority is Priority.BATCH


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


def test_a_list_that_was_on_its_way_proves_nothing_of_what_its_agent_claimed_meanwhile() -> None:
    job = running()
    late = NodeBack("central-1", frozenset(), later(20), INCARNATION)
    assert step(job, late, at=20).job == job
    other = replace(late, incarnation=OTHER_INCARNATION)
    assert wake_at(step(job, other, at=20).job, LIMITS) == later(20 + LIMITS.reconcile_grace_s)


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
