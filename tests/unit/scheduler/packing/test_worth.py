"""What a remainder is worth, the mix it is worth it to, and what follows for where jobs go."""

from dataclasses import replace

import numpy as np
import pytest

from contracts.base import Tier
from services.scheduler.core.arrays import CARD, Demand
from services.scheduler.core.packing import PLACERS, Mix, Room
from services.scheduler.core.packing.crowds import crowd, pressure
from services.scheduler.core.packing.layout import laid_out
from services.scheduler.core.packing.mix import LARGEST
from services.scheduler.core.packing.worth import LEVELS, PARTS, UNIT, Tasks, plain, worth
from tests.unit.scheduler.scenes import GB, Node, World

C = (Tier.CENTRAL,)
ONE = Demand(C, cards=1, cpu_milli=8000)


def tasks(*rows: tuple[int, int, int, float]) -> Tasks:
    """Rows of levels, cards, parts and weight."""
    host, cards, parts, weight = (np.array(column) for column in zip(*rows, strict=True))
    return Tasks(host, cards, parts, UNIT * cards * parts / PARTS, weight.astype(np.float64))


def test_cards_without_processors_are_worth_nothing_and_with_them_nearly_all() -> None:
    value = worth(tasks((10, 1, PARTS, 1.0)), 2)
    assert value[9, 2, 0] == 0
    assert value[10, 2, 0] == value[19, 2, 0] == pytest.approx(UNIT, rel=0.01)
    assert value[20, 2, 0] == pytest.approx(2 * UNIT, rel=0.01)


def test_a_part_that_no_task_can_use_is_worth_nothing() -> None:
    value = worth(tasks((1, 1, 12, 1.0)), 1)
    assert value[LEVELS, 0, 11] == 0
    assert value[LEVELS, 0, 12] == pytest.approx(0.6 * UNIT, rel=0.01)
    assert value[LEVELS, 1, 0] == pytest.approx(0.6 * UNIT, rel=0.01)


def test_several_cards_are_worth_more_together_than_apart_to_those_that_need_them_together() -> None:
    value = worth(tasks((1, 2, PARTS, 1.0)), 4)
    assert value[LEVELS, 1, 0] == 0
    assert value[LEVELS, 4, 0] == pytest.approx(2 * value[LEVELS, 2, 0], rel=0.01)


def test_what_comes_seldom_is_not_waited_for_for_ever() -> None:
    seldom, often = tasks((1, 1, 16, 1e-5), (1, 1, 4, 0.99)), tasks((1, 1, 16, 0.5), (1, 1, 4, 0.5))
    assert worth(seldom, 1)[1, 1, 0] < 0.25 * UNIT
    assert worth(often, 1)[1, 1, 0] > 0.7 * UNIT


def test_equal_tasks_are_put_together() -> None:
    merged = tasks((1, 1, 5, 0.25), (2, 1, 5, 0.5), (1, 1, 5, 0.25)).merged()
    assert (merged.host.tolist(), merged.weight.tolist()) == ([1, 2], [0.5, 0.5])


def test_nothing_known_is_as_if_all_were_of_use() -> None:
    value = plain(2)
    assert value[0, 2, 10] == value[LEVELS, 2, 10] == 2.5 * UNIT


# ---- the mix ---------------------------------------------------------------------------------------------------------


def test_a_mix_counts_and_forgets_the_order() -> None:
    two = replace(ONE, cards=2)
    assert Mix().learn([ONE, two]).learn([ONE]) == Mix().learn([two, ONE, ONE])
    assert dict(Mix().learn([ONE, two, ONE]).counts) == {ONE: 2, two: 1}


def test_what_came_long_ago_counts_less() -> None:
    two = replace(ONE, cards=2)
    counts = dict(Mix().learn([ONE] * LARGEST).learn([two] * LARGEST).counts)
    assert counts[ONE] == counts[two] == LARGEST / 2
    counts = dict(Mix().learn([ONE] * LARGEST).learn([two] * LARGEST).learn([two] * LARGEST).counts)
    assert counts[ONE] == pytest.approx(LARGEST / 4)


def test_what_few_kinds_can_hold_leans_on_them() -> None:
    fleet = World([Node("a", ["t4"]), Node("b", ["a100"], card_bytes=80 * GB)]).fleet()
    layout = laid_out(fleet)
    anywhere = pressure(layout, crowd(layout, Mix().learn([ONE])))
    assert anywhere.tolist() == [1, 1]
    picky = replace(ONE, models=("t4",))
    leaning = dict(
        zip(layout.kind_memory.tolist(), pressure(layout, crowd(layout, Mix().learn([ONE, picky]))), strict=True)
    )
    assert leaning[40 * GB] == pytest.approx(1.5)
    assert leaning[80 * GB] == pytest.approx(0.5)


# ---- what follows ----------------------------------------------------------------------------------------------------

WIDE = Node("wide", ["t4"] * 2, cpu_milli=96_000)
TIGHT = Node("tight", ["t4"] * 8, cpu_milli=64_000)
WITHOUT = Demand(C, cpu_milli=16_000)


def where(nodes: list[Node], mix: list[Demand], demand: Demand) -> str:
    fleet = World(nodes).fleet()
    found = Room(fleet, Mix().learn(mix), PLACERS["farside"]).find(demand)
    assert found is not None
    return fleet.nodes[found.spots[0].node]


def test_work_without_cards_goes_where_it_strands_none() -> None:
    assert where([WIDE, TIGHT], [ONE] * 4, WITHOUT) == "wide"
    assert where([WIDE, TIGHT, Node("bare", cpu_milli=32_000)], [ONE] * 4, WITHOUT) == "bare"


def test_heavy_tasks_go_where_processors_abound_and_light_ones_where_they_are_short() -> None:
    mix = [ONE] * 4 + [replace(ONE, cpu_milli=2000)] * 2
    assert where([WIDE, TIGHT], mix, replace(ONE, cpu_milli=40_000)) == "wide"
    tight = replace(TIGHT, cpu_milli=40_000)
    assert where([WIDE, tight], mix, replace(ONE, cpu_milli=2000)) == "tight"


def test_memory_is_what_counts_where_the_mix_is_short_of_it() -> None:
    mix = [replace(ONE, cpu_milli=100, memory_bytes=64 * GB)] * 4
    roomy, small = replace(WIDE, memory_bytes=512 * GB), replace(TIGHT, memory_bytes=512 * GB)
    assert where([roomy, small], mix, Demand(C, memory_bytes=128 * GB)) == "wide"


def test_a_share_goes_where_it_leaves_what_others_can_use() -> None:
    """Beside 0.6 it leaves 0.1, which nobody asks; beside 0.3 it leaves 0.4, which does."""
    fleet = World([Node("a", ["t4"]), Node("b", ["t4"])]).fleet()
    free = np.array([400_000, 700_000])
    share = replace(ONE, cpu_milli=1000, share=300_000)
    space = Room(
        replace(fleet, card_free=free), Mix().learn([replace(share, share=400_000), share]), PLACERS["farside"]
    )
    found = space.find(share)
    assert found is not None
    assert found.spots[0].node == 1
    assert free[1] - found.spots[0].share == 4 * CARD // 10
