"""Troubles that users of other schedulers reported, SC1 to SC16, and the right behaviour of the plan."""

from collections import Counter

import pytest

from contracts.base import ReasonCode
from services.scheduler.core.arrays import CARD
from services.scheduler.core.fairness import Accounts
from services.scheduler.core.policy import DEFAULT
from tests.unit.scheduler.scenes import Job, Node, R, Run, Tenant, World, job, kept, victims, where, why
from tests.unit.scheduler.town import Town

H = "H100"
H8 = (H,) * 8


def test_sc01_two_preemptors_never_count_the_same_victim() -> None:
    runs = [Run("r1", [("a", (0, 1))]), Run("r2", [("b", (0, 1))])]
    jobs = [job(f"j{at}", 2, rank=0, at=at) for at in range(3)]
    world = World([Node("a", H8[:2]), Node("b", H8[:2])], jobs, runs)
    plan = world.decided()
    assert sorted((p.job_id, p.for_job) for p in plan.preemptions) == [("r1", "j0"), ("r2", "j1")]
    assert why(plan)["j2"] == ReasonCode.WAITING_FOR_CARDS
    nodes = Counter(node for names in kept(plan).values() for node in names)
    assert max(nodes.values()) == 1
    town = Town.of(world)
    town.settle()
    assert {run.name for run in town.world.runs} == {"j0", "j1"}


def test_sc02_what_is_left_of_a_quota_is_never_negative() -> None:
    """Nominal 10, borrow 5, 20 used, 4 asked."""
    runs = [Run(f"r{at}", [("n", (2 * at, 2 * at + 1))], preemptible=False) for at in range(10)]
    world = World([Node("n", (H,) * 32)], [job("j", 4)], runs, [Tenant(guarantee=10, limit=15, cohort="c")])
    accounts = Accounts(world.tenancy(world.fleet()), DEFAULT)
    assert (accounts.left(0), accounts.excess(0)) == (0, 10 * CARD)
    plan = world.decided()
    reason = plan.stays[0].reason
    assert (reason.code, reason.used, reason.asked, reason.allowed) == (ReasonCode.WAITING_FOR_QUOTA, 20, 4, 15)
    assert kept(plan) == {}


def test_sc03_a_lowered_quota_preempts_what_may_be_and_lets_the_rest_end() -> None:
    runs = [Run(f"r{at}", [("n", (at,))], preemptible=at < 2, saved_s=-at) for at in range(6)]
    world = World([Node("n", H8)], [job("j")], runs, [Tenant(guarantee=3)])
    plan = world.decided()
    assert victims(plan) == {"r0": "quota", "r1": "quota"}
    assert why(plan) == {"j": ReasonCode.WAITING_FOR_QUOTA}
    town = Town.of(world)
    town.settle()
    assert {run.name for run in town.world.runs} == {"r2", "r3", "r4", "r5"}
    town.world = town.world.but(runs=[run for run in town.world.runs if run.name == "r5"])
    town.settle()
    assert len(town.world.runs) == 3


def test_sc04_two_tenants_do_not_preempt_each_other_for_ever() -> None:
    """11 cards, 5 deserved each, and both want more in lumps."""
    tenants = [Tenant(name, guarantee=5, limit=11, cohort="c") for name in "ab"]
    jobs = [
        job(f"{name}{at}", 4, tenant=name, at=at, rank=rank, longest_s=None)
        for at in range(3)
        for name, rank in (("a", 1), ("b", 2))
    ]
    town = Town.of(World([Node("n", (H,) * 11)], jobs[:3], tenants=tenants))
    town.settle()
    town.submit(*jobs[3:])
    town.settle()
    assert all(len(times) == 1 for times in town.preempted.values())


def test_sc05_the_smallest_victim_set_and_then_the_cheapest() -> None:
    runs = [Run(f"s{at}", [("n", (at,))], saved_s=-1) for at in range(5)]
    runs += [Run("big1", [("m", (0, 1, 2))], saved_s=-500), Run("big2", [("m", (3, 4))], saved_s=-500)]
    nodes = [Node("n", H8[:5]), Node("m", H8[:5])]
    assert victims(World(nodes, [job("j", 5, rank=0)], runs).decided()).keys() == {"big1", "big2"}
    assert victims(World(nodes, [job("j", 2, rank=0)], runs).decided()).keys() == {"big2"}
    assert len(victims(World(nodes, [job("j", 1, rank=0)], runs).decided())) == 1


def test_sc06_a_guarantee_is_taken_back_from_whoever_borrowed_it() -> None:
    tenants = [Tenant("a", guarantee=2, limit=8, cohort="c"), Tenant("b", guarantee=6, limit=8, cohort="c")]
    runs = [Run(f"r{at}", [("n", (at,))], tenant="a", rank=1, preemptible=False, saved_s=-at) for at in range(8)]
    world = World([Node("n", H8)], [job("mine", 6, tenant="b", rank=2)], runs, tenants)
    plan = world.decided()
    assert set(victims(plan).values()) == {"guarantee"}
    assert len(victims(plan)) == 6
    town = Town.of(world)
    town.settle()
    assert "mine" in {run.name for run in town.world.runs}


