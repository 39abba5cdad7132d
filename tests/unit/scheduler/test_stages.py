"""Stages: within its class a job that has had little comes before one that has had much."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from services.scheduler.core.arrays import Ints, Plan, PreemptWhy
from services.scheduler.core.decide import decide
from services.scheduler.core.packing import Mix
from services.scheduler.core.policy import DEFAULT, Policy
from tests.unit.scheduler.scenes import Node, Run, Tenant, World, ints, job, where

HOUR_S = 3600
HOUR_MS = 3_600_000
ONE = (Node("n1", ["a100"] * 4),)
TEN = (Tenant(guarantee=10),)


def decided(world: World, had_h: Mapping[str, float], policy: Policy = DEFAULT) -> Plan:
    """What `decide` says where it is known what jobs had before, in card-hours."""
    fleet = world.fleet()
    queue, running = world.queue(fleet), world.running(fleet)
    queue = replace(queue, earlier_ms=_had_ms(queue.job_ids, had_h))
    running = replace(running, earlier_ms=_had_ms(running.job_ids, had_h))
    return decide(fleet, queue, running, world.tenancy(fleet), Mix(), policy, world.now_us)


def _had_ms(job_ids: Sequence[str], had_h: Mapping[str, float]) -> Ints:
    return ints([int(had_h.get(job_id, 0) * HOUR_MS) for job_id in job_ids])


def left(plan: Plan) -> dict[str, tuple[str | None, PreemptWhy]]:
    return {stop.job_id: (stop.for_job, stop.why) for stop in plan.preemptions}


def test_who_has_had_less_comes_first() -> None:
    world = World(ONE, (job("old", 4, rank=2), job("new", 4, rank=2, at=60)), tenants=TEN)
    assert where(decided(world, {"old": 50.0})) == {"new": ["n1"]}
    assert where(decided(world, {"old": 5.0})) == {"old": ["n1"]}
    assert where(world.decided()) == {"old": ["n1"]}, "what is not known counts nothing"
    assert where(decided(world, {"old": 50.0}, Policy(stages_card_h=()))) == {"old": ["n1"]}


def test_a_stage_never_outweighs_a_class() -> None:
    world = World(ONE, (job("online", 4, rank=0), job("batch", 4, rank=2)), tenants=TEN)
    assert where(decided(world, {"online": 10_000.0})) == {"online": ["n1"]}


@pytest.mark.parametrize(
    ("placed_s", "preemptible", "had_h", "leaves"),
    [
        (-HOUR_S, True, 26.0, True),  # with four cards for an hour it is in the second stage, and its turn is over
        (-HOUR_S, True, 25.0, False),
        (-HOUR_S + 1, True, 50.0, False),  # had much before, but its turn is not over
        (-HOUR_S, False, 50.0, False),
    ],
)
def test_a_later_stage_makes_room_after_its_turn(
    placed_s: int, *, preemptible: bool, had_h: float, leaves: bool
) -> None:
    run = Run("long", [("n1", (0, 1, 2, 3))], placed_s=placed_s, preemptible=preemptible)
    plan = decided(World(ONE, (job("new", 4, rank=2),), (run,), tenants=TEN), {"long": had_h})
    assert left(plan) == ({"long": ("new", PreemptWhy.TURN)} if leaves else {})


def test_no_job_makes_room_for_one_of_its_own_stage() -> None:
    run = Run("long", [("n1", (0, 1, 2, 3))], placed_s=-HOUR_S)
    world = World(ONE, (job("other", 4, rank=2),), (run,), tenants=TEN)
    assert left(decided(world, {"other": 27.0, "long": 25.0})) == {}


def test_a_lower_class_makes_room_before_its_turn_is_over() -> None:
    run = Run("batch", [("n1", (0, 1, 2, 3))], placed_s=-60)
    plan = decided(World(ONE, (job("online", 4, rank=0),), (run,), tenants=TEN), {"online": 900.0})
    assert left(plan) == {"batch": ("online", PreemptWhy.PRIORITY)}


def test_a_later_stage_of_another_tenant_keeps_its_guarantee() -> None:
    tenants = (Tenant("acme", guarantee=2, limit=4), Tenant("beta", guarantee=4))
    run = Run("long", [("n1", (0, 1, 2, 3))], tenant="beta", placed_s=-10 * HOUR_S)
    world = World(ONE, (job("new", 4, rank=2),), (run,), tenants=tenants)
    assert left(decided(world, {"long": 90.0})) == {}
    lent = world.but(tenants=(tenants[0], Tenant("beta", guarantee=0, limit=4)))
    assert left(decided(lent, {"long": 90.0})) == {"long": ("new", PreemptWhy.TURN)}


def test_stages_that_are_off_say_so() -> None:
    assert [text.split(" ")[0] for text in Policy(stages_card_h=()).turned_off()] == ["stages_card_h"]
    assert np.all(np.diff(DEFAULT.stages_card_h) > 0)
