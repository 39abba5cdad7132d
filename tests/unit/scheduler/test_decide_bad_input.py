"""Input that is odd or wrong: a documented outcome or a clear error, never a wrong placement."""

import pytest

from contracts.base import ReasonCode
from services.scheduler.core.arrays import CARD, NEVER
from services.scheduler.core.fairness import CohortCycleError, cohort_cycle
from services.scheduler.core.forecast import earliest
from services.scheduler.core.packing import Mix
from services.scheduler.core.policy import DEFAULT
from tests.unit.scheduler.scenes import NOW, C, Node, R, Run, S, Tenant, World, job, kept, victims, where, why

H8 = ("H100",) * 8


def test_an_empty_fleet_places_nothing() -> None:
    plan = World(jobs=[job("a"), job("b", 0), job("c", 2, members=3)]).decided()
    assert set(why(plan).values()) == {ReasonCode.WAITING_FOR_NODES}
    assert (plan.placements, plan.preemptions, plan.reservations) == ((), (), ())


def test_nodes_without_cards_take_jobs_without_cards_only() -> None:
    plan = World([Node("n")], [job("a", 0, cpu_milli=100), job("b", 1)]).decided()
    assert where(plan) == {"a": ["n"]}
    assert why(plan) == {"b": ReasonCode.WAITING_FOR_NODES}


def test_a_gang_larger_than_the_fleet_waits_and_keeps_nothing() -> None:
    plan = World([Node("n", H8)], [job("a", 8, members=2), job("b", 8, at=1)]).decided()
    assert where(plan) == {"b": ["n"]}
    assert kept(plan) == {}
    reason = plan.stays[0].reason
    assert (reason.resource, reason.asked, reason.allowed) == ("cards", 16, 8)
    assert plan.stays[0].starts_us == NEVER


def test_more_than_a_whole_card_is_never_a_share() -> None:
    plan = World([Node("n", H8)], [job("a", share=CARD + 1)]).decided()
    assert why(plan) == {"a": ReasonCode.WAITING_FOR_NODES}


def test_a_share_of_more_memory_than_any_card_has_waits() -> None:
    plan = World([Node("n", H8)], [job("a", share_memory_bytes=2**62)]).decided()
    assert why(plan) == {"a": ReasonCode.WAITING_FOR_NODES}


def test_cohorts_below_themselves_are_refused_by_name() -> None:
    parents = {"x": "y", "y": "z", "z": "x"}
    assert cohort_cycle(parents) == ("x", "y", "z", "x")
    assert cohort_cycle({"x": "y", "y": None, "z": "y"}) is None
    assert cohort_cycle({"a": "b", "b": "b"}) == ("b", "b")
    world = World([Node("n", H8)], [job("a")], tenants=[Tenant(cohort="x")], parents=parents)
    with pytest.raises(CohortCycleError, match="cohorts x -> y -> z -> x stand below themselves"):
        world.decided()


def test_a_clock_that_jumped_back_loses_no_work_and_places_the_same() -> None:
    runs = [Run("r", [("n", (0,))], placed_s=500, saved_s=900, ends_s=4000)]
    jobs = [job("a", 8, rank=0, at=10**6), job("b", 1, at=10**6)]
    plan = World([Node("n", H8)], jobs, runs).decided()
    assert victims(plan) == {"r": "priority"}
    assert why(plan)["b"] == ReasonCode.RESERVED


def test_a_clock_that_jumped_ahead_expects_what_is_overdue_to_end_now() -> None:
    runs = [Run("r", [("n", (0,))], ends_s=-(10**6), preemptible=False)]
    plan = World([Node("n", H8[:1])], [job("a")], runs).decided()
    assert plan.reservations[0].starts_us == NOW + S


def test_a_weight_of_nothing_divides_by_nothing() -> None:
    tenants = [Tenant("a", weight=0.0, guarantee=0, limit=9, uses=1), Tenant("b", guarantee=0, limit=9, uses=9)]
    jobs = [job("a1", tenant="a"), job("b1", tenant="b")]
    assert list(where(World([Node("n", H8)], jobs, tenants=tenants).decided())) == ["b1", "a1"]


def test_a_limit_below_the_guarantee_is_the_limit() -> None:
    plan = World([Node("n", H8)], [job("a", 2)], tenants=[Tenant(guarantee=4, limit=1)]).decided()
    assert why(plan) == {"a": ReasonCode.WAITING_FOR_QUOTA}


def test_when_one_job_may_start_is_told_or_said_to_be_unknown() -> None:
    world = World([Node("n", H8[:2])], [], [Run("r", [("n", (0,))], ends_s=70)])
    fleet = world.fleet()

    def asked(cards: int, tier: object = C) -> tuple[int, str] | None:
        demand = job("", cards, tiers=(R if tier is R else C,)).demand
        parts = fleet, world.running(fleet), world.tenancy(fleet), Mix(), DEFAULT, NOW
        return earliest(*parts, demand=demand, tenant=0)

    assert asked(1) == (NOW, "the room is free now, but jobs that come before it have a claim")
    assert asked(2) == (
        NOW + 70 * S,
        "at the earliest, if nothing comes before: job r there is over by the longest run",
    )
    assert asked(3) is None
    assert asked(1, R) is None
