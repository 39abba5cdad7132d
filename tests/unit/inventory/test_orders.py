"""Orders of operators, and the phase that is told of liveness, orders and faults together."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.nodes import NodePhase
from services.inventory.core.liveness import judge
from services.inventory.core.model import Cause, Fault, Move, Node, NodeEvent, Refuse, Stage, Standing
from services.inventory.core.orders import order
from services.inventory.core.phases import told
from tests.unit.inventory.builders import TIMINGS, clock, node

BUSY = '[{"job_id": "x", "attempt": 1, "member": 0}]'
FAULT = Fault("xid_79", 0, "XID 79", whole_node=True)


def ordered(of: Node, name: str) -> Node:
    move = order(of, name, "rack 7", "ops")
    assert isinstance(move, Move)
    return move.node


def stands(standing: Standing, **changes: object) -> Node:
    return replace(node(), standing=standing, order="draining by ops: rack 7", **changes)


@pytest.mark.parametrize(
    ("name", "phase", "cordoned"),
    [("cordon", NodePhase.READY, True), ("drain", NodePhase.DRAINING, True), ("retire", NodePhase.DRAINING, True)],
)
def test_an_order_closes_a_node_until_it_is_uncordoned(name: str, phase: NodePhase, *, cordoned: bool) -> None:
    after = ordered(node(), name)
    assert (told(after), after.standing is not Standing.FREE) == (phase, cordoned)
    assert after.order.endswith("by ops: rack 7")
    free = ordered(after, "uncordon")
    assert (told(free), free.standing, free.order) == (NodePhase.READY, Standing.FREE, "")


@pytest.mark.parametrize(
    ("standing", "name"),
    [
        (Standing.FREE, "uncordon"),
        (Standing.CORDONED, "cordon"),
        (Standing.DRAINING, "drain"),
        (Standing.RETIRING, "retire"),
        (Standing.RETIRED, "retire"),
        (Standing.DRAINING, "cordon"),
        (Standing.RETIRING, "cordon"),
        (Standing.RETIRING, "drain"),
    ],
)
def test_an_order_that_changes_nothing_tells_nothing(standing: Standing, name: str) -> None:
    assert order(stands(standing), name, "again", "ops") is None


@pytest.mark.parametrize("name", ["cordon", "drain"])
def test_a_retired_node_is_uncordoned_before_anything_else(name: str) -> None:
    refused = order(stands(Standing.RETIRED), name, "why", "ops")
    assert isinstance(refused, Refuse)
    assert "uncordon it first" in refused.reason


@pytest.mark.parametrize("changes", [{"attempts": BUSY}, {"promised": True}, {"requeue_held": True}])
def test_a_node_retires_once_nothing_runs_or_is_placed_there(changes: dict[str, object]) -> None:
    assert judge(stands(Standing.RETIRING, **changes), clock(1), TIMINGS) is None
    move = judge(stands(Standing.RETIRING), clock(1), TIMINGS)
    assert move is not None
    assert (move.cause, told(move.node)) == (Cause.RETIRED, NodePhase.RETIRED)


def test_a_lost_node_retires_with_what_it_was_thought_to_run() -> None:
    lost = stands(Standing.RETIRING, phase=NodePhase.LOST, attempts=BUSY)
    move = judge(lost, clock(500), TIMINGS)
    assert move is not None
    assert told(move.node) is NodePhase.RETIRED


def test_nothing_is_told_of_the_silence_of_a_retired_node() -> None:
    assert judge(stands(Standing.RETIRED), clock(9_999), TIMINGS) is None


def test_a_checked_node_is_ready_when_it_is_heard() -> None:
    checked = replace(node(seen_s=5), stage=Stage.CHECKED)
    assert judge(checked, clock(6), TIMINGS) is None
    move = judge(checked, clock(5), TIMINGS)
    assert move is not None
    assert (move.event, told(move.node)) == (NodeEvent.GRADED, NodePhase.READY)


def test_silence_of_a_quarantined_node_is_its_loss_all_the_same() -> None:
    sick = replace(node(), faults=(FAULT,))
    assert told(sick) is NodePhase.QUARANTINED
    suspect = judge(sick, clock(20), TIMINGS)
    assert suspect is not None
    assert told(suspect.node) is NodePhase.QUARANTINED
    lost = judge(suspect.node, clock(300), TIMINGS)
    assert lost is not None
    assert (lost.event, told(lost.node)) == (NodeEvent.LOST, NodePhase.LOST)


@given(
    st.sampled_from([NodePhase.READY, NodePhase.SUSPECT, NodePhase.LOST]),
    st.sampled_from(list(Standing)),
    st.sampled_from(list(Stage)),
    st.sampled_from([(), (FAULT,)]),
)
def test_only_a_heard_checked_free_or_cordoned_node_without_faults_is_ready(
    phase: NodePhase, standing: Standing, stage: Stage, faults: tuple[Fault, ...]
) -> None:
    of = replace(node(), phase=phase, standing=standing, stage=stage, faults=faults)
    well = phase is NodePhase.READY and stage is Stage.READY and not faults
    assert (told(of) is NodePhase.READY) == (well and standing in {Standing.FREE, Standing.CORDONED})
