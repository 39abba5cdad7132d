"""What is promised, what is idle, and what could be given away while the headroom stays."""

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.base import Tier
from contracts.fleet import Assessment, NodeGrade
from contracts.jobs import (
    AttemptState,
    JobKind,
    JobPhase,
    JobSpec,
    JobState,
    Member,
    Priority,
    Resources,
)
from contracts.nodes import MonthlyCost, NodeClass, NodePhase
from services.inventory.core.capacity import assess, with_releases
from services.inventory.core.promises import promise
from services.inventory.rulebook import read_capacity
from tests.unit.inventory.builders import T0, at, incarnation

RULES = read_capacity()


def graded(
    node: str,
    *,
    kind: NodeClass = NodeClass.REPLACEABLE,
    promised: int = 0,
    idle: datetime | None = T0,
    score: int = 300,
    **more: Any,
) -> NodeGrade:
    base = NodeGrade(
        node=node,
        tier=Tier.CENTRAL,
        state=NodePhase.READY,
        grade="D",
        score=score,
        node_class=kind,
        scarce=kind is NodeClass.SCARCE,
        reasons=[],
        cards=8,
        cards_usable=8,
        cards_promised_milli=promised * 1000,
        idle_since=None if promised else idle,
        cost=MonthlyCost(currency="cny", power_micro=1_000_000, depreciation_micro=2_000_000),
        releasable=False,
    )
    return base.model_copy(update=more)


def released(*grades: NodeGrade, asked: int = 0) -> set[str]:
    found = with_releases(grades, asked_milli=asked * 1000, headroom_pct=30)
    return {one.node for one in found if one.releasable}


def test_an_idle_older_node_can_go_and_a_newer_or_scarce_one_stays() -> None:
    kinds = (NodeClass.REPLACEABLE, NodeClass.TRAINING, NodeClass.SCARCE, NodeClass.CRITICAL_IN_USE)
    found = with_releases(
        [graded(kind.value.replace("_", "-"), kind=kind) for kind in kinds], asked_milli=0, headroom_pct=30
    )
    assert {one.node: one.kept_because for one in found} == {
        "replaceable": "",
        "training": "training capacity",
        "scarce": "scarce: its bandwidth is not given away",
        "critical-in-use": "runs work that may not be stopped",
    }


def test_a_node_with_work_or_unheard_is_kept() -> None:
    assert released(graded("busy", promised=1), graded("lost", state=NodePhase.LOST)) == set()


def test_the_headroom_keeps_nodes() -> None:
    busy = graded("busy", kind=NodeClass.TRAINING, promised=8)
    assert released(busy, graded("b")) == set(), "8 of 8 promised leave no headroom without b"
    assert released(busy, graded("b"), graded("c")) == {"b"}, "8 of 16 leave 30 % free"


def test_what_waits_keeps_nodes() -> None:
    assert released(graded("a"), graded("b"), asked=5) == {"a"}
    assert released(graded("a"), graded("b"), asked=6) == set()


def test_the_least_worth_goes_first_then_the_longest_idle() -> None:
    some = (graded("a", score=200), graded("b", score=100), graded("c", score=100, idle=at(-9)))
    assert released(*some, asked=5) == {"b", "c"}
    assert released(*some, asked=11) == {"c"}


def test_tiers_do_not_lend_each_other() -> None:
    busy = graded("busy", kind=NodeClass.TRAINING, promised=8)
    remote = graded("far", tier=Tier.REMOTE)
    assert released(busy, graded("b"), remote) == {"far"}


@given(st.lists(st.tuples(st.sampled_from(list(NodeClass)), st.integers(0, 8)), min_size=1, max_size=30))
def test_what_goes_never_takes_work_or_headroom(fleet: list[tuple[NodeClass, int]]) -> None:
    grades = [graded(f"n{number}", kind=kind, promised=promised) for number, (kind, promised) in enumerate(fleet)]
    found = with_releases(grades, asked_milli=0, headroom_pct=30)
    gone = [one for one in found if one.releasable]
    assert all(one.node_class is NodeClass.REPLACEABLE and one.cards_promised_milli == 0 for one in gone)
    left = 8 * (len(found) - len(gone))
    promised = sum(one.cards_promised_milli for one in found) / 1000
    assert not gone or promised <= 0.7 * left


