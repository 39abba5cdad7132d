"""Who leaves for whom: rights, the smallest and cheapest set, and room that is kept while they leave."""

from typing import Any

import pytest

from contracts.base import ReasonCode
from services.scheduler.core import stays
from services.scheduler.core.arrays import CARD, PreemptWhy
from services.scheduler.core.policy import Policy
from tests.unit.scheduler.scenes import Node, Run, Tenant, World, job, kept, victims, where, why

H8 = ("H100",) * 8
TWO = (Tenant("a", guarantee=0, limit=99), Tenant("b", guarantee=0, limit=99))


def full(name: str, node: str, cards: tuple[int, ...], **others: Any) -> Run:
    return Run(name, [(node, cards)], **others)


def test_a_higher_class_takes_preemptible_work_of_a_lower_one() -> None:
    world = World([Node("n", H8[:2])], [job("j", rank=0)], [full("r", "n", (0, 1))])
    plan = world.decided()
    assert victims(plan) == {"r": "priority"}
    assert plan.preemptions[0].for_job == "j"
    assert why(plan) == {"j": ReasonCode.WAITING_FOR_PREEMPTION}
    assert plan.stays[0].reason.message == "asks 1 card: 1 job there is leaving"
    assert plan.preemptions[0].reason.message.startswith("its 2 cards go to job j of a higher class: ")
    assert kept(plan) == {"j": ["n"]}
    assert plan.placements == ()


