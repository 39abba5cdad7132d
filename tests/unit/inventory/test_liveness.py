"""Suspect, lost and returned: who counts as alive, and why not."""

from dataclasses import replace

import pytest

from contracts.nodes import NodePhase
from services.inventory.core.liveness import hear, judge, judge_tick
from services.inventory.core.model import Cause, Move, Node, NodeEvent, Noise, Sight, Timings
from tests.unit.inventory.builders import CALM, RULES, TIMINGS, beat, clock, incarnation, node


def due(subject: Node, observed_s: float, *, floor_s: float = 0) -> Move | None:
    return judge(subject, clock(observed_s, floor_s=floor_s), TIMINGS)


def event(move: Move | None) -> tuple[NodeEvent, Cause] | None:
    return (move.event, move.cause) if move else None


def test_quiet_node_becomes_suspect_and_then_lost() -> None:
    assert due(node(), 14.999) is None
    assert event(due(node(), 15)) == (NodeEvent.SUSPECT, Cause.SILENT)
    suspect = node(phase=NodePhase.SUSPECT)
    assert due(suspect, 269.999) is None
    move = due(suspect, 270)
    assert event(move) == (NodeEvent.LOST, Cause.SILENT)
    assert move is not None
    assert move.node.lost_ms == 270_000
    assert move.reason == "nothing heard for 270 s of observed time (lost after 270 s)"


def test_ready_node_may_be_lost_at_once() -> None:
    assert event(due(node(), 300)) == (NodeEvent.LOST, Cause.SILENT)


@pytest.mark.parametrize("phase", [NodePhase.SUSPECT, NodePhase.LOST])
def test_heartbeat_brings_a_node_back(phase: NodePhase) -> None:
    heard = hear(node(phase=phase), beat(counter=9), 400_000)
    move = due(heard, 400)
    assert event(move) == (NodeEvent.RETURNED, Cause.HEARD)
    assert move is not None
    assert move.node.phase is NodePhase.READY
    assert (move.node.lost_ms, move.node.counter, move.node.skew_ms) == (None, 9, 7)


@pytest.mark.parametrize("phase", list(NodePhase))
def test_new_stream_restarts_silence_and_returns_nobody(phase: NodePhase) -> None:
    assert due(node(phase=phase), 400, floor_s=400) is None


def test_silence_counts_on_after_the_floor() -> None:
    assert event(due(node(), 415, floor_s=400)) == (NodeEvent.SUSPECT, Cause.SILENT)
    assert due(node(phase=NodePhase.SUSPECT), 669, floor_s=400) is None
    assert event(due(node(phase=NodePhase.SUSPECT), 670, floor_s=400)) == (NodeEvent.LOST, Cause.SILENT)


def test_invalid_heartbeats_make_suspect_but_never_lost() -> None:
    heard = hear(node(), Noise("a", "body names node b"), 270_000)
    move = due(heard, 270)
    assert event(move) == (NodeEvent.SUSPECT, Cause.UNCOUNTED)
    assert move is not None
    assert "body names node b" in move.reason
    assert due(replace(heard, phase=NodePhase.SUSPECT), 300) is None
    assert due(replace(heard, phase=NodePhase.LOST), 270) is None


def test_unannounced_start_makes_suspect_but_never_lost() -> None:
    heard = hear(node(), beat(start=5), 270_000)
    move = due(heard, 270)
    assert event(move) == (NodeEvent.SUSPECT, Cause.UNCOUNTED)
    assert move is not None
    assert incarnation(5) in move.reason
    assert "has not announced itself" in move.reason


def test_one_straggler_of_the_start_before_is_no_rival() -> None:
    subject = replace(node(seen_s=100), rival=incarnation(0))
    assert due(hear(subject, beat(start=0, counter=7), 100_000), 100) is None


def test_second_heartbeat_of_the_start_before_is_a_rival() -> None:
    subject = replace(node(seen_s=100), rival=incarnation(0))
    once = hear(subject, beat(start=0, counter=7), 100_000)
    repeated = hear(once, beat(start=0, counter=7), 100_500)
    assert due(repeated, 100.5) is None
    twice = hear(repeated, beat(start=0, counter=8), 101_000)
    move = due(twice, 101)
    assert event(move) == (NodeEvent.SUSPECT, Cause.CLAIMED_TWICE)
    assert move is not None
    assert "two agents claim the name a" in move.reason
    suspect = hear(move.node, beat(counter=50), 115_999)
    assert due(suspect, 115.999) is None
    assert event(due(suspect, 116)) == (NodeEvent.RETURNED, Cause.HEARD)


def test_longer_lease_of_a_node_is_respected() -> None:
    heard = hear(node(), beat(lease_s=1000), 0)
    assert event(due(heard, 1029)) == (NodeEvent.SUSPECT, Cause.SILENT)
    assert event(due(heard, 1030)) == (NodeEvent.LOST, Cause.SILENT)


def test_lease_of_an_unannounced_start_is_respected() -> None:
    heard = hear(hear(node(), beat(), 0), beat(start=5, lease_s=1000), 0)
    assert event(due(heard, 1029)) == (NodeEvent.SUSPECT, Cause.UNCOUNTED)


def test_dispossessed_node_does_not_return_by_heartbeats() -> None:
    lost = replace(node(phase=NodePhase.LOST), superseded_by="b")
    assert due(hear(lost, beat(), 400_000), 400) is None


def test_timings_that_call_a_node_lost_within_its_lease_are_refused() -> None:
    with pytest.raises(AssertionError, match="only after its lease has ended"):
        Timings(suspect_ms=1, lease_ms=10, lost_ms=10, gap_ms=1)


def test_tick_keeps_what_was_heard_and_ignores_unknown_nodes() -> None:
    sounds = [beat("a", counter=2), beat("stranger"), beat("a", counter=3)]
    effects = list(
        judge_tick(
            [node("a"), node("b", seen_s=80)],
            sounds,
            clock=clock(90),
            timings=TIMINGS,
            census=CALM,
            breaker_open=False,
            rules=RULES,
        )
    )
    assert [type(effect) for effect in effects] == [Sight]
    assert isinstance(effects[0], Sight)
    assert (effects[0].node.name, effects[0].node.counter, effects[0].node.seen_ms) == ("a", 3, 90_000)


def test_suspect_node_is_not_told_twice() -> None:
    suspect = node(phase=NodePhase.SUSPECT)
    assert due(suspect, 20) is None
