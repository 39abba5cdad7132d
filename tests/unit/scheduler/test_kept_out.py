"""Jobs that a file keeps from nodes that are there: pools that are not their tenant's, racks and links nobody told."""

from dataclasses import replace

import numpy as np
import pytest

from contracts.base import ReasonCode
from services.scheduler.core.arrays import NO_RACK, Level, Stay
from services.scheduler.core.decide import decide
from services.scheduler.core.packing import Mix
from tests.unit.scheduler.scenes import Job, Node, R, Run, Tenant, World, job

H2 = ("H100", "H100")
UNDER = "under `pools` in the tenant's file, or other `pools` in the policy file"


def told(nodes: list[Node], waiting: Job, *pools: str) -> Stay:
    [stay] = World(nodes, [waiting], tenants=(Tenant(pools=pools),)).decided().stays
    return stay


def test_where_a_pool_has_all_nodes_it_is_named_and_no_node_is_waited_for() -> None:
    stay = told([Node("c-1", H2, pool="big"), Node("c-2", H2, pool="big")], job("j", 2))
    assert (stay.reason.code, stay.reason.resource, stay.returns) == (ReasonCode.WAITING_FOR_NODES, "nodes", False)
    assert stay.reason.message == (
        "asks 2 cards of one model: no central nodes that its tenant may use are ready (0 are known): "
        "pool big has such nodes, but the tenant's file does not name that pool"
    )
    assert stay.frees == f"pool big {UNDER}"


def test_a_gang_that_needs_the_nodes_of_a_pool_beside_those_of_all() -> None:
    stay = told([Node("c-1", H2), Node("c-2", H2, pool="big")], job("j", 2, members=2))
    assert (stay.reason.resource, stay.reason.asked, stay.reason.allowed) == ("cards", 4, 2)
    assert stay.reason.message == (
        "asks 2 members with 2 cards of one model each: the 1 ready central node that its tenant may use has 2 cards "
        "in all, even when empty; pool big has such nodes, but the tenant's file does not name that pool"
    )
    assert stay.frees == f"pool big {UNDER}"


def test_of_many_pools_the_first_that_hold_a_member_are_named() -> None:
    nodes = [Node(f"c-{at}", H2, pool=f"p{at}") for at in range(1, 6)]
    waits = told([*nodes, Node("c-7", H2[:1], pool="a"), Node("r-1", H2, R, pool="b")], job("j", 2))
    assert "pools p1, p2, p3, p4 and 1 more have such nodes, but the tenant's file names none" in waits.reason.message
    assert waits.frees == f"pools p1, p2, p3, p4 and 1 more {UNDER}"


@pytest.mark.parametrize(
    "nodes",
    [
        [Node("c-1", H2), Node("c-2", H2, pool="big", ready=False)],
        [Node("c-1", H2), Node("c-2", H2[:1], pool="big")],
        [Node("c-1", H2), Node("c-2", H2, R, pool="big")],
    ],
)
def test_a_pool_that_would_not_do_is_not_named(nodes: list[Node]) -> None:
    stay = told(nodes, job("j", 2, members=2))
    assert ("big" in stay.reason.message, stay.frees) == (False, "")


def test_racks_that_nobody_told_are_said_to_be_unknown() -> None:
    nodes = [Node(name, H2, rack=f"z{NO_RACK}{name}") for name in ("c-1", "c-2")]
    gang = job("j", 2, members=2, level=Level.RACK, level_required=True)
    stay = told(nodes, gang)
    assert stay.reason.message == (
        "asks 2 members with 2 cards of one model each within one rack: no rack is known of the 2 ready central nodes: "
        "declare it with `farside nodes import`"
    )
    assert stay.frees == "`farside nodes import` with `rack` of these nodes, or `topology` without `required`"
    known = told([*nodes[:1], replace(nodes[1], rack="z/a")], gang)
    assert "the largest rack of the 2 ready central nodes holds 1 member even when empty" in known.reason.message
    assert known.frees == ""


@pytest.mark.parametrize(
    ("members", "cards", "links", "said", "unknown"),
    [
        (1, 2, (0, 1), "no card link is known of the 1 ready central node: declare it", True),
        (2, 1, (0, 1), "no card link is known of the 1 ready central node: declare it", True),
        (3, 1, (0, 0), "asks 3", False),
    ],
)
def test_card_links_that_nobody_told(
    members: int, cards: int, links: tuple[int, int], said: str, *, unknown: bool
) -> None:
    gang = job("j", cards, members=members, level=Level.LINK, level_required=True)
    world = World([Node("n", H2)], [gang])
    fleet = replace(world.fleet(), card_link=np.array(links, dtype=np.int64))
    parts = world.queue(fleet), world.running(fleet), world.tenancy(fleet)
    [stay] = decide(fleet, *parts, Mix(), world.policy, world.now_us).stays
    assert said in stay.reason.message
    assert stay.frees.startswith("`farside nodes import` with `card_link.kind`") is unknown


def test_processors_that_are_short_for_one_member_are_told_of_the_node_with_most() -> None:
    nodes = [Node("c-1", H2, cpu_milli=3000), Node("c-2", H2, cpu_milli=4000), Node("c-3", cpu_milli=4000)]
    runs = [
        Run("r", [("c-1", (0,))], preemptible=False, demand=job("", cpu_milli=2500).demand),
        Run("s", [("c-2", (0,))], preemptible=False, demand=job("", cpu_milli=1800).demand),
        Run("t", [("c-3", ())], preemptible=False, demand=job("", 0, cpu_milli=4000).demand),
    ]
    [stay] = World(nodes, [job("j", cpu_milli=4000)], runs).decided().stays
    assert (stay.reason.code, stay.reason.resource) == (ReasonCode.WAITING_FOR_NODES, "cpu_milli")
    assert (stay.reason.used, stay.reason.asked, stay.reason.allowed) == (1800, 4000, 4000)
    assert stay.reason.message == (
        "asks 4000 cpu_milli: 2200 of 4000 are free where most are, 2700 of 11000 in all, on central nodes"
    )


def test_cards_that_no_member_could_take_where_they_are() -> None:
    runs = [Run("r", [(node, (0,)) for node in ("c-1", "c-2")], preemptible=False)]
    [stay] = World([Node("c-1", H2), Node("c-2", H2)], [job("j", 2)], runs).decided().stays
    assert stay.reason.code == ReasonCode.FRAGMENTED
    assert stay.reason.message.endswith("2 are free on central nodes, but scattered: no member would fit")
