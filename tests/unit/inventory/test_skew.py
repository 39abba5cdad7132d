"""A node's clock, told from the stamps of its heartbeats with the delay of the way allowed for."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inventory.core.liveness import hear, judge
from services.inventory.core.model import Beat, Move, Node, NodeEvent, SkewRules
from services.inventory.core.phases import told
from services.inventory.core.skew import judge_skew, note_skew, skew, without_way
from tests.unit.inventory.builders import TIMINGS, beat, clock, node

RULES = SkewRules(bound_ms=2_000, delay_ms=1_000, window_ms=10_000)


def beats(*differences: int, every_s: float = 5, of: Node | None = None, from_s: float = 0) -> Node:
    """A node after heartbeats that arrived so much later than they were stamped."""
    seen = of or node()
    for number, difference in enumerate(differences):
        seen = note_skew(seen, difference, round((from_s + number * every_s) * 1000), RULES.window_ms)
    return seen


def judged(of: Node) -> Move | None:
    return judge_skew(of, 100_000, RULES)


def test_a_clock_that_is_ahead_is_seen_at_once() -> None:
    move = judged(beats(-2_001))
    assert move is not None
    assert (move.event, told(move.node).value) == (NodeEvent.QUARANTINED, "quarantined")
    assert move.reason.startswith("clock is 2.001 s ahead (bound 2 s)")


def test_one_late_heartbeat_is_no_wrong_clock() -> None:
    assert judged(beats(20, 9_000, 20, 15, 9_000)) is None


def test_a_clock_that_is_behind_is_seen_when_a_whole_window_says_so() -> None:
    assert judged(beats(8_000)) is None
    move = judged(beats(8_000, 7_000, 9_000, 8_500))
    assert move is not None
    assert move.reason.startswith("clock is 6.000 s behind, 1 s of delay allowed for (bound 2 s)")


def test_a_slow_way_is_allowed_for() -> None:
    assert judged(beats(*[2_900] * 9)) is None


def test_a_clock_that_is_right_again_is_released_at_half_the_bound() -> None:
    off = judged(beats(-5_000))
    assert off is not None
    better = beats(-1_500, -1_500, -1_500, -1_500, of=off.node, from_s=20)
    assert judged(better) is None
    right = judged(beats(-900, -900, -900, -900, of=better, from_s=60))
    assert right is not None
    assert (right.event, told(right.node).value, right.node.faults) == (NodeEvent.RELEASED, "ready", ())


@pytest.mark.parametrize(
    ("difference", "round_trip", "left"),
    [(5_000, 4_000, 1_000), (5_000, 6_000, 0), (5_000, None, 5_000), (-10, 500, -10)],
)
def test_the_round_trip_that_was_measured_is_taken_off(difference: int, round_trip: int | None, left: int) -> None:
    assert without_way(difference, round_trip) == left


def test_the_watch_quarantines_by_the_heartbeat_it_hears() -> None:
    off: Beat = replace(beat(counter=2), skew_ms=-60_000)
    heard = hear(node(seen_s=0), off, 5_000, RULES.window_ms)
    move = judge(heard, clock(5), TIMINGS, RULES)
    assert move is not None
    assert "clock is 60.000 s ahead" in move.reason
    assert judge(heard, clock(7), TIMINGS, RULES) is None, "only a heartbeat just heard is judged by"


@given(
    st.integers(-1_000, 1_000),
    st.lists(st.integers(0, 60_000), min_size=12, max_size=40),
)
def test_a_clock_within_its_bound_is_never_off_while_one_heartbeat_of_a_window_is_quick(
    offset: int, delays: list[int]
) -> None:
    quick = [0 if number % 2 == 0 else delay for number, delay in enumerate(delays)]
    seen = node()
    for number, delay in enumerate(quick):
        seen = note_skew(seen, delay - offset, number * 5_000, RULES.window_ms)
        assert judge_skew(seen, number * 5_000, RULES) is None
        told_ms = skew(seen, RULES)
        assert told_ms is None or abs(told_ms) <= abs(offset)