def test_sc09_half_cards_in_bulk_land_as_one_by_one() -> None:
    jobs = [job(f"j{at:02}", share=CARD // 2, at=at) for at in range(16)]
    plan = World([Node("n", H8)], jobs).decided()
    cards = Counter(seat.cards[0] for placement in plan.placements for seat in placement.seats)
    assert cards == dict.fromkeys(range(8), 2)
    town = Town.of(World([Node("n", H8)]))
    for one in jobs:
        town.submit(one)
        town.step()
    assert Counter(run.on[0][1][0] for run in town.world.runs) == cards


def test_sc10_shares_of_memory_are_exact() -> None:
    mib = 1024**2
    jobs = [job(f"j{at:02}", at=at, share_memory_bytes=2000 * mib) for at in range(30)]
    plan = World([Node("n", ["A40"], card_bytes=46_068 * mib)], jobs).decided()
    assert len(plan.placements) == 23
    assert len(plan.stays) == 7


def test_sc11_gangs_are_all_or_nothing() -> None:
    nodes = [Node(f"n{at:03}", (H,)) for at in range(100)]
    plan = World(nodes, [job("a", members=100), job("b", members=100, at=1)]).decided()
    assert {name: len(set(at)) for name, at in where(plan).items()} == {"a": 100}
    assert why(plan) == {"b": ReasonCode.WAITING_FOR_CARDS}


def test_sc12_a_gang_is_preempted_as_one() -> None:
    gang = Run("gang", [("a", (0,)), ("b", (0,)), ("c", (0,))])
    world = World([Node(name, (H,)) for name in "abc"], [job("j", 1, members=2, rank=0)], [gang])
    plan = world.decided()
    assert [p.job_id for p in plan.preemptions] == ["gang"]
    town = Town.of(world)
    town.settle()
    assert {run.name: len(run.on) for run in town.world.runs} == {"j": 2}


@pytest.mark.parametrize("back", [False, True])
def test_sc13_a_damaged_gang_has_the_first_claim_on_what_is_repaired(*, back: bool) -> None:
    """One of its two nodes is out of sight: what is left is kept for it, and what comes back is its own."""
    nodes = [Node("a", H8[:2]), Node("b", H8[:2], ready=back)]
    hurt = job("hurt", 2, members=2, damaged=True, damaged_s=-60, at=50)
    others = [job(f"o{at}", 1, at=at, longest_s=7200) for at in range(4)]
    world = World(nodes, [*others, hurt])
    assert where(world.decided()) == ({"hurt": ["a", "b"]} if back else {})
    given_up = world.but(jobs=[*others, job("hurt", 2, members=2, damaged=True, damaged_s=-1801, at=50)])
    assert (set(where(given_up.decided())) == {"hurt"}) is back


def test_sc14_enough_in_all_but_on_no_node_is_fragmented() -> None:
    runs = [Run(name, [(name, (0,))], preemptible=False) for name in "ab"]
    plan = World([Node("a", H8[:2]), Node("b", H8[:2])], [job("j", 2)], runs).decided()
    reason = plan.stays[0].reason
    assert plan.placements == ()
    assert (reason.code, reason.used, reason.asked, reason.allowed) == (ReasonCode.FRAGMENTED, 2, 2, 4)


def test_sc15_other_cards_pass_and_a_blocked_gang_does_not_starve() -> None:
    runs = [Run("r", [("n", (0, 1))], preemptible=False, ends_s=600)]
    jobs = [job("gang", 4, models=("h100",)), job("other", models=("a100",), at=1)]
    jobs += [job(f"small{at}", 1, models=("h100",), at=2 + at, longest_s=1200) for at in range(5)]
    world = World([Node("n", H8[:4]), Node("m", ["A100"])], jobs, runs)
    plan = world.decided()
    assert where(plan) == {"other": ["m"]}
    assert kept(plan) == {"gang": ["n"]}
    town = Town.of(world)
    for _ in range(62):
        town.step()
        town.world = town.world.but(runs=[run for run in town.world.runs if run.ends_s is None or run.ends_s > 0])
    assert "gang" in {run.name for run in town.world.runs}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (job("j", models=("b200",)), "asks 1 B200 card: the 1 ready central node has no such card"),
        (job("j", tiers=(R,)), "asks 1 card: no remote nodes are ready (0 are known)"),
        (job("j", 2, models=("h100",)), "asks 2 H100 cards: 1 of 2 are free on central nodes"),
        (
            job("j", cpu_milli=65_000),
            "asks 1 card, 65000 cpu_milli: the 1 ready central node has 64000 cpu_milli on one node at most, even when",
        ),
        (job("j", cpu_milli=60_000), "asks 60000 cpu_milli: 54000 of 64000 are free on central nodes"),
    ],
)
def test_sc16_the_reason_names_resource_amount_and_constraint(asked: Job, words: str) -> None:
    run = Run("r", [("n", (0,))], preemptible=False, demand=job("", cpu_milli=10_000).demand)
    plan = World([Node("n", (H, H))], [asked], [run]).decided()
    reason = plan.stays[0].reason
    assert reason.message.startswith(words)
    assert None not in {reason.resource, reason.asked, reason.allowed}
