"""Room kept for those that come first, and what may pass them (SC15)."""

from typing import Any

from contracts.base import ReasonCode
from services.scheduler.core.arrays import NEVER
from services.scheduler.core.policy import FIFO, SHORTEST, Policy
from tests.unit.scheduler.scenes import NOW, Node, Run, S, Tenant, World, job, kept, where, why

H8 = ("H100",) * 8


def firm(name: str, node: str, cards: tuple[int, ...], **others: Any) -> Run:
    return Run(name, [(node, cards)], preemptible=False, **others)


HALF = World([Node("n", H8[:4])], [], [firm("r", "n", (0, 1), ends_s=1000)])


def test_a_blocked_gang_keeps_the_room_that_it_will_have() -> None:
    plan = HALF.but(jobs=[job("big", 4), job("small", 1, at=1, longest_s=2000)]).decided()
    assert (where(plan), kept(plan)) == ({}, {"big": ["n"]})
    assert why(plan) == {"big": ReasonCode.WAITING_FOR_CARDS, "small": ReasonCode.RESERVED}
    assert "kept for job big" in plan.stays[1].reason.message
    assert plan.stays[1].frees == "the start of the job that it is kept for, or a `max_runtime_s` of at most 1000"


def test_what_ends_before_the_reservation_starts_may_pass() -> None:
    jobs = [job("big", 4), job("long", 1, at=1, longest_s=1001), job("short", 1, at=2, longest_s=1000)]
    assert where(HALF.but(jobs=jobs).decided()) == {"short": ["n"]}
    endless = job("endless", 1, at=1, longest_s=None)
    assert where(HALF.but(jobs=[jobs[0], endless]).decided()) == {}


def test_what_does_not_touch_the_reserved_nodes_may_pass() -> None:
    world = HALF.but(nodes=[*HALF.nodes, Node("other", H8[:1])], jobs=[job("big", 4), job("long", 1, at=1)])
    assert where(world.decided()) == {"long": ["other"]}


def test_the_expected_start_and_what_it_rests_on() -> None:
    stay = HALF.but(jobs=[job("big", 4)]).decided().stays[0]
    assert stay.starts_us == NOW + 1000 * S
    assert stay.basis == "job r there is over by the longest run"


def test_a_start_that_nobody_knows_is_called_so() -> None:
    world = World([Node("n", H8[:1])], [job("j"), job("k", at=1)], [firm("r", "n", (0,), ends_s=None)])
    plan = world.decided()
    assert kept(plan) == {}
    assert {(stay.starts_us, stay.basis) for stay in plan.stays} == {
        (NEVER, "not known: no end by a longest run would make room enough")
    }


def test_the_earliest_of_many_ends_is_found() -> None:
    runs = [firm(f"r{at}", "n", (at,), ends_s=100 * (at + 1)) for at in range(8)]
    plan = World([Node("n", H8)], [job("j", 5)], runs).decided()
    assert plan.reservations[0].starts_us == NOW + 500 * S
    assert plan.reservations[0].basis == "job r4 and 4 more there are over by the longest run"


def test_what_runs_over_its_time_is_expected_to_end_now() -> None:
    plan = World([Node("n", H8[:1])], [job("j")], [firm("r", "n", (0,), ends_s=-5)]).decided()
    assert plan.reservations[0].starts_us == NOW + S


def test_reservations_are_bounded_for_each_kind_of_cards_and_in_all() -> None:
    nodes = [Node(f"n{at}", H8[:1]) for at in range(5)]
    runs = [firm(f"r{at}", f"n{at}", (0,), ends_s=100 + at) for at in range(5)]
    world = World(nodes, [job(f"j{at}", at=at, longest_s=900 - at) for at in range(5)], runs)
    assert list(kept(world.decided())) == ["j0", "j1"]
    assert list(kept(world.but(policy=Policy(reservations=4)).decided())) == ["j0", "j1", "j2", "j3"]
    assert list(kept(world.but(policy=Policy(reservations=4, max_reservations=3)).decided())) == ["j0", "j1", "j2"]
    assert world.decided().stays[4].basis == "not known: room is kept for jobs that come before it"


def test_a_job_for_other_cards_passes_a_blocked_one() -> None:
    """SC15, the first half."""
    jobs = [job("a", models=("a100",)), job("h", models=("h100",), at=1)]
    assert where(World([Node("n", H8[:1])], jobs).decided()) == {"h": ["n"]}


def test_strict_order_lets_nothing_pass_for_the_same_kind() -> None:
    jobs = [job("big", 4), job("small", 1, at=1, longest_s=10)]
    plan = HALF.but(jobs=jobs, policy=FIFO).decided()
    assert where(plan) == {}
    assert plan.stays[1].reason.message == "asks 1 card: job big comes before it and does not fit yet"
    assert plan.stays[1].frees == "the start of the job that comes before it"
    assert where(HALF.but(jobs=jobs, policy=SHORTEST).decided()) == {"small": ["n"]}


def test_a_tenants_limit_is_kept_for_its_earlier_and_larger_job() -> None:
    runs = [Run("r", [("n", (0, 1))], rank=1, ends_s=1000)]
    jobs = [job("big", 3), job("long", 1, at=1, longest_s=2000), job("short", 1, at=2, longest_s=900)]
    world = World([Node("n", H8)], jobs, runs, [Tenant(guarantee=4)])
    plan = world.decided()
    assert where(plan) == {"short": ["n"]}
    assert why(plan) == {"big": ReasonCode.WAITING_FOR_QUOTA, "long": ReasonCode.RESERVED}
    assert plan.stays[0].starts_us == NOW + 1000 * S
    assert plan.stays[1].frees.endswith(", or a `max_runtime_s` of at most 1000")
    roomy = world.but(tenants=[Tenant(guarantee=5)]).decided()
    assert set(where(roomy)) == {"big"}
    both = world.but(jobs=[job("big", 3), job("long", 1, at=1)], tenants=[Tenant(guarantee=4)], runs=runs[:0])
    assert set(where(both.decided())) == {"big", "long"}


def test_what_is_placed_in_the_same_plan_and_ends_does_not_cost_a_reservation() -> None:
    jobs = [job("first", 1, rank=0, longest_s=2000), job("big", 4, at=1), job("endless", 1, at=2, longest_s=None)]
    plan = HALF.but(jobs=jobs).decided()
    assert (where(plan), kept(plan)) == ({"first": ["n"]}, {"big": ["n"]})
    assert plan.reservations[0].starts_us == NOW + 2000 * S
    forever = HALF.but(jobs=[job("first", 1, rank=0, longest_s=None), *jobs[1:]]).decided()
    assert set(where(forever)) == {"first", "endless"}
