"""SC5 against trying everything: no smaller or cheaper set of victims would have done, in whichever tier."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
from hypothesis import given, settings

from services.scheduler.core.arrays import Level
from services.scheduler.core.fairness import Accounts
from services.scheduler.core.keeping import Keeping
from services.scheduler.core.packing import PLACERS, Mix, Room
from services.scheduler.core.preempt import Victims, find_victims
from services.scheduler.core.reserve import found_without
from services.scheduler.core.rights import Rights
from services.scheduler.core.scene import Scene, asked_of
from services.scheduler.core.stages import staged
from services.scheduler.core.work import Work
from tests.unit.scheduler.scenes import C, Job, Node, R, Run, Tenant, World, job, kept, victims, where
from tests.unit.scheduler.town import worlds

MOST = 10
H4 = ("h100",) * 4
BOTH = (R, C)

Set = tuple[int, ...]


def scene_of(world: World) -> Scene:
    fleet, policy = world.fleet(), world.policy
    queue, running = staged(world.queue(fleet), world.running(fleet), policy, world.now_us)
    tenants = world.tenancy(fleet)
    room = Room(fleet, Mix(), PLACERS[policy.placer])
    accounts, keeping = Accounts(tenants, policy), Keeping(fleet, tenants)
    return Scene(fleet, queue, running, tenants, policy, world.now_us, room, accounts, keeping)


def lost(work: Work, attempts: Sequence[int]) -> tuple[int, int, int]:
    """What a set costs: its size, how many are not preemptible, the work lost."""
    firm = sum(not work.running.preemptible[at] for at in attempts)
    return len(attempts), firm, sum(int(work.lost[at]) for at in attempts)


def hunts(world: World) -> Iterator[tuple[Job, Work, list[int], Callable[[Set], bool], Victims | None]]:
    """For each job that does not fit: who may leave for it, whether a set would do, and the set that is found."""
    scene = scene_of(world)
    work = Work(scene.fleet, scene.running, world.now_us)
    for at, one in enumerate(world.jobs):
        tenant = int(scene.queue.tenant[at])
        inside = scene.accounts.inside(tenant, asked_of(scene.fleet, one.demand))
        rights = Rights(scene, work, tenant, int(scene.queue.rank[at]), inside=inside)
        allowed = scene.keeping.usable(scene.keeping.group(tenant))
        eligible: list[int] = np.flatnonzero(rights.eligible).tolist()
        if len(eligible) > MOST or scene.room.find(one.demand, allowed) is not None:
            continue

        def enough(attempts: Set) -> bool:
            free = found_without(scene.room, work, one.demand, allowed, list(attempts))  # noqa: B023 - called at once
            return free is not None and rights.allow(attempts)  # noqa: B023 - called at once

        yield one, work, eligible, enough, find_victims(scene, work, one.demand, allowed, rights)


def both_tiers(world: World) -> World:
    """All jobs may use both tiers, and every other node is remote."""
    nodes = [replace(node, tier=BOTH[at % 2]) for at, node in enumerate(world.nodes)]
    jobs = [replace(one, demand=replace(one.demand, tiers=BOTH)) for one in world.jobs]
    return world.but(nodes=nodes, jobs=jobs)


@settings(max_examples=50)
@given(worlds())
def test_sc05_no_smaller_set_would_have_done(world: World) -> None:
    for one, work, eligible, enough, found in chain(hunts(world), hunts(both_tiers(world))):
        every = ([*filter(enough, combinations(eligible, size))] for size in range(1, len(eligible) + 1))
        sets = next(filter(None, every), list[Set]())
        assert (found is None) == (not sets), one
        if found is not None:
            assert enough(found.attempts)
            assert lost(work, found.attempts) == min(lost(work, chosen) for chosen in sets), one


def test_the_cheapest_tier_is_emptied_though_the_job_likes_another_better() -> None:
    nodes = [Node("r", H4, R), Node("c", H4, C)]
    runs = [Run(f"r{at}", [("r", (at,))]) for at in range(4)] + [Run("c0", [("c", (0, 1, 2, 3))])]
    world = World(nodes, [job("j", 4, tiers=BOTH, rank=0)], runs)
    assert (victims(world.decided()), kept(world.decided())) == ({"c0": "priority"}, {"j": ["c"]})
    gang = job("j", 2, members=2, tiers=BOTH, rank=0)
    assert victims(world.but(jobs=[gang]).decided()) == {"c0": "priority"}
    dear = [Run("r0", [("r", (0, 1, 2, 3))], saved_s=-500), Run("c0", [("c", (0, 1, 2, 3))], saved_s=-5)]
    assert victims(world.but(runs=dear).decided()) == {"c0": "priority"}
    equal = [Run("r0", [("r", (0, 1, 2, 3))]), Run("c0", [("c", (0, 1, 2, 3))])]
    assert victims(world.but(runs=equal).decided()) == {"r0": "priority"}


def test_a_place_without_victims_comes_before_any_victim() -> None:
    nodes = [Node("r", H4, R), Node("c", H4, C)]
    world = World(nodes, [job("j", 4, tiers=BOTH, rank=0)], [Run("r0", [("r", (0, 1, 2, 3))], saved_s=-1)])
    assert (victims(world.decided()), where(world.decided())) == ({}, {"j": ["c"]})


def test_the_last_of_many_areas_is_searched_where_it_loses_least() -> None:
    """Each rack, or node, is an area of its own for a gang that must be together."""
    names = [f"n{at:02}" for at in range(40)]
    nodes = [Node(name, H4, rack=name) for name in names]
    runs = [Run(f"{name}-{at}", [(name, (at,))]) for name in names[:-2] for at in range(4)]
    runs += [Run("dear", [(names[-2], (0, 1, 2, 3))], saved_s=-500), Run("cheap", [(names[-1], (0, 1, 2, 3))])]
    for level in (Level.NODE, Level.RACK):
        gang = job("j", 2, members=2, rank=0, level=level, level_required=True)
        assert victims(World(nodes, [gang], runs).decided()) == {"cheap": "priority"}


def test_a_gang_takes_the_two_that_suffice_though_their_nodes_are_not_the_emptiest() -> None:
    runs = [Run("a", [("a", (0, 1)), ("b", (0, 1))]), *(Run(f"c{at}", [("c", (at,))]) for at in range(2))]
    runs += [Run("d", [("d", (0,))]), Run("d2", [("d", (1,))])]
    nodes = [Node(name, H4[:2]) for name in "abcd"]
    gang = job("j", 2, members=2, rank=0)
    assert victims(World(nodes, [gang], runs).decided()) == {"a": "priority"}
    assert set(victims(World(nodes, [job("j", 2, members=3, rank=0)], runs).decided())) in (
        {"a", "c0", "c1"},
        {"a", "d", "d2"},
    )


def test_who_cannot_be_told_is_asked_to_leave_by_no_right() -> None:
    """A borrower's gang that reaches to a node out of sight does not come free for anybody."""
    nodes = [Node("a", H4[:1]), Node("b", H4[:1], ready=False), Node("c", H4[:1])]
    lent = Run("lent", [("a", (0,)), ("b", (0,))], tenant="x", saved_s=-1)
    near = Run("near", [("c", (0,))], tenant="x", saved_s=-600)
    tenants = [Tenant("x", guarantee=0, limit=9), Tenant("y", guarantee=1)]
    world = World(nodes, [job("j", tenant="y", rank=2)], [lent, near], tenants)
    assert victims(world.decided()) == {"near": "guarantee"}
    assert victims(world.but(runs=[lent], nodes=nodes[:2]).decided()) == {}
    lowered = world.but(jobs=[], tenants=[Tenant("x", guarantee=1, limit=2), tenants[1]])
    assert victims(lowered.decided()) == {"near": "quota"}