@pytest.mark.parametrize(
    ("cause", "held", "said"),
    [
        (PreemptWhy.PRIORITY, CARD, "its 1 card goes to job j of a higher class"),
        (PreemptWhy.PRIORITY, 0, "its place goes to job j of a higher class"),
        (
            PreemptWhy.GUARANTEE,
            CARD,
            "its 1 card was borrowed beyond the guarantee of tenant acme and goes back to job j",
        ),
        (PreemptWhy.GUARANTEE, 2 * CARD, "its 2 cards were borrowed beyond the guarantee of tenant acme and go back"),
        (PreemptWhy.TURN, CARD // 2, "its 0.5 cards were held long: the turn goes to job j"),
        (PreemptWhy.QUOTA, CARD, "its 1 card is above the lowered limit of tenant acme"),
        (PreemptWhy.CONSOLIDATION, CARD, "its 1 card makes room for job j, and it has room elsewhere"),
        (PreemptWhy.DRAIN, CARD, "its 1 card is in a pool that is no longer for tenant acme"),
    ],
)
def test_a_victim_is_told_of_one_card_as_of_one(cause: PreemptWhy, held: int, said: str) -> None:
    assert stays.told_to_leave(cause, "acme", "j", held).message.startswith(said)


def test_what_is_not_preemptible_stays_within_its_class() -> None:
    world = World([Node("n", H8[:1])], [job("j", rank=0)], [full("r", "n", (0,), preemptible=False)])
    assert victims(world.decided()) == {}


def test_the_fewest_and_then_the_cheapest_leave() -> None:
    """SC5."""
    runs = [full(f"small{at}", "a", (at,), saved_s=-1) for at in range(8)]
    runs += [full("dear", "b", tuple(range(8)), saved_s=-600), full("cheap", "c", tuple(range(8)), saved_s=-60)]
    nodes = [Node(name, H8) for name in "abc"]
    assert victims(World(nodes, [job("j", 8, rank=0)], runs).decided()) == {"cheap": "priority"}
    assert victims(World(nodes, [job("j", 1, rank=0)], runs).decided()) == {"small0": "priority"}


def test_two_of_a_node_leave_rather_than_five() -> None:
    sizes = {"a": (0,), "b": (1,), "c": (2,), "d": (3, 4), "e": (5, 6)}
    runs = [full(name, "n", cards, saved_s=-len(cards) * 100) for name, cards in sizes.items()]
    plan = World([Node("n", H8[:7])], [job("j", 3, rank=0)], runs).decided()
    assert victims(plan) == {"a": "priority", "d": "priority"}


def test_gangs_leave_as_one() -> None:
    """SC12, the plan's part: the whole attempt is named, never one of its members."""
    runs = [Run("gang", [(name, (0,)) for name in "abc"])]
    plan = World([Node(name, H8[:1]) for name in "abc"], [job("j", rank=0)], runs).decided()
    assert victims(plan) == {"gang": "priority"}


def test_for_a_gang_nodes_are_emptied_that_lose_least() -> None:
    runs = [full(f"a{at}", "a", (2 * at, 2 * at + 1)) for at in range(4)]
    runs += [full("b", "b", tuple(range(8))), full("c", "c", tuple(range(8)))]
    plan = World([Node(name, H8) for name in "abc"], [job("j", 8, members=2, rank=0)], runs).decided()
    assert victims(plan) == {"b": "priority", "c": "priority"}
    assert kept(plan) == {"j": ["b", "c"]}


def test_two_preemptors_never_count_the_same_victim() -> None:
    """SC1."""
    runs = [full("r1", "a", (0, 1)), full("r2", "b", (0, 1))]
    jobs = [job("j1", 2, rank=0), job("j2", 2, rank=0, at=1), job("j3", 2, rank=0, at=2)]
    plan = World([Node("a", H8[:2]), Node("b", H8[:2])], jobs, runs).decided()
    assert sorted((p.job_id, p.for_job) for p in plan.preemptions) == [("r1", "j1"), ("r2", "j2")]
    assert why(plan)["j3"] == ReasonCode.WAITING_FOR_CARDS
    one = World([Node("a", H8[:2])], jobs[:2], runs[:1]).decided()
    assert sorted((p.job_id, p.for_job) for p in one.preemptions) == [("r1", "j1")]


def test_the_room_of_those_who_leave_is_kept_for_whom_they_leave() -> None:
    """Later plans stop nobody again, and nobody else gets what has already become free."""
    leaving = full("r1", "n", (0,), stopping=True, leaving_for="j")
    jobs = [job("j", 2, rank=1), job("new", 1, rank=0, at=5, longest_s=None)]
    plan = World([Node("n", H8[:2])], jobs, [leaving]).decided()
    assert (victims(plan), where(plan)) == ({}, {})
    assert why(plan) == {"j": ReasonCode.WAITING_FOR_PREEMPTION, "new": ReasonCode.RESERVED}
    assert kept(plan) == {"j": ["n"]}


def test_whom_others_left_for_has_the_first_word_until_it_starts() -> None:
    jobs = [job("low", rank=2, at=9), job("high", rank=0), job("victim", rank=1, left_for="low")]
    assert list(where(World([Node("n", H8[:1])], jobs).decided())) == ["low"]


def test_what_the_first_word_gave_a_tenant_counts_when_the_turns_begin() -> None:
    """Its next job is no longer inside its guarantee, so that it comes after one that is, of whatever class."""
    tenants = [Tenant("a", guarantee=1, limit=9), Tenant("b", guarantee=1), Tenant("c")]
    jobs = [job("claims", tenant="a", at=9), job("next", tenant="a", rank=0), job("inside", tenant="b", rank=2)]
    left = job("left", tenant="c", left_for="claims", rank=2, at=99)
    assert where(World([Node("n", H8[:2])], [*jobs, left], tenants=tenants).decided()) == {
        "claims": ["n"],
        "inside": ["n"],
    }


def test_room_is_kept_while_own_work_leaves_for_the_limit() -> None:
    leaving = full("r", "n", (0,), stopping=True, leaving_for="j")
    jobs = [job("j", 1, rank=0), job("other", 1, rank=1, at=1, longest_s=None, tenant="b")]
    tenants = [Tenant(guarantee=1), Tenant("b")]
    plan = World([Node("n", H8[:2])], jobs, [leaving], tenants).decided()
    assert why(plan)["j"] == ReasonCode.WAITING_FOR_PREEMPTION
    assert kept(plan) == {"j": ["n"]}


def test_what_own_work_leaves_of_the_limit_is_not_taken_by_the_next() -> None:
    leaving = full("r", "n", (0, 1), stopping=True, leaving_for="j")
    jobs = [job("j", 3, rank=0), job("next", 1, rank=1, at=1)]
    plan = World([Node("n", H8), Node("m", H8)], jobs, [leaving], [Tenant(guarantee=4)]).decided()
    assert why(plan) == {"j": ReasonCode.WAITING_FOR_PREEMPTION, "next": ReasonCode.RESERVED}


def test_work_without_cards_is_not_borrowed() -> None:
    tenants = [Tenant("a", guarantee=0, limit=9), Tenant("b", guarantee=0, limit=9)]
    cpu = job("", 0, cpu_milli=64_000).demand
    runs = [Run("r", [("n", ())], tenant="a", rank=0, preemptible=False, demand=cpu), full("s", "n", (0,), tenant="a")]
    plan = World([Node("n", H8)], [job("j", 0, cpu_milli=100, tenant="b")], runs, tenants).decided()
    assert victims(plan) == {}


def test_when_they_have_left_the_job_starts() -> None:
    assert where(World([Node("n", H8[:2])], [job("j", 2, rank=1)]).decided()) == {"j": ["n"]}


def test_a_tenant_inside_its_guarantee_takes_back_what_was_borrowed() -> None:
    """SC6: even from work of a higher class that is not preemptible, as it was borrowed."""
    tenants = [Tenant("a", guarantee=1, limit=4, cohort="x"), Tenant("b", guarantee=1, limit=4, cohort="x")]
    runs = [full("r1", "n", (0,), tenant="a", rank=0, preemptible=False), full("r2", "n", (1,), tenant="a", rank=0)]
    plan = World([Node("n", H8[:2])], [job("j", rank=2, tenant="b")], runs, tenants).decided()
    assert victims(plan) == {"r2": "guarantee"}


def test_nobody_takes_from_inside_a_guarantee() -> None:
    tenants = [Tenant("a", guarantee=2, limit=4), Tenant("b", guarantee=0, limit=4)]
    plan = World([Node("n", H8[:2])], [job("j", rank=0, tenant="b")], [full("r", "n", (0, 1), tenant="a")], tenants)
    assert victims(plan.decided()) == {}


def test_only_as_much_as_was_borrowed_goes_back() -> None:
    tenants = [Tenant("a", guarantee=3, limit=8), Tenant("b", guarantee=4, limit=8)]
    runs = [full(f"r{at}", "n", (at,), tenant="a") for at in range(4)]
    plan = World([Node("n", H8[:4])], [job("j", 2, rank=2, tenant="b")], runs, tenants).decided()
    assert victims(plan) == {}
    plan = World([Node("n", H8[:4])], [job("j", 1, rank=2, tenant="b")], runs, tenants).decided()
    assert victims(plan) == {"r0": "guarantee"}


def test_no_job_is_preempted_twice_without_another_change() -> None:
    """SC4, one plan."""
    world = World([Node("n", H8[:1])], [job("j", rank=0)], [full("r", "n", (0,), preempted_s=-50)], changed_s=-100)
    assert victims(world.decided()) == {}
    assert victims(world.but(changed_s=-20).decided()) == {"r": "priority"}


def test_own_work_of_a_lower_class_leaves_where_only_the_limit_is_in_the_way() -> None:
    runs = [full("r1", "n", (0, 1)), full("r2", "n", (2,))]
    world = World([Node("n", H8)], [job("j", 1, rank=0)], runs, [Tenant(guarantee=3)])
    assert victims(world.decided()) == {"r2": "priority"}


def test_a_lowered_limit_stops_the_fewest_and_cheapest_and_never_goes_below_zero() -> None:
    """SC2, SC3."""
    runs = [full(f"r{at}", "n", (at,), saved_s=-at - 1) for at in range(6)]
    world = World([Node("n", H8)], [job("j", rank=2)], runs, [Tenant(guarantee=4)])
    plan = world.decided()
    assert victims(plan) == {"r0": "quota", "r1": "quota"}
    reason = plan.stays[0].reason
    assert (reason.code, reason.used, reason.asked, reason.allowed) == (ReasonCode.WAITING_FOR_QUOTA, 6, 1, 4)
    firm = world.but(runs=[full(f"r{at}", "n", (at,), preemptible=False) for at in range(6)]).decided()
    assert (victims(firm), why(firm)) == ({}, {"j": ReasonCode.WAITING_FOR_QUOTA})


def test_work_of_a_tenant_whose_file_is_gone_runs_on() -> None:
    runs = [full("outside", "p", (0,)), full("above", "n", (0,))]
    gone = World([Node("n", H8), Node("p", H8, pool="p")], [job("j")], runs, [Tenant(guarantee=0, known=False)])
    plan = gone.decided()
    assert (victims(plan), why(plan)) == ({}, {"j": ReasonCode.UNKNOWN_TENANT})
    assert victims(gone.but(tenants=[Tenant(guarantee=0)]).decided()) == {"outside": "drain", "above": "quota"}


def test_pools_divided_anew_stop_what_lies_outside() -> None:
    nodes = [Node("a", H8[:1], pool="p"), Node("b", H8[:1])]
    runs = [full("in", "b", (0,)), full("out", "a", (0,))]
    world = World(nodes, [], runs, [Tenant(pools=()), Tenant("other", pools=["p"])])
    assert victims(world.decided()) == {"out": "drain"}


def test_a_job_that_held_most_of_its_kind_for_long_has_had_its_turn() -> None:
    run = full("r", "n", tuple(range(6)), tenant="a", rank=1, placed_s=-90_000)
    world = World([Node("n", H8[:6])], [job("j", tenant="b")], [run], TWO)
    assert victims(world.decided()) == {"r": "turn"}
    assert victims(world.but(policy=Policy(hold_share=1)).decided()) == {}
    young = full("r", "n", tuple(range(6)), tenant="a", rank=1, placed_s=-80_000)
    assert victims(world.but(runs=[young]).decided()) == {}


def test_what_is_borrowed_goes_after_a_while_to_tenants_that_have_had_less() -> None:
    """A gang wider than its tenant's guarantee never takes cards back as its own: it takes turns with who borrows."""
    runs = [full(f"r{at}", "n", (at,), tenant="a", rank=1, placed_s=-90_000) for at in range(4)]
    tenants = (Tenant("a", guarantee=1, limit=99, uses=1), Tenant("b", guarantee=1, limit=99))
    world = World([Node("n", H8[:4])], [job("j", 2, tenant="b")], runs, tenants)
    assert victims(world.decided()) == {"r0": "turn", "r1": "turn"}
    assert victims(world.but(jobs=[job("j", 4, tenant="b")]).decided()) == {}, "a keeps its guarantee"
    young = [full(f"r{at}", "n", (at,), tenant="a", rank=1, placed_s=-80_000) for at in range(4)]
    assert victims(world.but(runs=young).decided()) == {}
    firm = [full(f"r{at}", "n", (at,), tenant="a", rank=1, placed_s=-90_000, preemptible=False) for at in range(4)]
    assert victims(world.but(runs=firm).decided()) == {}
    assert victims(world.but(policy=Policy(hold_share=1)).decided()) == {}
    had_more = (tenants[0], Tenant("b", guarantee=1, limit=99, uses=10_000))
    assert victims(world.but(tenants=had_more).decided()) == {}


def test_moving_is_chosen_where_it_costs_less_than_waiting() -> None:
    runs = [full("r1", "a", (0,), ends_s=10_000, rank=1), full("r2", "b", (0,), ends_s=10_000, rank=1, saved_s=-9)]
    world = World([Node("a", H8[:2]), Node("b", H8[:2])], [job("j", 2)], runs)
    plan = world.decided()
    assert victims(plan) == {"r2": "consolidation"}
    assert kept(plan) == {"j": ["b"]}
    soon = [full("r1", "a", (0,), ends_s=100, rank=1), full("r2", "b", (0,), ends_s=100, rank=1)]
    assert victims(world.but(runs=soon).decided()) == {}
    assert victims(world.but(policy=Policy(consolidate=False)).decided()) == {}
