"""Tables stay within 120 columns: long texts are wrapped, columns that do not fit go on in a line below."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.base import Tier
from contracts.fleet import Assessment, Declared, DeclaredNode, NodeGrade
from contracts.nodes import Card, CardSource, LiveAttempt, MonthlyCost, NodeFacts, NodePhase, NodeState
from libs.cli import capacity, jobs, nodes, output
from libs.cli.output import INDENT, WIDTH, laid_out
from libs.kit.ids import new_id
from services.inventory.core.capacity import assess, with_releases
from services.inventory.core.grading import grade
from services.inventory.rulebook import read_capacity, read_grading

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
RULES, GRADING = read_capacity(), read_grading()
COST = MonthlyCost(currency="cny", power_micro=1_250_000_000, depreciation_micro=11_750_000_000)
MODELS = {"V100M32": 32, "G2": 24, "A100-SXM4-80GB": 80, "T4": 16}
COUNT = 1213


def facts(number: int) -> NodeFacts:
    model = list(MODELS)[number % len(MODELS)]
    cards = [
        Card(index=at, uuid=new_id(), model=model, memory_bytes=MODELS[model] * 2**30, source=CardSource.NVML)
        for at in range(8 if number % 2 else 2)
    ]
    return NodeFacts(
        node=f"openb-node-{number:04}",
        tier=list(Tier)[number % 3 // 2],
        zone="zone-shanghai-2",
        address="",
        version="1",
        cpu_milli=96_000,
        memory_bytes=768 * 2**30,
        cards=cards,
    )


def state(number: int) -> NodeState:
    phase = (NodePhase.READY, NodePhase.QUARANTINED, NodePhase.DRAINING)[number % 10 // 8]
    return NodeState(
        node=facts(number).node,
        version=3,
        state=phase,
        facts=facts(number),
        incarnation=new_id(),
        attempts=[LiveAttempt(job_id=new_id(), attempt=1, member=0)] * (number % 4),
        reason="its checks passed, and it is heard; cordoned by operator/ops: disk to be swapped on Thursday",
        since=NOW - timedelta(hours=number),
        bad_cards=[1] if phase is NodePhase.QUARANTINED else [],
    )


def graded(number: int) -> NodeGrade:
    of, busy = facts(number), number % 3 == 0
    found = grade(of, [], critical=False, rules=GRADING)
    return NodeGrade(
        node=of.node,
        tier=of.tier,
        state=NodePhase.READY,
        grade=found.grade,
        score=found.score,
        node_class=found.node_class,
        scarce=found.scarce,
        reasons=list(found.reasons),
        cards=len(of.cards),
        cards_usable=len(of.cards),
        cards_promised_milli=1500 if busy else 0,
        utilisation_pct=71,
        idle_since=None if busy else NOW,
        cost=COST,
        releasable=False,
    )


GRADES = with_releases([graded(number) for number in range(COUNT)], asked_milli=10**6, headroom_pct=30)


def assessment() -> Assessment:
    base = Assessment(assessed_at=NOW, headroom_pct=30, tiers=[], rows=[], classes=[])
    return assess(GRADES, [], rules=RULES, absent=0, base=base)


def declared(number: int) -> tuple[str, ...]:
    node = DeclaredNode(
        node=f"openb-node-{number:04}",
        zone="zone-shanghai-2",
        cpu_milli=1,
        memory_bytes=2**38,
        cards=8,
        card_model="T4",
    )
    differs = ["cards: declared 8, announced 7", "card_model: declared T4, announced A100-SXM4-80GB"]
    return nodes.declared_row(Declared(node=node, declared_at=NOW, announced=True, differences=differs), NOW)


@pytest.mark.parametrize(
    ("headers", "rows", "lines_a_row"),
    [
        (nodes.HEADERS, [nodes.row(state(number), NOW) for number in range(COUNT)], 3),
        (nodes.GRADE_HEADERS, [nodes.grade_row(one) for one in GRADES], 4),
        (nodes.DECLARED_HEADERS, [declared(number) for number in range(COUNT)], 3),
        (capacity.TIER_HEADERS, [capacity.tier_row(one) for one in assessment().tiers], 2),
        (capacity.ROW_HEADERS, [capacity.row(one) for one in assessment().rows], 1),
        (capacity.IDLE_HEADERS, [capacity.idle_row(one) for one in GRADES], 3),
    ],
)
def test_tables_of_a_real_fleet_can_be_read(
    headers: Sequence[str], rows: Sequence[Sequence[str]], lines_a_row: int
) -> None:
    shown = list(laid_out([headers, *rows]))
    assert max(map(len, shown)) <= WIDTH
    assert len(shown) <= (len(rows) + 1) * lines_a_row


@pytest.mark.parametrize(
    ("names", "shown"), [([], ""), (["a"], "a"), (["a", "a"], "a"), (["a", "b", "a", "c"], "a +2")]
)
def test_of_many_nodes_the_first_is_shown(names: list[str], shown: str) -> None:
    assert jobs.first_of(names) == shown


def test_a_long_last_column_is_wrapped_beside_the_others() -> None:
    told = "word " * 20
    assert list(laid_out([["A", "B" * 60, "TOLD"], ["1", "2", told.strip()]])) == [
        "A  " + "B" * 60 + "  TOLD",
        "1  2" + " " * 61 + ("word " * 11).strip(),
        " " * 65 + ("word " * 9).strip(),
    ]


def test_columns_that_do_not_fit_go_on_below() -> None:
    told = list(laid_out([["A" * 70, "B" * 70, "C"], ["1", "2", "3"]]))
    assert told == ["A" * 70, INDENT + "B" * 70 + "  C", "1", INDENT + "2" + " " * 71 + "3"]


def test_a_table_that_fits_is_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("A", "LONG"), [("", "x"), ("yes", "")], empty="")
    assert capsys.readouterr().out == "A    LONG\n-    x\nyes  -\n"


@given(st.lists(st.lists(st.text("abc ", min_size=1, max_size=200), min_size=3, max_size=3), min_size=2, max_size=4))
def test_no_word_of_a_table_is_lost(cells: list[list[str]]) -> None:
    shown = " ".join(laid_out(cells))
    assert sorted(shown.split()) == sorted(word for row in cells for cell in row for word in cell.split())
