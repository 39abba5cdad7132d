"""Announcements: first ones, restarts, and what is refused in what words."""

from dataclasses import replace

import pytest

from contracts.nodes import NodeFacts, NodePhase
from services.inventory.core.announce import announce
from services.inventory.core.model import (
    Admit,
    AnnounceEffect,
    Announcement,
    Cause,
    Holder,
    Node,
    NodeEvent,
    Refuse,
    Stage,
)
from tests.unit.inventory.builders import announcement, facts, incarnation, node


def decide(
    said: Announcement,
    known: Node | None = None,
    known_facts: NodeFacts | None = None,
    holders: dict[str, Holder] | None = None,
) -> AnnounceEffect | None:
    return announce(known, known_facts, said, holders=holders or {}, observed_ms=50_000)


def admitted(effect: AnnounceEffect | None) -> Admit:
    assert isinstance(effect, Admit), effect
    return effect


def refused(effect: AnnounceEffect | None) -> str:
    assert isinstance(effect, Refuse), effect
    return effect.reason


def test_first_announcement_is_graded() -> None:
    effect = admitted(decide(announcement(facts("a", "GPU-1"))))
    assert (effect.event, effect.cause) == (NodeEvent.GRADED, Cause.ANNOUNCED)
    assert (effect.node.phase, effect.node.seen_ms, effect.node.heard_ms) == (NodePhase.READY, 50_000, 50_000)


def test_same_announcement_again_says_nothing() -> None:
    assert decide(announcement(facts()), node(), facts()) is None


def test_changed_facts_are_told_in_the_present_phase() -> None:
    said = announcement(facts(version="2"))
    effect = admitted(decide(said, node(), facts()))
    assert (effect.event, effect.cause, effect.facts.version) == (NodeEvent.GRADED, Cause.FACTS_CHANGED, "2")
    effect = admitted(decide(said, node(phase=NodePhase.LOST), facts()))
    assert (effect.event, effect.node.phase) == (NodeEvent.LOST, NodePhase.LOST)


@pytest.mark.parametrize(
    ("phase", "event"),
    [
        (NodePhase.READY, NodeEvent.GRADED),
        (NodePhase.SUSPECT, NodeEvent.RETURNED),
        (NodePhase.LOST, NodeEvent.RETURNED),
    ],
)
def test_new_agent_start_takes_over(phase: NodePhase, event: NodeEvent) -> None:
    known = replace(node(phase=phase), lease_ms=9_000, requeue_held=True, superseded_by="b")
    effect = admitted(decide(announcement(facts(), start=2, announced_s=9, stored_s=9), known, facts()))
    assert (effect.event, effect.cause) == (event, Cause.RESTARTED)
    after = effect.node
    assert (after.incarnation, after.rival, after.rival_counter) == (incarnation(2), incarnation(1), None)
    assert (after.phase, after.lost_ms, after.requeue_held, after.superseded_by) == (NodePhase.READY, None, False, None)
    assert after.lease_ms == 9_000


def test_redelivered_announcement_from_before_says_nothing_new() -> None:
    assert decide(announcement(facts(), start=0, announced_s=-5, stored_s=-4), node(), facts()) is None


def test_node_clock_that_went_back_does_not_lock_its_node_out() -> None:
    said = announcement(facts(), start=2, announced_s=-500, stored_s=9)
    assert admitted(decide(said, node(), facts())).node.incarnation == incarnation(2)


def test_replay_of_an_announcement_from_before_is_refused() -> None:
    said = announcement(facts(), start=0, announced_s=-5, stored_s=900, replayed=True)
    words = refused(decide(said, node(), facts()))
    assert incarnation(0) in words
    assert "before start" in words
    assert "which is in force" in words


def test_card_of_a_node_that_lives_is_refused() -> None:
    holders = {"GPU-1": Holder("b", NodePhase.SUSPECT)}
    words = refused(decide(announcement(facts("a", "GPU-1")), holders=holders))
    assert words.startswith("node a announces card GPU-1, which node b (suspect) has")


def test_card_of_a_lost_node_moves() -> None:
    holders = {"GPU-1": Holder("b", NodePhase.LOST), "GPU-2": Holder("b", NodePhase.LOST)}
    assert admitted(decide(announcement(facts("a", "GPU-1", "GPU-2")), holders=holders)).dispossessed == ("b",)


def test_card_named_twice_is_refused() -> None:
    assert "2 cards with uuid GPU-1" in refused(decide(announcement(facts("a", "GPU-1", "GPU-1"))))


def test_index_named_twice_is_refused() -> None:
    cards = [card.model_copy(update={"index": 4}) for card in facts("a", "GPU-1", "GPU-2").cards]
    said = facts("a").model_copy(update={"cards": cards})
    assert "2 cards with index 4" in refused(decide(announcement(said)))


@pytest.mark.parametrize(
    ("boot", "phase", "stage"),
    [
        ("boot-1", NodePhase.READY, Stage.READY),
        ("boot-2", NodePhase.READY, Stage.ANNOUNCED),
        (None, NodePhase.READY, Stage.ANNOUNCED),
        ("boot-1", NodePhase.LOST, Stage.ANNOUNCED),
    ],
)
def test_a_new_agent_owes_its_checks_unless_the_node_was_at_work_in_this_boot(
    boot: str | None, phase: NodePhase, stage: Stage
) -> None:
    before = facts("a").model_copy(update={"prechecks": ["time_sync"], "boot_id": "boot-1"})
    said = announcement(before.model_copy(update={"boot_id": boot}), start=2, announced_s=9, stored_s=9)
    effect = announce(node(phase=phase), before, said, holders={}, observed_ms=9)
    assert isinstance(effect, Admit)
    assert effect.node.stage is stage
    assert ("checks to come: time_sync" in effect.reason) == (stage is Stage.ANNOUNCED)