def test_the_assessment_adds_up() -> None:
    grades = with_releases(
        [graded("a"), graded("b", promised=3, cards_used_milli=2000), graded("c", state=NodePhase.RETIRED)],
        asked_milli=0,
        headroom_pct=30,
    )
    base = Assessment(assessed_at=T0, headroom_pct=0, tiers=[], rows=[], classes=[])
    found = assess(grades, [], rules=RULES, absent=4, base=base)
    [row] = found.rows
    assert (row.nodes, row.cards, row.cards_promised_milli, row.cards_used_milli) == (2, 16, 3000, 2000)
    assert (row.idle_nodes, row.idle_cards, row.idle_cost[0].micro, row.releasable_nodes) == (1, 8, 3_000_000, 1)
    central = next(one for one in found.tiers if one.tier is Tier.CENTRAL)
    assert (central.cards_promisable_milli, central.headroom_kept, found.declared_absent) == (11_200, True, 4)


def test_cards_that_take_no_work_are_neither_promisable_nor_idle() -> None:
    grades = [graded("cordoned", cards_usable=0), graded("draining", cards_usable=0, state=NodePhase.DRAINING)]
    base = Assessment(assessed_at=T0, headroom_pct=0, tiers=[], rows=[], classes=[])
    found = assess(grades, [], rules=RULES, absent=0, base=base)
    central = next(one for one in found.tiers if one.tier is Tier.CENTRAL)
    assert (central.cards_usable, central.cards_promisable_milli, central.headroom_kept) == (0, 0, False)
    [row] = found.rows
    assert (row.nodes, row.cards, row.idle_nodes, row.idle_cards, row.idle_cost) == (2, 16, 0, 0, [])
    remote = next(one for one in found.tiers if one.tier is Tier.REMOTE)
    assert remote.headroom_kept, "a tier without cards owes none"


# ---- promises --------------------------------------------------------------------------------------------------------


def job(state: JobPhase, *, priority: Priority = Priority.BATCH, members: list[Member] | None = None) -> JobState:
    spec = JobSpec(
        job_id=incarnation(7),
        tenant="acme",
        name="train",
        kind=JobKind.TRAINING,
        command=["true"],
        resources=Resources(cards=4),
        members=2,
        priority=priority,
        max_runtime_s=60,
    )
    attempt = None if members is None else AttemptState(number=1, generation=1, members=members)
    return JobState(
        job_id=spec.job_id,
        tenant="acme",
        spec=spec,
        version=3,
        state=state,
        attempt=attempt,
        submitted_at=T0,
        updated_at=T0,
    )


def member(index: int, node: str, cards: list[int], share_milli: int | None = None) -> Member:
    return Member(index=index, node=node, tier=Tier.CENTRAL, cards=cards, share_milli=share_milli)


def test_placed_work_is_promised_by_node_and_waiting_work_asks() -> None:
    placed = promise(job(JobPhase.PLACED, members=[member(0, "a", [0, 1]), member(1, "a", [2], 250)]))
    assert (placed.cards_milli, placed.asked_milli, placed.ended) == ({"a": 2250}, 0, False)
    waiting = promise(job(JobPhase.WAITING, members=[member(0, "a", [0])]))
    assert (waiting.cards_milli, waiting.asked_milli) == ({}, 8000)
    assert promise(job(JobPhase.FINISHED, members=[member(0, "a", [0])])).ended


def test_work_that_may_not_be_stopped_is_critical() -> None:
    assert promise(job(JobPhase.RUNNING, priority=Priority.NORMAL)).critical
    assert not promise(job(JobPhase.RUNNING)).critical
