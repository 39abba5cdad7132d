"""Whose turn it is, where jobs land, and why the others stay: without preemption and reservations."""

import pytest

from contracts.base import Reason, ReasonCode
from services.scheduler.core.arrays import CARD, Level, Plan
from tests.unit.scheduler.scenes import SH, Job, Node, R, Run, Tenant, World, job, where, why

H8 = ("H100",) * 8


def test_higher_classes_first_and_then_first_come() -> None:
    jobs = [job("late", at=2), job("early", at=1), job("low", rank=2), job("high", rank=0, at=9)]
    assert list(where(World([Node("a", H8[:3])], jobs).decided())) == ["high", "early", "late"]


def test_damaged_jobs_first_within_their_class() -> None:
    jobs = [job("a"), job("hurt", at=9, damaged=True), job("urgent", rank=0, at=10)]
    assert list(where(World([Node("a", H8[:2])], jobs).decided())) == ["urgent", "hurt"]


def test_inside_the_guarantee_before_those_that_borrow() -> None:
    tenants = [Tenant("a", guarantee=0, limit=8), Tenant("b", guarantee=1, limit=8, uses=100)]
    jobs = [job("a1", tenant="a"), job("b1", tenant="b", at=1), job("b2", tenant="b", at=2)]
    plan = World([Node("n", H8[:2])], jobs, tenants=tenants).decided()
    assert list(where(plan)) == ["b1", "a1"]


def test_the_least_share_goes_first_and_weight_divides_it() -> None:
    tenants = [
        Tenant("a", guarantee=0, limit=8, uses=10),
        Tenant("b", guarantee=0, limit=8, uses=15, weight=3),
        Tenant("c", guarantee=0, limit=8, uses=20),
    ]
    jobs = [job(name, tenant=name) for name in "abc"]
    plan = World([Node("n", H8)], jobs, tenants=tenants).decided()
    assert list(where(plan)) == ["b", "a", "c"]


def test_what_is_held_now_counts_in_the_share() -> None:
    tenants = [Tenant("a", guarantee=0, limit=8), Tenant("b", guarantee=0, limit=8)]
    jobs = [job(f"{name}{at}", tenant=name, at=at) for name in "ab" for at in range(4)]
    plan = World([Node("n", H8[:4])], jobs, tenants=tenants).decided()
    assert list(where(plan)) == ["a0", "b0", "a1", "b1"]


def test_gates_answer_at_once() -> None:
    gate = Reason(code=ReasonCode.WAITING_FOR_WINDOW, message="opens at ten")
    plan = World([Node("n", H8)], [job("j", gate=gate)]).decided()
    assert plan.stays[0].reason == gate


def test_an_unknown_tenant_waits() -> None:
    plan = World([Node("n", H8)], [job("j")], tenants=[Tenant(known=False)]).decided()
    assert why(plan) == {"j": ReasonCode.UNKNOWN_TENANT}


def test_pools_are_for_their_tenants() -> None:
    nodes = [Node("own", H8[:1], pool="a-only"), Node("shared", H8[:1])]
    tenants = [Tenant("a", pools=["a-only"]), Tenant("b")]
    jobs = [job("b1", tenant="b"), job("b2", tenant="b", at=1), job("a1", tenant="a", at=2)]
    plan = World(nodes, jobs, tenants=tenants).decided()
    assert where(plan) == {"b1": ["shared"], "a1": ["own"]}
    assert plan.stays[0].reason.message == "asks 1 card: 0 of 1 are free on central nodes"


def test_the_cohort_lends_what_it_leaves_and_no_more() -> None:
    tenants = [Tenant("a", guarantee=2, limit=8, cohort="x"), Tenant("b", guarantee=2, limit=8, cohort="x")]
    jobs = [job(f"a{at}", tenant="a", at=at) for at in range(6)]
    plan = World([Node("n", H8)], jobs, tenants=tenants).decided()
    assert list(where(plan)) == ["a0", "a1", "a2", "a3"]
    reason = plan.stays[0].reason
    assert (reason.code, reason.used, reason.asked, reason.allowed) == (ReasonCode.WAITING_FOR_QUOTA, 4, 1, 4)
    assert "cohort x" in reason.message


