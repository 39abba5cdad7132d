"""The breaker of quarantines: a few nodes may be found faulty within a window, a large share may not."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.inventory.core.model import (
    BreakerRules,
    Cause,
    Fault,
    FaultCensus,
    Move,
    Node,
    NodeEvent,
    OpenFaultBreaker,
    Remedy,
    Stage,
)
from services.inventory.core.phases import quarantined, retell, with_faults
from services.inventory.core.throttle import enforce, forgive, throttle
from tests.unit.inventory.builders import node

RULES = BreakerRules(share=0.25, window_ms=600_000)
NOW_MS = 1_000_000
GONE = Fault("xid_79", 0, "card 0: XID 79", Remedy.REBOOT, whole_node=True, lasting=True)


def found(name: str, *faults: Fault, before: Node | None = None) -> tuple[Node, Move]:
    old = before or replace(node(name), cards=8)
    return old, retell(old, with_faults(old, faults or (GONE,), NOW_MS), Cause.REPORTED, "found")


def run(pairs: list[tuple[Node, Move]], *, fleet: int, lately: int = 0, is_open: bool = False) -> list[object]:
    census = FaultCensus(fleet, lately)
    return list(throttle(pairs, census, observed_ms=NOW_MS, breaker_open=is_open, rules=RULES))


def out(effects: list[object]) -> list[str]:
    return [effect.node.name for effect in effects if isinstance(effect, Move) and quarantined(effect.node)]


def test_one_faulty_node_of_a_small_fleet_is_quarantined() -> None:
    assert out(run([found("a")], fleet=2)) == ["a"]


def test_the_share_is_quarantined_and_what_is_beyond_it_is_held() -> None:
    effects = run([found(name) for name in "abcd"], fleet=8)
    assert out(effects) == ["a", "b"]
    opened = [effect for effect in effects if isinstance(effect, OpenFaultBreaker)]
    assert [one.reason for one in opened] == ["3 of 8 nodes found faulty, breaker at more than 25%"]
    held = [effect for effect in effects if isinstance(effect, Move) and effect.node.name in {"c", "d"}]
    assert [(move.event, move.node.faults[0].held, move.node.acted_ms) for move in held] == [
        (NodeEvent.GRADED, True, None)
    ] * 2
    assert "held: 3 of 8 nodes found faulty" in held[0].reason


def test_faults_of_the_window_count() -> None:
    assert out(run([found("a")], fleet=8, lately=2)) == []


def test_a_node_found_faulty_again_counts_once() -> None:
    before, first = found("a")
    again = found("a", GONE, Fault("card_fault", 1, "lost"), before=first.node)
    assert out(run([again], fleet=8, lately=2)) == ["a"]
    assert before.acted_ms is None


def test_an_open_breaker_holds_everything_new_and_lets_go_what_is_over() -> None:
    assert out(run([found("a")], fleet=100, is_open=True)) == []
    _, sick = found("b")
    over = retell(sick.node, with_faults(sick.node, (), NOW_MS), Cause.REPORTED, "over")
    [move] = run([(sick.node, over)], fleet=100, is_open=True)
    assert isinstance(move, Move)
    assert move.event is NodeEvent.RELEASED


def test_a_node_that_is_not_in_the_pool_yet_does_not_count() -> None:
    fresh = [found(name, before=replace(node(name), cards=8, stage=Stage.ANNOUNCED)) for name in "abcd"]
    effects = run(fresh, fleet=4)
    assert out(effects) == ["a", "b", "c", "d"]
    assert all(isinstance(effect, Move) and effect.node.acted_ms is None for effect in effects)


def test_what_is_held_is_set_aside_or_takes_effect() -> None:
    [move] = run([found("a")], fleet=100, is_open=True)
    assert isinstance(move, Move)
    assert forgive(move.node).faults == ()
    assert quarantined(enforce(move.node, NOW_MS))
    assert enforce(move.node, NOW_MS).acted_ms is None, "what the operator has looked at no longer counts"


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 20))
def test_never_more_than_the_share_and_one_leave_the_pool(fleet: int, faulty: int, lately: int) -> None:
    effects = run([found(f"n{number}") for number in range(min(faulty, fleet))], fleet=fleet, lately=lately)
    new = len(out(effects))
    assert new == 0 or new + lately <= max(1, RULES.share * fleet)
    assert sum(isinstance(effect, Move) for effect in effects) == min(faulty, fleet), "nothing is dropped"
