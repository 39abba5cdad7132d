"""Grades with reasons, the interconnect above the model; classes; limits of remote nodes; declared beside announced."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.base import Tier
from contracts.fleet import DeclaredLink, DeclaredNode
from contracts.nodes import Card, CardSource, Link, LinkKind, NodeClass, NodeFacts, NodeLimits
from services.inventory.core.facts import completed, differences
from services.inventory.core.grading import GradingRules, generation_of, grade, usable_mbps
from services.inventory.core.limits import assessed, limits
from services.inventory.rulebook import read_grading
from tests.unit.inventory.builders import facts

RULES = read_grading()
GIB = 2**30
NVSWITCH = Link(kind=LinkKind.NVSWITCH, nominal_mbps=7_200_000)
FAST = Link(kind=LinkKind.INFINIBAND, nominal_mbps=400_000)
SLOW = Link(kind=LinkKind.ETHERNET, nominal_mbps=10_000)


def cards(model: str, count: int = 8, gib: int = 80) -> list[Card]:
    return [
        Card(index=index, uuid=f"GPU-{index}", model=model, memory_bytes=gib * GIB, source=CardSource.DECLARED)
        for index in range(count)
    ]


def of(model: str = "NVIDIA H100 80GB HBM3", count: int = 8, gib: int = 80, **more: Any) -> NodeFacts:
    return facts().model_copy(update={"cards": cards(model, count, gib), **more})


def score(said: NodeFacts, *bad: int) -> int:
    return grade(said, bad, critical=False, rules=RULES).score


def kind(said: NodeFacts, *, critical: bool = False) -> NodeClass:
    return grade(said, (), critical=critical, rules=RULES).node_class


def test_the_interconnect_weighs_more_than_the_model() -> None:
    newer_behind_a_thin_link = of("H100", node_link=SLOW, card_link=Link(kind=LinkKind.PCIE, nominal_mbps=512_000))
    older_behind_a_fast_one = of("A100", node_link=FAST, card_link=NVSWITCH)
    assert score(older_behind_a_fast_one) > score(newer_behind_a_thin_link)


def test_rules_by_which_the_model_weighs_more_are_refused() -> None:
    body = RULES.model_dump()
    body["weights"] |= {"interconnect": 0.2, "generation": 0.45}
    with pytest.raises(ValidationError, match=r"weights.interconnect is 0.2: it must be above weights.generation"):
        GradingRules.model_validate(body)


def test_a_grade_names_its_reasons() -> None:
    graded = grade(of(node_link=FAST, card_link=NVSWITCH), (7,), critical=False, rules=RULES)
    assert (graded.grade, graded.node_class, graded.scarce) == ("A", NodeClass.SCARCE, True)
    assert graded.reasons == (
        "both links are of the fast ones, which are few",
        "interconnect 1.00 (weight 0.45): 400000 Mbit/s between nodes, 7200000 Mbit/s between cards",
        "generation 0.90 (weight 0.2): hopper",
        "memory 0.85 (weight 0.2): 81920 MiB a card",
        "usable cards 0.70 (weight 0.15): 7 of 8",
    )


def test_what_was_measured_and_the_ceiling_count_and_not_what_was_sold() -> None:
    sold = Link(kind=LinkKind.INFINIBAND, nominal_mbps=400_000, effective_mbps=90_000)
    assert usable_mbps(sold) == 90_000
    assert usable_mbps(sold.model_copy(update={"ceiling_mbps": 50_000})) == 50_000
    assert kind(of("H100", node_link=sold, card_link=NVSWITCH)) is NodeClass.TRAINING


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (of("H100"), NodeClass.TRAINING),
        (of("Tesla T4", gib=15), NodeClass.REPLACEABLE),
        (of("V100M32", gib=32), NodeClass.REPLACEABLE),
        (of("P100", node_link=FAST, card_link=NVSWITCH), NodeClass.SCARCE),
        (of("G3"), NodeClass.TRAINING),
        (of("G3", generation="Turing"), NodeClass.REPLACEABLE),
    ],
)
def test_classes(said: NodeFacts, expected: NodeClass) -> None:
    assert kind(said) is expected


def test_a_node_that_runs_critical_work_is_that_and_stays_scarce() -> None:
    graded = grade(of(node_link=FAST, card_link=NVSWITCH), (), critical=True, rules=RULES)
    assert (graded.node_class, graded.scarce) == (NodeClass.CRITICAL_IN_USE, True)


@pytest.mark.parametrize(
    ("model", "generation"),
    [
        ("NVIDIA H200", "hopper"),
        ("NVIDIA A100-SXM4-80GB", "ampere"),
        ("Tesla V100-SXM2-16GB", "volta"),
        ("NVIDIA L40S", "ada"),
        ("Tesla P100-PCIE-16GB", "pascal"),
        ("NVIDIA B200", "blackwell"),
        ("G2", None),
    ],
)
def test_generation_by_model(model: str, generation: str | None) -> None:
    assert generation_of(of(model), RULES) == generation


def test_a_node_without_usable_cards_is_of_the_last_grade_and_not_scarce() -> None:
    graded = grade(of(count=2, node_link=FAST, card_link=NVSWITCH), (0, 1), critical=False, rules=RULES)
    assert (graded.grade, graded.score, graded.scarce) == ("E", 0, False)


@given(st.integers(0, 500_000), st.integers(0, 8_000_000), st.integers(0, 7), st.integers(1, 100_000))
def test_more_bandwidth_and_more_cards_never_lower_a_score(node: int, card: int, bad: int, more: int) -> None:
    def with_links(node_mbps: int, card_mbps: int) -> NodeFacts:
        node_link = Link(kind=LinkKind.ROCE, nominal_mbps=node_mbps)
        return of(node_link=node_link, card_link=Link(kind=LinkKind.NVLINK, nominal_mbps=card_mbps))

    here = score(with_links(node, card), *range(bad))
    assert score(with_links(node + more, card), *range(bad)) >= here
    assert score(with_links(node, card + more), *range(bad)) >= here
    assert score(with_links(node, card), *range(bad + 1)) <= here
    assert 0 <= here <= 1000


# ---- limits ----------------------------------------------------------------------------------------------------------


def remote(**more: Any) -> NodeFacts:
    return of("L4", count=4, gib=24, tier=Tier.REMOTE, **more)


def test_limits_of_a_remote_node_keep_the_headroom() -> None:
    said = remote(link_mbps=200, power_limit_w=1000, heat_limit_w=900)
    assert limits(said, 100, 300, 30) == NodeLimits(link_mbps=70, power_w=700, heat_w=630, cards=2)


def test_the_ceiling_of_a_link_bounds_it() -> None:
    said = remote(link_mbps=200, node_link=Link(kind=LinkKind.RADIO, nominal_mbps=300, ceiling_mbps=50))
    assert limits(said, None, None, 30) == NodeLimits(link_mbps=35)


def test_only_remote_nodes_of_which_something_is_known_have_limits() -> None:
    assert limits(of(link_mbps=100, power_limit_w=1), None, None, 30) is None
    assert limits(remote(), None, 300, 30) is None


@pytest.mark.parametrize(
    ("before", "measured", "after"),
    [(None, 100, 100), (100, 109, 100), (100, 111, 111), (100, 89, 89), (100, None, 100)],
)
def test_a_measurement_counts_when_it_differs_by_more_than_a_tenth(
    before: int | None, measured: int | None, after: int
) -> None:
    assert assessed(before, measured) == after


# ---- declared --------------------------------------------------------------------------------------------------------


def declared(**more: Any) -> DeclaredNode:
    return DeclaredNode(node="a", cpu_milli=8000, memory_bytes=2**34, cards=8, card_model="H100", **more)


def test_a_declaration_fills_in_what_the_agent_does_not_know() -> None:
    link = DeclaredLink(kind=LinkKind.INFINIBAND, nominal_mbps=400_000)
    said = of("H100", generation="hopper", link_mbps=100)
    full = completed(said, declared(rack="r7", generation="ampere", node_link=link, link_mbps=200))
    assert (full.rack, full.generation, full.node_link, full.link_mbps) == ("r7", "hopper", FAST, 100)
    assert completed(said, None) is said


def test_differences_are_told_in_words() -> None:
    other = declared(zone="z2", rack="r1", card_memory_bytes=80 * GIB).model_copy(
        update={"cards": 4, "cpu_milli": 64_000}
    )
    assert list(differences(other, of("A100", gib=40))) == [
        "zone: declared z2, announced z1",
        "cpu_milli: declared 64000, announced 8000 millicores",
        "cards: declared 4, announced 8",
        "card_model: declared H100, announced A100",
        f"card_memory_bytes: declared {80 * GIB}, announced {40 * GIB}",
    ]
    assert list(differences(declared(zone="z1"), of("h100"))) == []
