"""What is said when the assessed limits of remote nodes are in the way, in all or on each node."""

import pytest

from contracts.base import Reason, ReasonCode
from services.scheduler.core.arrays import CARD
from tests.unit.scheduler.scenes import Node, R, Run, World, job


def told(nodes: list[Node], *runs: Run, **asked: int) -> Reason:
    [stay] = World(nodes, [job("late", tiers=(R,), **asked)], runs).decided().stays
    return stay.reason


def taken(node: str, **held: int) -> Run:
    return Run(f"on-{node}", [(node, (0,))], preemptible=False, demand=job("", tiers=(R,), **held).demand)


def test_a_link_that_is_enough_in_all_but_on_no_node_is_told_as_fragmented() -> None:
    nodes = [Node(name, ("t4",) * 2, R, link_mbps=200) for name in "ab"]
    reason = told(nodes, taken("a", link_mbps=100), taken("b", link_mbps=100), link_mbps=150)
    assert (reason.code, reason.resource, reason.asked) == (ReasonCode.FRAGMENTED, "link_mbps", 150)
    assert "asks 150 link_mbps: " in reason.message


def test_cards_whose_limit_is_enough_in_all_but_on_no_node_are_told_as_fragmented() -> None:
    nodes = [Node(name, ("t4",) * 2, R, budget=CARD) for name in "ab"]
    reason = told(nodes, taken("a", share=CARD // 2), taken("b", share=CARD // 2), link_mbps=10, cpu_milli=1000)
    assert (reason.code, reason.resource, reason.asked) == (ReasonCode.FRAGMENTED, "card_millionths", CARD)


@pytest.mark.parametrize(
    ("node", "asked", "resource", "figures"),
    [
        (Node("a", ("t4",), R, link_mbps=100), {"link_mbps": 150}, "link_mbps", (150, 100)),
        (Node("a", ("t4",), R, budget=CARD // 2), {}, "card_millionths", (CARD, CARD // 2)),
        (Node("a", ("t4",), R, link_mbps=100), {"cards": 0, "link_mbps": 150}, "link_mbps", (150, 100)),
    ],
)
def test_limits_that_are_short_in_all_are_told_with_what_they_leave(
    node: Node, asked: dict[str, int], resource: str, figures: tuple[int, int]
) -> None:
    reason = told([node], **asked)
    assert (reason.code, reason.resource) == (ReasonCode.WAITING_FOR_NODES, resource)
    assert (reason.asked, reason.allowed) == figures


def test_processors_that_are_short_are_told_beside_limits_that_are_not() -> None:
    nodes = [Node("a", ("t4",) * 2, R, link_mbps=200, cpu_milli=8000)]
    reason = told(nodes, link_mbps=100, cpu_milli=8000, members=2)
    assert (reason.code, reason.resource) == (ReasonCode.WAITING_FOR_NODES, "cpu_milli")
    assert (reason.used, reason.asked, reason.allowed) == (0, 16_000, 8000)
