"""Announcements: which are taken over, and which are refused in what words."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from contracts.nodes import NodeFacts, NodePhase
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


def announce(
    node: Node | None,
    facts: NodeFacts | None,
    said: Announcement,
    *,
    holders: Mapping[str, Holder],
    observed_ms: int,
) -> AnnounceEffect | None:
    """What follows from an announcement; None when it says nothing new.

    `node` and `facts` are what the ledger has under that name; `holders` maps each announced card's uuid to the other
    node that has it, if any.
    """
    if _overtaken(node, said):
        return None
    refusal = _own_cards(said.facts) or _stale(node, said) or _others_cards(said, holders)
    if refusal is not None:
        return Refuse(refusal)
    dispossessed = tuple(sorted({holder.node for holder in holders.values()}))
    if node is None:
        return Admit(
            _fresh(said, observed_ms),
            said.facts,
            NodeEvent.GRADED,
            Cause.ANNOUNCED,
            f"announced itself{_to_come(said)}",
            dispossessed,
        )
    if node.incarnation == said.incarnation:
        if facts == said.facts:
            return None
        changed = replace(node, cards=len(said.facts.cards))
        return Admit(changed, said.facts, _told(node), Cause.FACTS_CHANGED, "its facts changed", dispossessed)
    event = NodeEvent.GRADED if node.phase is NodePhase.READY else NodeEvent.RETURNED
    words = f"its agent started anew ({said.incarnation} after {node.incarnation})"
    after = _restart(node, said, observed_ms)
    if _checked_in_this_boot(node, facts, said):
        after = replace(after, stage=Stage.READY)
    else:
        words += _to_come(said)
    return Admit(after, said.facts, event, Cause.RESTARTED, words, dispossessed)


def _told(node: Node) -> NodeEvent:
    """The event that tells a node's present phase anew."""
    told = {NodePhase.READY: NodeEvent.GRADED, NodePhase.SUSPECT: NodeEvent.SUSPECT, NodePhase.LOST: NodeEvent.LOST}
    return told[node.phase]


def _own_cards(facts: NodeFacts) -> str | None:
    for field in ("uuid", "index"):
        counts = Counter(getattr(card, field) for card in facts.cards)
        for value, count in counts.most_common(1):
            if count > 1:
                return f"node {facts.node} announces {count} cards with {field} {value}: give each card its own {field}"
    return None


def _overtaken(node: Node | None, said: Announcement) -> bool:
    """Whether the stream brings, late, what a newer announcement has replaced; its order outweighs the node's clock."""
    if node is None or node.incarnation == said.incarnation or said.replayed:
        return False
    return said.announced_at <= node.announced_at and said.stored_at <= node.stored_at


def _stale(node: Node | None, said: Announcement) -> str | None:
    """Words for a replay of an announcement from before the one in force."""
    if node is None or node.incarnation == said.incarnation or not said.replayed:
        return None
    if said.announced_at > node.announced_at:
        return None
    return (
        f"node {node.name}: agent start {said.incarnation} announced itself at {said.announced_at.isoformat()}, before "
        f"start {node.incarnation} ({node.announced_at.isoformat()}), which is in force; if it runs, restart that agent"
    )


def _others_cards(said: Announcement, holders: Mapping[str, Holder]) -> str | None:
    for uuid, holder in sorted(holders.items()):
        if holder.phase is not NodePhase.LOST:
            return (
                f"node {said.facts.node} announces card {uuid}, which node {holder.node} ({holder.phase.value}) has: "
                f"stop the agent of {holder.node} and replay this once it is lost, or correct the declared cards"
            )
    return None


def _fresh(said: Announcement, observed_ms: int) -> Node:
    return Node(
        name=said.facts.node,
        phase=NodePhase.READY,
        incarnation=said.incarnation,
        announced_at=said.announced_at,
        stored_at=said.stored_at,
        seen_ms=observed_ms,
        heard_ms=observed_ms,
        attempts=said.attempts,
        stage=Stage.ANNOUNCED if said.facts.prechecks else Stage.READY,
        cards=len(said.facts.cards),
    )


def _checked_in_this_boot(node: Node, facts: NodeFacts | None, said: Announcement) -> bool:
    """Whether the node was at work already since the machine booted; then a new agent is no new beginning."""
    boot = said.facts.boot_id
    same = facts is not None and boot is not None and facts.boot_id == boot
    return same and node.stage is Stage.READY and node.phase is not NodePhase.LOST


def _to_come(said: Announcement) -> str:
    return f"; checks to come: {', '.join(said.facts.prechecks)}" if said.facts.prechecks else ""


def _restart(node: Node, said: Announcement, observed_ms: int) -> Node:
    """The node under its new agent start. The longest lease known stays: adopted attempts may still run on it.

    What was ordered of the node, and what is wrong with it, is not over because its agent started anew.
    """
    return replace(
        _fresh(said, observed_ms),
        lease_ms=node.lease_ms,
        rival=node.incarnation,
        standing=node.standing,
        order=node.order,
        faults=node.faults,
        acted_ms=node.acted_ms,
    )
