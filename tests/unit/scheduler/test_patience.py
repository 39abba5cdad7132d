"""No job waits for ever where an empty fleet would hold it, though nobody knows how long anything runs."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.base import ReasonCode
from services.scheduler.core.arrays import PreemptWhy
from services.scheduler.core.policy import FIFO, Policy
from tests.unit.scheduler.scenes import Job, Node, R, Run, Tenant, World, job, kept, victims, where, why
from tests.unit.scheduler.town import Town

H4 = ("h100",) * 4
PATIENCE_S = 100
QUICK = Policy(patience_s=PATIENCE_S)
TWO = (Tenant("wide", guarantee=3, limit=99), Tenant("small", guarantee=8, limit=99))
FULL = tuple(
    Run(f"r{node}{card}", [(f"n{node}", (card,))], tenant="small", rank=1, ends_s=None, preemptible=False)
    for node in range(3)
    for card in range(4)
)


def fleet(count: int) -> list[Node]:
    return [Node(f"n{at}", H4) for at in range(count)]


def waits(name: str, at: int = -PATIENCE_S, since_s: int | None = None) -> Job:
    return job(name, 4, members=2, tenant="wide", at=at, since_s=since_s, longest_s=None)


WAITING = World(fleet(3), [waits("gang")], FULL, TWO, QUICK)


def test_nodes_with_the_fewest_attempts_are_cleared_for_who_has_waited_too_long() -> None:
    some_ended = [run for run in FULL if run.name not in {"r00", "r20", "r21"}]
    late = job("late", tenant="small", rank=0, longest_s=None)
    plan = WAITING.but(runs=some_ended, jobs=[waits("gang"), late]).decided()
    assert kept(plan) == {"gang": ["n0", "n2"]}
    assert (where(plan), victims(plan)) == ({}, {})
    assert why(plan) == {"gang": ReasonCode.WAITING_FOR_CARDS, "late": ReasonCode.RESERVED}
    told = {stay.job_id: stay for stay in plan.stays}
    assert told["gang"].basis == "not known: it has waited for 100 s, so what ends on 2 nodes is kept"
    assert "kept for job gang" in told["late"].reason.message


def test_nothing_is_cleared_before_nor_where_it_is_turned_off() -> None:
    for world in (
        WAITING.but(jobs=[waits("gang", 1 - PATIENCE_S)]),
        WAITING.but(policy=replace(QUICK, patience_s=0)),
        WAITING.but(policy=replace(FIFO, patience_s=PATIENCE_S)),
        WAITING.but(jobs=[waits("gang", since_s=-5)]),
    ):
        assert kept(world.decided()) == {}
    assert [text.split(" ")[0] for text in Policy(patience_s=0).turned_off()] == ["patience_s"]


def test_a_known_end_makes_a_reservation_and_nobody_in_front_puts_it_off() -> None:
    """Others inside their guarantee would take what becomes free, in each plan anew."""
    ending = [replace(run, ends_s=1000) for run in FULL if run.name != "r00"]
    inside = job("inside", tenant="small", longest_s=2000)
    tenants = (TWO[0], replace(TWO[1], guarantee=99))
    world = WAITING.but(runs=ending, jobs=[waits("gang"), inside], tenants=tenants)
    assert (where(world.decided()), next(iter(kept(world.decided())))) == ({}, "gang")
    impatient = world.but(policy=replace(QUICK, patience_s=0))
    assert where(impatient.decided()) == {"inside": ["n0"]}


def test_what_a_guarantee_covers_comes_first_once_the_waiting_tenant_has_had_its_own() -> None:
    free = [run for run in FULL if run.name != "r00"]
    inside = job("inside", tenant="small", longest_s=None)
    had = (replace(TWO[0], uses=10_000), replace(TWO[1], guarantee=99))
    world = WAITING.but(runs=free, jobs=[waits("gang"), inside], tenants=had)
    assert where(world.decided()) == {"inside": ["n0"]}
    assert where(world.but(tenants=(TWO[0], had[1])).decided()) == {}


def test_one_job_of_each_kind_of_cards_that_an_empty_fleet_would_hold() -> None:
    never = job("never", 4, members=9, tenant="wide", at=-500, longest_s=None)
    tall = job("tall", 9, tenant="wide", at=-400, longest_s=None)
    second = waits("second", -150)
    remote = Run("far", [("m", (0, 1, 2, 3))], ends_s=None, tenant="small", preemptible=False)
    other = job("other", 4, tiers=(R,), tenant="wide", at=-120, longest_s=None)
    world = WAITING.but(
        nodes=[*fleet(3), Node("m", H4, R)], runs=[*FULL, remote], jobs=[waits("gang"), second, tall, never, other]
    )
    assert kept(world.decided()) == {"second": ["n0", "n1"], "other": ["m"]}


def test_who_waited_long_holds_its_cards_for_a_turn_though_others_are_inside_their_guarantee() -> None:
    gang = Run("gang", [("n0", (0, 1, 2, 3)), ("n1", (0, 1, 2, 3))], tenant="wide", placed_s=-60, waited_s=PATIENCE_S)
    world = World(fleet(2), [job("inside", tenant="small", rank=2)], [gang], TWO, QUICK)
    assert victims(world.decided()) == {}
    for run, tenants in (
        (replace(gang, placed_s=-3600), TWO),
        (replace(gang, waited_s=PATIENCE_S - 1), TWO),
        (gang, (replace(TWO[0], guarantee=7, uses=10_000), TWO[1])),
    ):
        assert victims(world.but(runs=[run], tenants=tenants).decided()) == {"gang": PreemptWhy.GUARANTEE}


# ---- a steady stream -------------------------------------------------------------------------------------------------


def stream(town: Town, ends: list[int], tenants: list[str], ranks: list[int]) -> Iterator[set[str]]:
    """Each step one of the small attempts ends, every one in the end, and two small jobs come; who runs is told."""
    for step, (at, tenant, rank) in enumerate(zip(ends, tenants, ranks, strict=True)):
        small = [run for run in town.world.runs if run.name != "gang"]
        if small:
            gone = min(small, key=lambda run: run.placed_s) if step % 2 else small[at % len(small)]
            town.world = town.world.but(runs=[run for run in town.world.runs if run is not gone])
        come = (f"s{step}-{twin}" for twin in range(2))
        town.submit(*(job(name, tenant=tenant, rank=rank, at=10 * step, longest_s=None) for name in come))
        town.step()
        yield {run.name for run in town.world.runs}


@pytest.mark.parametrize("guarantee", [0, 4, 99])
@settings(max_examples=15)
@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_a_gang_starts_after_a_bounded_number_of_ends(
    guarantee: int, members: int, more: int, data: st.DataObject
) -> None:
    nodes = members + more - 1
    most = PATIENCE_S // 10 + 2 * (4 * nodes + 2)
    drawn = st.tuples(st.integers(0, 99), st.sampled_from(["small", "other"]), st.integers(0, 2))
    ends, tenants, ranks = zip(*data.draw(st.lists(drawn, min_size=most, max_size=most)), strict=True)
    known = [Tenant("wide", 1, 99), Tenant("small", guarantee, 99), Tenant("other", guarantee, 99)]
    small = [job(f"f{at}", tenant="small", longest_s=None, at=-9) for at in range(4 * nodes)]
    policy = replace(QUICK, preempt=False, consolidate=False)
    town = Town.of(World(fleet(nodes), small, tenants=known, policy=policy))
    town.step()
    town.submit(job("gang", 4, members=members, tenant="wide", rank=2, longest_s=None))
    assert any("gang" in running for running in stream(town, list(ends), list(tenants), list(ranks)))


def test_who_has_waited_too_long_for_its_tenants_limit_is_not_passed_by_what_has_no_end() -> None:
    running = Run("r", [("n0", (0, 1))], tenant="wide", rank=1, ends_s=None, preemptible=False)
    small = job("small", tenant="wide", longest_s=None)
    tenants = (replace(TWO[0], limit=8), TWO[1])
    world = WAITING.but(runs=[running], jobs=[waits("gang"), small], tenants=tenants)
    assert why(world.decided()) == {"gang": ReasonCode.WAITING_FOR_QUOTA, "small": ReasonCode.RESERVED}
    assert where(world.but(jobs=[waits("gang", 1 - PATIENCE_S), small]).decided()) == {"small": ["n0"]}
