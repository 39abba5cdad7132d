"""Troubles SC7, SC8 and SC17 to SC20: commits, running attempts, fair share, exact time, and what comes back."""

from contracts.attempts import ExitCause
from contracts.base import Priority
from contracts.jobs import JobPhase, Outcome
from services.scheduler.core.fairness import Accounts
from services.scheduler.core.model import NodeBack, NodeLost, Started, Tick
from services.scheduler.core.policy import DAY_S, DEFAULT, Policy, decayed
from services.scheduler.core.quota import Commitment, Holding, Quotas, Standing, Tenant, counted_ms, held_ms, refusal
from tests.unit.scheduler import scenes
from tests.unit.scheduler.builders import LIMITS, NOW, exited, later, rerun, running, spec, step, stops
from tests.unit.scheduler.scenes import Node, Run, World, job, where

HOUR = 3_600_000


def test_sc07_a_placement_names_the_versions_that_its_fit_was_seen_at() -> None:
    """Two plans from one snapshot choose the same card; the second commit finds another version (test_commit)."""
    world = World([Node("n", ("H100",))], [job("a")])
    first, second = world.decided(), world.but(jobs=[job("b")]).decided()
    assert first.placements[0].node_versions == second.placements[0].node_versions == (("n", 1),)
    assert (first.placements[0].version, len(first.placements[0].seats)) == (7, 1)
    both = world.but(jobs=[job("a"), job("b")]).decided()
    assert where(both) == {"a": ["n"]}


def test_sc08_a_blip_of_a_node_does_not_move_a_running_attempt() -> None:
    job_before = running(members=2)
    assert job_before.attempt is not None
    seats = [member.seat for member in job_before.attempt.members]
    unseen = step(job_before, NodeLost("central-1", held=True), at=60).job
    back = step(unseen, NodeBack("central-1", frozenset({(1, 0)}), later(180)), at=180).job
    assert back.attempt is not None
    assert [member.seat for member in back.attempt.members] == seats
    assert (back.phase, back.attempts, back.attempt.generation) == (JobPhase.RUNNING, 1, 1)
    blip = World([Node("n", ("H100",), ready=False)], [], [Run("r", [("n", (0,))])]).decided()
    assert (blip.placements, blip.preemptions) == ((), ())


def test_sc17_fair_share_works_by_default_and_what_is_off_is_said() -> None:
    assert DEFAULT.turned_off() == ()
    assert decayed(8.0, 14 * DAY_S, DEFAULT.half_life_s) == 2.0
    used = [scenes.Tenant("a", guarantee=0, limit=8, uses=50), scenes.Tenant("b", guarantee=0, limit=8)]
    jobs = [job("a1", tenant="a"), job("b1", tenant="b", at=5)]
    world = World([Node("n", ("H100",) * 2)], jobs, tenants=used)
    assert list(where(world.decided())) == ["b1", "a1"]
    off = Policy(half_life_s=0)
    assert off.turned_off() == ("half_life_s is 0: past use counts nothing, shares follow what is held now",)
    assert list(where(world.but(policy=off).decided())) == ["a1", "b1"]
    accounts = Accounts(world.tenancy(world.fleet()), off)
    accounts.take(0, 1_000_000)
    assert accounts.share(0) > accounts.share(1) == 0
    assert {text.split(":")[0] for text in Policy(reservations=0, preempt=False, consolidate=False).turned_off()} == {
        "reservations are off",
        "preemption is off",
        "consolidation is off",
    }


def test_sc17_a_clock_that_went_back_takes_no_use_away() -> None:
    assert decayed(8.0, -3600, DEFAULT.half_life_s) == 8.0


def test_sc18_milliseconds_are_exact_and_what_was_not_used_comes_back() -> None:
    short = Holding(2, NOW, NOW.replace(microsecond=250_000))
    almost = Holding(1, NOW, later(3599))
    assert held_ms(short, NOW, later(9)) == 500
    assert held_ms(almost, NOW, later(9999)) == 3_599_000
    promised = Commitment(8 * HOUR, rolling=False, holdings=(Holding(1, NOW),))
    assert counted_ms(Standing(live=(promised,)), later(60)) == 8 * HOUR
    assert counted_ms(Standing(ended_ms=60_000), later(60)) == 60_000
    tenant = Tenant("acme", 1, Quotas(8 * HOUR, 8, 4, Priority.ONLINE))
    asked = spec(resources={"cards": 1}, max_runtime_s=7 * 3600)
    assert refusal(tenant, asked, Standing(live=(promised,)), later(60)) is not None
    assert refusal(tenant, asked, Standing(ended_ms=60_000), later(60)) is None


def test_sc19_no_time_is_held_before_it_began_and_a_job_that_ended_unseen_is_not_run_again() -> None:
    ahead = Holding(4, later(30))
    assert held_ms(ahead, NOW, NOW) == 0
    silent = step(running(), NodeLost("central-1", held=True), at=10).job
    back = step(silent, NodeBack("central-1", frozenset(), later(100)), at=100).job
    waits = step(back, Tick(), at=100 + LIMITS.reconcile_grace_s - 1).job
    done = step(waits, exited(0), at=100 + LIMITS.reconcile_grace_s - 1).job
    assert (done.outcome, done.attempts, done.losses) == (Outcome.SUCCEEDED, 1, 0)


def test_sc20_a_returning_node_keeps_the_right_attempt_and_stops_the_old_one() -> None:
    again = rerun(step(running(), NodeLost("central-1")).job)
    old = step(again, NodeBack("central-9", frozenset({(1, 0)}), later(20)), at=20)
    assert stops(old) == [("central-9", 1, 0)]
    assert (old.job.phase, old.job.attempts) == (JobPhase.RUNNING, 2)
    assert step(again, exited(0, ExitCause.COMPLETED, 0, attempt=1), at=21).job == again
    both = step(again, NodeBack("central-1", frozenset({(1, 0), (2, 0)}), later(20)), at=20)
    assert stops(both) == [("central-1", 1, 0)]
    assert stops(step(again, Started(1, 0, "central-1"), at=22)) == [("central-1", 1, 0)]