def test_cohorts_borrow_through_their_parent_up_to_a_ceiling() -> None:
    tenants = [Tenant("a", guarantee=1, limit=8, cohort="x"), Tenant("b", guarantee=5, limit=8, cohort="y")]
    jobs = [job(f"a{at}", tenant="a", at=at) for at in range(8)]
    world = World([Node("n", H8)], jobs, tenants=tenants, parents={"x": "all", "y": "all"})
    assert len(where(world.decided())) == 6
    plan = world.but(ceilings={"x": 3}).decided()
    assert len(where(plan)) == 3
    assert "cohort x has 3 of 3 in use" in plan.stays[0].reason.message


def test_concurrent_jobs_and_cards_wait_for_quota() -> None:
    run = Run("r", [("n", (0, 1))], rank=1)
    jobs = [job("a", 2), job("b", 2, at=1)]
    plan = World([Node("n", H8)], jobs, [run], [Tenant(guarantee=5)]).decided()
    reason = plan.stays[0].reason
    assert where(plan) == {"a": ["n"]}
    assert (reason.resource, reason.used, reason.asked, reason.allowed) == ("cards", 4, 2, 5)
    plan = World([Node("n", H8)], jobs, [run], [Tenant(jobs=2)]).decided()
    assert [(s.reason.resource, s.reason.used, s.reason.allowed) for s in plan.stays] == [("jobs", 2, 2)]


@pytest.mark.parametrize(
    ("waiting", "code", "resource", "amounts"),
    [
        (job("j", 2), ReasonCode.WAITING_FOR_CARDS, "cards", (3, 2, 4)),
        (job("j", 9), ReasonCode.WAITING_FOR_NODES, "cards", (0, 9, 4)),
        (job("j", tiers=(R,)), ReasonCode.WAITING_FOR_NODES, "nodes", (0, 1, 0)),
        (job("j", cpu_milli=70_000), ReasonCode.WAITING_FOR_NODES, "cpu_milli", (0, 70_000, 64_000)),
        (job("j", models=("a100",)), ReasonCode.WAITING_FOR_NODES, "cards", (0, 1, 0)),
    ],
)
def test_the_reason_names_resource_and_amounts(
    waiting: Job, code: ReasonCode, resource: str, amounts: tuple[int, int, int]
) -> None:
    plan = World([Node("n", H8[:4])], [waiting], [Run("r", [("n", (0, 1, 2))], preemptible=False)]).decided()
    reason = plan.stays[0].reason
    assert (reason.code, reason.resource) == (code, resource)
    assert (reason.used, reason.asked, reason.allowed) == amounts


def test_a_share_of_a_card_that_no_card_has_is_fragmented() -> None:
    runs = [Run(f"r{at}", [("n", (at,))], demand=job("", share=700_000).demand, preemptible=False) for at in range(2)]
    plan = World([Node("n", H8[:2])], [job("j", share=500_000)], runs).decided()
    reason = plan.stays[0].reason
    assert (reason.code, reason.resource) == (ReasonCode.FRAGMENTED, "card_millionths")
    assert (reason.used, reason.asked, reason.allowed) == (1_400_000, CARD // 2, 2 * CARD)


def test_topology_that_cannot_be_met_now_is_named() -> None:
    nodes = [Node("a", H8[:4], rack="1"), Node("b", H8[:4], rack="2")]
    runs = [Run(f"r-{name}", [(name, (0,))], preemptible=False) for name in "ab"]
    plan = World(nodes, [job("j", 2, members=2, level=Level.RACK, level_required=True)], runs).decided()
    assert why(plan) == {"j": ReasonCode.TOPOLOGY}


def test_an_empty_fleet_and_an_empty_queue() -> None:
    plan = World(jobs=[job("j"), job("k", 0, tiers=(R, SH))]).decided()
    assert why(plan) == {"j": ReasonCode.WAITING_FOR_NODES, "k": ReasonCode.WAITING_FOR_NODES}
    assert World([Node("a", H8)]).decided() == Plan((), (), (), ())


def test_memory_of_cards_in_shares() -> None:
    """SC10: a share of memory is rounded up to a millionth, and exactly 23 fit."""
    mib = 1024**2
    jobs = [job(f"j{at:02}", at=at, share_memory_bytes=2000 * mib) for at in range(24)]
    plan = World([Node("n", ["A40"], card_bytes=46_068 * mib)], jobs).decided()
    assert len(plan.placements) == 23
    assert plan.placements[0].seats[0].share == 43_415
