"""Mass silence holds requeueing; it is released when nodes are back."""

from dataclasses import replace

from contracts.nodes import NodePhase
from services.inventory.core.liveness import judge_tick
from services.inventory.core.model import (
    Beat,
    Census,
    CloseBreaker,
    Move,
    Node,
    NodeEvent,
    OpenBreaker,
    TickEffect,
)
from tests.unit.inventory.builders import RULES, TIMINGS, beat, clock, node


def tick(
    nodes: list[Node],
    census: Census,
    *,
    sounds: list[Beat] | None = None,
    observed_s: float = 270,
    is_open: bool = False,
) -> list[TickEffect]:
    return list(
        judge_tick(
            nodes,
            sounds or [],
            clock=clock(observed_s),
            timings=TIMINGS,
            census=census,
            breaker_open=is_open,
            rules=RULES,
        )
    )


def losses(effects: list[TickEffect]) -> dict[str, bool]:
    return {
        effect.node.name: effect.node.requeue_held
        for effect in effects
        if isinstance(effect, Move) and effect.event is NodeEvent.LOST
    }


def suspects(*names: str) -> list[Node]:
    return [node(name, phase=NodePhase.SUSPECT) for name in names]


def test_one_loss_in_a_healthy_fleet_is_not_held() -> None:
    effects = tick(suspects("a"), Census(ready=3, suspect=1, lost_lately=0))
    assert losses(effects) == {"a": False}
    assert len(effects) == 1


def test_only_node_of_a_fleet_is_not_held() -> None:
    assert losses(tick(suspects("a"), Census(ready=0, suspect=1, lost_lately=0))) == {"a": False}


def test_half_of_the_fleet_is_not_more_than_half() -> None:
    assert losses(tick(suspects("a", "b"), Census(ready=2, suspect=2, lost_lately=0))) == {"a": False, "b": False}


def test_mass_loss_opens_the_breaker_and_is_held() -> None:
    effects = tick(suspects("a", "b", "c"), Census(ready=1, suspect=3, lost_lately=0))
    assert isinstance(effects[0], OpenBreaker)
    assert losses(effects) == {"a": True, "b": True, "c": True}
    assert "3 of 4 nodes silent" in effects[0].reason


def test_first_loss_is_held_when_the_others_are_silent_already() -> None:
    first, *others = suspects("a", "b", "c")
    staggered = [first, *(replace(other, seen_ms=5_000, heard_ms=5_000) for other in others)]
    effects = tick(staggered, Census(ready=1, suspect=3, lost_lately=0))
    assert losses(effects) == {"a": True}


def test_recent_losses_count_toward_the_breaker() -> None:
    assert losses(tick(suspects("a"), Census(ready=1, suspect=1, lost_lately=2))) == {"a": True}


def test_losses_while_it_is_open_are_held_and_do_not_open_it_again() -> None:
    effects = tick(suspects("a"), Census(ready=1, suspect=1, lost_lately=2), is_open=True)
    assert losses(effects) == {"a": True}
    assert len(effects) == 1


def test_breaker_closes_when_enough_nodes_are_back() -> None:
    held = [replace(node(name, phase=NodePhase.LOST), requeue_held=True) for name in ("a", "b")]
    effects = tick(held, Census(ready=1, suspect=0, lost_lately=3), sounds=[beat("a"), beat("b")], is_open=True)
    moves = [effect for effect in effects if isinstance(effect, Move)]
    assert [(move.event, move.node.requeue_held) for move in moves] == [(NodeEvent.RETURNED, False)] * 2
    assert isinstance(effects[-1], CloseBreaker)


def test_breaker_stays_open_while_the_share_is_exceeded() -> None:
    held = [replace(node("a", phase=NodePhase.LOST), requeue_held=True)]
    effects = tick(held, Census(ready=1, suspect=0, lost_lately=4), sounds=[beat("a")], is_open=True)
    assert not any(isinstance(effect, CloseBreaker) for effect in effects)


def test_long_lost_node_that_returns_does_not_hide_a_recent_loss() -> None:
    longlost = replace(node("z", phase=NodePhase.LOST), lost_ms=0)
    effects = tick(
        [longlost, *suspects("a")], Census(ready=0, suspect=1, lost_lately=2), sounds=[beat("z")], observed_s=270
    )
    assert losses(effects) == {"a": True}
