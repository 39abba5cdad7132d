"""What is free: found, taken, given back and undone; in exact millionths."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.core.arrays import CARD, NEVER, Demand, Fleet, Level
from services.scheduler.core.packing import PLACERS, Found, Memo, Mix, Room
from tests.unit.scheduler.scenes import GB, C, Node, R, World

MIB = 1024**2
OWN = PLACERS["farside"]
HALF = CARD // 2


def ask(cards: int = 1, members: int = 1, **others: object) -> Demand:
    return replace(Demand((C,), members=members, cards=cards), **others)


def room(*nodes: Node, mix: Mix | None = None, memo: Memo | None = None) -> Room:
    return Room(World(nodes).fleet(), mix or Mix(), OWN, memo)


def held(found: Found | None) -> list[tuple[int, tuple[int, ...]]]:
    assert found is not None
    return [(spot.node, spot.cards) for spot in found.spots]


def nodes_of(found: Found | None) -> list[int]:
    return sorted({node for node, _ in held(found)})


def one_by_one(space: Room, demand: Demand, most: int) -> list[Found]:
    done: list[Found] = []
    while len(done) < most and (found := space.find(demand)) is not None:
        space.take(found)
        done.append(found)
    return done


# ---- shares ----------------------------------------------------------------------------------------------------------


def test_sixteen_halves_on_eight_cards_are_two_a_card_at_once_and_one_by_one() -> None:
    """SC9."""
    node = Node("n", ["t4"] * 8)
    at_once = room(node).find(ask(members=16, share=HALF))
    singly = one_by_one(room(node), ask(share=HALF), 99)
    for cards in ([card for _, (card,) in held(at_once)], [card for found in singly for _, (card,) in held(found)]):
        assert np.bincount(cards).tolist() == [2] * 8


def test_two_thousand_mib_fit_twenty_three_times_on_a_card_of_46068() -> None:
    """SC10."""
    node = Node("n", ["l40"], card_bytes=46_068 * MIB)
    demand = ask(share_memory_bytes=2_000 * MIB)
    assert len(one_by_one(room(node), demand, 99)) == 23
    assert room(node).find(replace(demand, members=23)) is not None
    assert room(node).find(replace(demand, members=24)) is None


def test_a_share_of_memory_larger_than_any_card_fits_nowhere() -> None:
    assert room(Node("n", ["t4"])).find(ask(share_memory_bytes=41 * GB)) is None
    assert room(Node("n", ["t4"])).find(ask(share_memory_bytes=40 * GB)) is not None


def test_whole_cards_are_not_taken_of_partly_used_ones() -> None:
    space = room(Node("n", ["t4"] * 2))
    one_by_one(space, ask(share=1), 1)
    assert held(space.find(ask())) == [(0, (1,))]
    assert space.find(ask(2)) is None


def test_a_fraction_goes_beside_another_rather_than_onto_a_whole_card() -> None:
    space = room(Node("n", ["t4"] * 4), Node("m", ["t4"] * 4))
    first, second = one_by_one(space, ask(share=400_000), 2)
    assert held(first) == held(second)


# ---- hard bounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "demand"),
    [
        (Node("n", ["t4"], cpu_milli=999), ask(cpu_milli=1000)),
        (Node("n", ["t4"], memory_bytes=GB - 1), ask(memory_bytes=GB)),
        (Node("n", ["t4"], link_mbps=99), ask(link_mbps=100)),
        (Node("n", ["t4"], budget=HALF - 1), ask(share=HALF)),
        (Node("n", ["t4"], budget=CARD - 1), ask()),
        (Node("n", ["t4"], ready=False), ask()),
        (Node("n", ["t4"], tier=R), ask()),
        (Node("n", ["t4"]), ask(models=("a100",))),
        (Node("n", ["t4"]), ask(card_memory_bytes=41 * GB)),
        (Node("n", ["t4", "l4"]), ask(2)),
        (Node("n"), ask()),
    ],
)
def test_what_is_short_by_a_little_does_not_fit(node: Node, demand: Demand) -> None:
    assert room(node).find(demand) is None
    assert room(node).find(replace(demand, members=2)) is None


def test_models_share_what_their_node_has() -> None:
    space = room(Node("n", ["t4", "l4"], cpu_milli=1000, budget=CARD))
    [found] = one_by_one(space, ask(cpu_milli=600), 9)
    assert len(found.spots) == 1


def test_slots_are_counted_and_come_back() -> None:
    space = Room(World([Node("n")], node_slots=2).fleet(), Mix(), OWN)
    assert len(one_by_one(space, ask(0), 9)) == 2
    space.give(space.held(ask(0), 0, ()))
    assert len(one_by_one(space, ask(0), 9)) == 1


def test_nodes_may_be_barred_or_avoided() -> None:
    space = room(Node("a", ["t4"]), Node("b", ["t4"] * 4))
    assert nodes_of(space.find(ask())) == [0]
    assert nodes_of(space.find(ask(), avoid=(0,))) == [1]
    assert nodes_of(space.find(ask(), avoid=(0, 1))) == [0]
    assert nodes_of(space.find(ask(), np.array([False, True]), avoid=(1,))) == [1]
    assert space.find(ask(2), np.array([True, False])) is None


def test_scarce_nodes_are_for_those_that_need_them_and_the_last_for_others() -> None:
    nodes = (Node("a", ["h100"] * 2, scarce=True), Node("b", ["h100"] * 4))
    for members in (1, 2):
        assert nodes_of(room(*nodes).find(ask(members=members))) == [1]
        assert nodes_of(room(*nodes).find(ask(members=members, needs_bandwidth=True))) == [0]
    space = room(*nodes)
    assert [nodes_of(found) for found in one_by_one(space, ask(2), 9)] == [[1], [1], [0]]


def test_cards_with_the_least_memory_go_first_and_nodes_by_name_when_nothing_is_known() -> None:
    big, small = Node("a", ["h100"] * 2, card_bytes=80 * GB), Node("b", ["a100"] * 4)
    assert nodes_of(room(big, small).find(ask())) == [1]
    space = room(small, Node("c", ["a100"] * 2))
    assert [nodes_of(found) for found in one_by_one(space, ask(), 5)] == [[0], [0], [0], [0], [1]]


def test_a_budget_of_an_assessed_node_bounds_a_gang() -> None:
    assert room(Node("n", ["t4"] * 4, budget=2 * CARD)).find(ask(members=3)) is None
    assert room(Node("n", ["t4"] * 4, budget=3 * CARD)).find(ask(members=3)) is not None


# ---- gangs and topology ----------------------------------------------------------------------------------------------


def test_gangs_take_the_fewest_nodes_and_leave_the_least() -> None:
    nodes = (Node("a", ["h100"] * 2), Node("b", ["h100"] * 4), Node("c", ["h100"] * 2))
    assert nodes_of(room(*nodes).find(ask(2, members=2))) == [1]
    assert nodes_of(room(*nodes).find(ask(2, members=3))) == [0, 1]
    assert room(*nodes).find(ask(2, members=5)) is None


RACKS = (
    Node("a", ["h100"] * 2, rack="r1", zone="z1"),
    Node("b", ["h100"] * 2, rack="r1", zone="z1"),
    Node("c", ["h100"] * 2, rack="r2", zone="z1"),
    Node("d", ["h100"] * 4, rack="r3", zone="z2"),
)


@pytest.mark.parametrize(
    ("level", "members", "expected"),
    [
        (Level.NODE, 2, [3]),
        (Level.NODE, 3, None),
        (Level.RACK, 2, [3]),
        (Level.ZONE, 3, [0, 1, 2]),
        (Level.ZONE, 4, None),
    ],
)
def test_a_required_level_is_met_or_nothing(level: Level, members: int, expected: list[int] | None) -> None:
    found = room(*RACKS).find(ask(2, members=members, level=level, level_required=True))
    assert (None if found is None else nodes_of(found)) == expected


def test_a_preferred_level_is_met_where_it_can_be_and_widens_where_not() -> None:
    taken = room(*RACKS)
    taken.take(taken.find(ask(4)) or pytest.fail("no place"))
    assert nodes_of(taken.find(ask(2, members=2, level=Level.RACK))) == [0, 1]
    assert nodes_of(taken.find(ask(2, members=3, level=Level.NODE))) == [0, 1, 2]


def linked(*groups: int) -> Room:
    fleet = World([Node("n", ["h100"] * len(groups))]).fleet()
    return Room(replace(fleet, card_link=np.array(groups)), Mix(), OWN)


def test_cards_of_one_member_share_a_link() -> None:
    demand = ask(2, level=Level.LINK, level_required=True)
    assert held(linked(0, 1, 1, 0).find(demand)) == [(0, (0, 3))]
    assert linked(0, 1, 2, 3).find(demand) is None
    assert linked(0, 1, 2, 3).find(replace(demand, level_required=False)) is not None
    assert held(linked(0, 1, 1, 1).find(ask(2))) == [(0, (1, 2))]


def test_members_of_a_linked_gang_share_one_link() -> None:
    demand = ask(2, members=2, level=Level.LINK, level_required=True)
    assert linked(0, 0, 1, 1).find(demand) is None
    assert held(linked(0, 0, 1, 1, 1, 1).find(demand)) == [(0, (2, 3)), (0, (4, 5))]


# ---- change and undo -------------------------------------------------------------------------------------------------

DEMANDS = (ask(share=300_000, cpu_milli=500), ask(cpu_milli=4000), ask(2), ask(0, cpu_milli=1000), ask(1, members=3))
NODES = (
    Node("a", ["t4"] * 4, budget=3 * CARD),
    Node("b", ["t4", "l4", "l4"], cpu_milli=6000),
    Node("c", cpu_milli=3000, link_mbps=NEVER),
)


def picture(space: Room) -> list[list[object]]:
    state = space.state
    names = ("ready", "cpu", "memory", "slots", "budget", "link", "free", "whole", "most")
    return [getattr(state, name).tolist() for name in names]


def sane(space: Room, fleet: Fleet) -> None:
    free = space.state.free
    assert free.min() >= 0
    assert free.max() <= CARD
    assert (space.state.cpu >= 0).all()
    assert (space.state.slots <= fleet.node_slots).all()


@given(st.lists(st.tuples(st.sampled_from(DEMANDS), st.sampled_from(["take", "give", "undo", "mark"])), max_size=30))
def test_undo_brings_back_everything_and_no_card_gives_more_than_it_has(
    steps: list[tuple[Demand, str]],
) -> None:
    fleet = World(NODES).fleet()
    space = Room(fleet, Mix().learn(DEMANDS), OWN)
    start, taken = picture(space), list[Found]()
    beginning = mark = space.mark()
    at_mark, taken_at_mark = picture(space), list(taken)
    for demand, step in steps:
        if step == "take" and (found := space.find(demand)) is not None:
            space.take(found)
            taken.append(found)
        elif step == "give" and taken:
            found = taken.pop()
            for spot in found.spots:
                space.give(space.held(found.demand, spot.node, spot.cards))
        elif step == "undo":
            space.undo(mark)
            assert picture(space) == at_mark
            taken = list(taken_at_mark)
        else:
            mark, at_mark, taken_at_mark = space.mark(), picture(space), list(taken)
        sane(space, fleet)
    space.undo(beginning)
    assert picture(space) == start


@pytest.mark.parametrize("policy", ["farside", "fgd", "bestfit"])
@given(steps=st.lists(st.sampled_from(DEMANDS), max_size=20), other=st.lists(st.sampled_from(DEMANDS), max_size=20))
def test_a_memo_changes_no_outcome(policy: str, steps: list[Demand], other: list[Demand]) -> None:
    """Two rooms take turns with one memo, and a third has none."""
    fleet, mix, memo = World(NODES).fleet(), Mix().learn(DEMANDS), Memo()
    mine, theirs, alone = (Room(fleet, mix, PLACERS[policy], some) for some in (memo, memo, None))
    for at in range(max(len(steps), len(other))):
        for space, demands in ((mine, steps[at : at + 1]), (theirs, other[at : at + 1])):
            for demand in demands:
                found = space.find(demand)
                if space is mine:
                    assert found == alone.find(demand)
                    if found is not None:
                        alone.take(found)
                if found is not None:
                    space.take(found)


def test_seats_say_what_is_held() -> None:
    space = room(Node("n", ["t4"] * 2))
    found = space.find(ask(share=250_000))
    assert found is not None
    [seat] = space.seats(found)
    assert (seat.node, seat.tier, seat.cards, seat.accelerator) == ("n", C, (0,), "t4")
    assert (seat.card_memory_bytes, seat.share) == (40 * GB, 250_000)
    space.take(found)
    for _ in range(3):
        space.take(found)
    with pytest.raises(AssertionError, match="more than it has"):
        space.take(found)
