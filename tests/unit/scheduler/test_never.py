"""What the ready nodes could not hold even if nothing ran there: told as what is short, and what would bring it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.base import ReasonCode
from services.scheduler.core.arrays import CARD, NEVER, Level, Stay
from services.scheduler.core.decide import decide
from services.scheduler.core.packing import Mix
from tests.unit.scheduler.scenes import GB, C, Job, Node, R, Run, World, job

H4 = ("H100",) * 4
RACKS = [Node(f"{rack}{at}", H4, rack=rack, zone=rack) for rack in "ab" for at in range(2)]


def told(nodes: list[Node], waiting: Job, runs: tuple[Run, ...] = ()) -> Stay:
    [stay] = World(nodes, [waiting], runs).decided().stays
    return stay


def near(level: Level, members: int, cards: int = 4, **others: Any) -> Job:
    return job("j", cards, members=members, level=level, level_required=True, **others)


@pytest.mark.parametrize(
    ("waiting", "resource", "amounts"),
    [
        (near(Level.RACK, 3), "members_per_rack", (3, 2)),
        (near(Level.ZONE, 3), "members_per_zone", (3, 2)),
        (near(Level.NODE, 2), "members_per_node", (2, 1)),
        (near(Level.NODE, 5, 1), "members_per_node", (5, 4)),
        (near(Level.LINK, 2), "members_per_link", (2, 1)),
        (near(Level.RACK, 4, 1, cpu_milli=40_000), "members_per_rack", (4, 2)),
        (near(Level.RACK, 17, 1), "members_per_rack", (17, 8)),
    ],
)
def test_a_gang_larger_than_any_area_is_told_so_even_when_nothing_runs(
    waiting: Job, resource: str, amounts: tuple[int, int]
) -> None:
    stay = told(RACKS, waiting)
    assert (stay.reason.code, stay.reason.resource) == (ReasonCode.WAITING_FOR_NODES, resource)
    assert (stay.reason.used, stay.reason.asked, stay.reason.allowed) == (0, *amounts)
    assert f"of the 4 ready central nodes holds {amounts[1]} member" in stay.reason.message
    assert "even when empty" in stay.reason.message
    assert stay.starts_us == NEVER
    assert not stay.returns


def test_what_is_only_scattered_now_is_told_as_topology_with_what_the_best_area_takes() -> None:
    runs = (Run("r", [("a0", (0, 1, 2, 3))], preemptible=False), Run("s", [("b1", (0,))], preemptible=False))
    stay = told(RACKS, near(Level.RACK, 2), runs)
    assert (stay.reason.code, stay.reason.resource) == (ReasonCode.TOPOLOGY, "members_per_rack")
    assert (stay.reason.used, stay.reason.asked, stay.reason.allowed) == (1, 2, 2)
    assert stay.reason.message.endswith(
        "2 would fit on central nodes, but scattered: the rack with the most room takes 1 now, 2 when empty"
    )


def test_one_member_whose_cards_share_no_link() -> None:
    world = World([Node("n", H4)], [near(Level.LINK, 1, 3)])
    fleet = replace(world.fleet(), card_link=np.array([0, 0, 1, 1], dtype=np.int64))
    parts = world.queue(fleet), world.running(fleet), world.tenancy(fleet)
    [stay] = decide(fleet, *parts, Mix(), world.policy, world.now_us).stays
    assert (stay.reason.code, stay.reason.resource) == (ReasonCode.WAITING_FOR_NODES, "cards_per_link")
    assert (stay.reason.asked, stay.reason.allowed) == (3, 2)
    assert stay.reason.message == (
        "asks 3 cards of one model within one card link: the largest card link of the 1 ready central node joins 2"
    )


def test_a_link_on_a_node_that_could_not_hold_a_member_otherwise_does_not_count() -> None:
    """Its link joins two cards, but it has too few processors; the node that has enough joins none."""
    nodes = [Node("large", ("H100",) * 2, cpu_milli=8000), Node("small", ("H100",) * 2, cpu_milli=500)]
    world = World(nodes, [near(Level.LINK, 1, 2, cpu_milli=1000)])
    fleet = replace(world.fleet(), card_link=np.array([0, 1, 0, 0], dtype=np.int64))
    [stay] = decide(fleet, world.queue(fleet), world.running(fleet), world.tenancy(fleet), Mix()).stays
    assert (stay.reason.resource, stay.reason.asked, stay.reason.allowed) == ("cards_per_link", 2, 1)


@pytest.mark.parametrize(
    ("waiting", "resource", "amounts", "said"),
    [
        (job("j", 5), "cards", (5, 4), "asks 5 cards of one model: the 2 ready central nodes have 4 cards on one node"),
        (job("j", models=("a100",)), "cards", (1, 0), "asks 1 A100 card: the 2 ready central nodes have no such card"),
        (job("j", card_memory_bytes=80 * GB), "card_memory_bytes", (80 * GB, 40 * GB), "card of at least 80 GiB: "),
        (
            job("j", share_memory_bytes=41 * GB),
            "card_memory_bytes",
            (41 * GB, 40 * GB),
            "a share of 41 GiB on one card",
        ),
        (job("j", cpu_milli=65_000), "cpu_milli", (65_000, 64_000), "64000 cpu_milli on one node at most, even when"),
        (job("j", memory_bytes=2**40), "memory_bytes", (2**40, 512 * GB), "512 GiB of memory on one node at most"),
        (job("j", 1, members=3, cpu_milli=40_000), "members", (3, 2), "could hold 2 members even when empty"),
        (job("j", 3, members=9), "cards", (27, 8), "have 8 cards in all, even when empty"),
        (job("j", members=17, share=CARD // 2), "cards", (9, 8), "have 8 cards in all, even when empty"),
        (job("j", members=9, share=600_000), "members", (9, 8), "could hold 8 members even when empty"),
        (near(Level.RACK, 3, 5), "cards", (5, 4), "have 4 cards on one node at most, even when empty"),
        (job("j", 1, members=3, cpu_milli=50_000), "cpu_milli", (150_000, 128_000), "have 128000 cpu_milli in all"),
        (job("j", 1, members=4, cpu_milli=30_000, memory_bytes=2**39), "memory_bytes", (2**41, 2**40), "1 TiB of"),
    ],
)
def test_the_resource_that_binds_is_named(waiting: Job, resource: str, amounts: tuple[int, int], said: str) -> None:
    stay = told([Node(name, H4) for name in "ab"], waiting)
    assert (stay.reason.code, stay.reason.resource) == (ReasonCode.WAITING_FOR_NODES, resource)
    assert (stay.reason.used, stay.reason.asked, stay.reason.allowed) == (0, *amounts)
    assert said in stay.reason.message


@pytest.mark.parametrize(
    ("waiting", "returns", "said"),
    [
        (job("j", 8), True, "; with the 1 not ready they would"),
        (job("j", 9), False, ", nor would the 1 not ready help"),
        (job("j", 2, members=6), True, "; with the 1 not ready they would"),
        (job("j", 4, members=2, level=Level.NODE, level_required=True), True, "; with the 1 not ready they would"),
    ],
)
def test_nodes_that_are_not_ready_are_counted_apart(waiting: Job, returns: bool, said: str) -> None:  # noqa: FBT001
    stay = told([Node("a", H4), Node("b", ("H100",) * 8, ready=False)], waiting)
    assert stay.returns is returns
    assert stay.reason.message.endswith(said)


def test_without_a_ready_node_the_known_ones_of_all_tiers_are_told() -> None:
    nodes = [Node("a", ("t4",), R, ready=False), Node("b", ("t4",), ready=False)]
    stay = told(nodes, job("j", tiers=(R, C)))
    assert "asks 1 card: no remote or central nodes are ready (2 are known)" in stay.reason.message
    assert (stay.reason.resource, stay.returns) == ("nodes", True)


def test_a_card_that_is_broken_takes_nothing_whatever_ends() -> None:
    world = World([Node("n", H4[:2])], [job("j", 2)])
    fleet = world.fleet()
    bad = np.array([False, True])
    fleet = replace(fleet, card_bad=bad, card_free=np.where(bad, 0, CARD))
    parts = world.queue(fleet), world.running(fleet), world.tenancy(fleet)
    [stay] = decide(fleet, *parts, Mix(), world.policy, world.now_us).stays
    assert (stay.reason.code, stay.reason.asked, stay.reason.allowed) == (ReasonCode.WAITING_FOR_NODES, 2, 1)


def test_a_limit_that_is_taken_now_counts_what_it_is_when_empty() -> None:
    run = Run("r", [("n", (0,))], preemptible=False, demand=job("", tiers=(R,)).demand)
    world = World([Node("n", H4, R, budget=CARD)], [job("j", tiers=(R,))], [run])
    [stay] = world.decided().stays
    reason = stay.reason
    assert (reason.resource, reason.used, reason.asked, reason.allowed) == ("card_millionths", CARD, CARD, CARD)
    assert "leave 0 cards of 1 card" in reason.message


SIZES = st.sampled_from([8000, 16_000, 64_000])
NODES = st.lists(
    st.builds(
        Node,
        name=st.uuids().map(str),
        cards=st.lists(st.sampled_from(["h100", "a100"]), max_size=4).map(tuple),
        tier=st.sampled_from([C, R]),
        ready=st.sampled_from([True, True, False]),
        cpu_milli=SIZES,
        rack=st.sampled_from("ab"),
        zone=st.sampled_from("yz"),
        budget=st.sampled_from([NEVER, CARD, 2 * CARD]),
        link_mbps=st.sampled_from([NEVER, 100]),
    ),
    min_size=1,
    max_size=5,
)
ASKED = st.builds(
    job,
    st.just("j"),
    st.integers(0, 3),
    members=st.integers(1, 5),
    tiers=st.sampled_from([(C,), (R,), (R, C)]),
    models=st.sampled_from([(), ("h100",), ("a100", "h100"), ("b200",)]),
    share=st.sampled_from([CARD, CARD // 2]),
    cpu_milli=st.sampled_from([0, 5000, 16_000]),
    link_mbps=st.sampled_from([0, 60]),
    card_memory_bytes=st.sampled_from([0, 40 * GB, 41 * GB]),
    level=st.sampled_from([None, *Level]),
    level_required=st.booleans(),
)


def _full(nodes: list[Node]) -> list[Run]:
    """A job on every card of every node, as far as limits allow."""
    return [
        Run(f"r-{node.name}-{card}", [(node.name, (card,))], preemptible=False, demand=job("", tiers=(C, R)).demand)
        for node in nodes
        for card in range(min(len(node.cards), node.budget // CARD))
    ]


@given(nodes=NODES, waiting=ASKED, slots=st.sampled_from([2, 64]))
@settings(max_examples=300, deadline=None)
def test_more_is_asked_than_there_is_exactly_where_no_end_of_a_job_helps(
    nodes: list[Node], waiting: Job, slots: int
) -> None:
    empty = World(nodes, [waiting], node_slots=slots)
    placed = bool(empty.decided().placements)
    if not placed:
        [stay] = empty.decided().stays
        assert stay.reason.code == ReasonCode.WAITING_FOR_NODES
        assert stay.reason.asked is not None
        assert stay.reason.allowed is not None
        assert stay.reason.asked > stay.reason.allowed
        awake = [replace(node, ready=True) for node in nodes]
        assert stay.returns == bool(empty.but(nodes=awake).decided().placements)
    else:
        full = World(nodes, [waiting], _full(nodes), node_slots=slots + 4)
        for stay in full.decided().stays:
            assert (stay.reason.asked or 0) <= (stay.reason.allowed or NEVER), stay.reason
            assert not stay.returns
