"""What is too little on a node at the commit is what the plan looks at, no more: else the same plan comes for ever."""

import pytest

from contracts.jobs import Resources
from services.scheduler.core.arrays import NEVER
from services.scheduler.core.headroom import Headroom
from services.scheduler.core.model import CARD, Seat
from tests.unit.scheduler.scenes import C

GIB = 1024**3
SEAT = Seat("n", C, (0,), "h100", 80 * GIB, CARD)


def left(**changes: int) -> Headroom:
    has = {"slots": 4, "cpu_milli": 8000, "memory_bytes": 64 * GIB, "link_mbps": NEVER, "budget": NEVER}
    return Headroom(**{**has, **changes}, cards={0: CARD})


@pytest.mark.parametrize(
    ("had", "asked", "short"),
    [
        ({}, Resources(cards=1, cpu_milli=8000, memory_bytes=64 * GIB), None),
        ({"cpu_milli": -2000}, Resources(cards=1, memory_bytes=GIB), None),
        ({"cpu_milli": -2000}, Resources(cards=1, cpu_milli=1), "processors"),
        ({"memory_bytes": -GIB}, Resources(cards=1, cpu_milli=1000), None),
        ({"memory_bytes": -GIB}, Resources(cards=1, memory_bytes=1), "memory"),
        ({"cpu_milli": 999}, Resources(cards=1, cpu_milli=1000), "processors"),
        ({"slots": 0}, Resources(cards=1), "slots"),
        ({"budget": CARD - 1}, Resources(cards=1), "room below its assessed limit"),
    ],
)
def test_only_what_is_asked_can_be_short(had: dict[str, int], asked: Resources, short: str | None) -> None:
    assert left(**had).less([SEAT], asked).short(asked) == short


def test_a_card_is_given_once() -> None:
    resources = Resources(cards=1)
    once = left().less([SEAT], resources)
    assert once.short(resources) is None
    assert once.less([SEAT], resources).short(resources) == "room on a card"
