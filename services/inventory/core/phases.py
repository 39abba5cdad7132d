"""What is told of a node: one phase made of liveness, orders and faults, and the event that a change is told by."""

from dataclasses import replace

from contracts.nodes import NodePhase
from services.inventory.core.model import Cause, Fault, Move, Node, NodeEvent, Stage, Standing

_STAGES = {
    Stage.ANNOUNCED: NodePhase.ANNOUNCED,
    Stage.CHECKED: NodePhase.CHECKED,
    Stage.READY: NodePhase.READY,
}
_LEAVING = {Standing.DRAINING, Standing.RETIRING}
MAX_WORDS = 2000


def told(node: Node) -> NodePhase:
    """The phase of a node. What says most about the work there comes first."""
    if node.standing is Standing.RETIRED:
        return NodePhase.RETIRED
    if node.phase is NodePhase.LOST:
        return NodePhase.LOST
    if quarantined(node):
        return NodePhase.QUARANTINED
    if node.phase is NodePhase.SUSPECT:
        return NodePhase.SUSPECT
    return NodePhase.DRAINING if node.standing in _LEAVING else _STAGES[node.stage]


def acting(node: Node) -> tuple[Fault, ...]:
    """The faults that have an effect."""
    return tuple(fault for fault in node.faults if not fault.held)


def bad_cards(node: Node) -> list[int]:
    """The cards on which nothing new may be placed."""
    return sorted({fault.card for fault in acting(node) if fault.card is not None})


def quarantined(node: Node) -> bool:
    """Whether a fault takes the whole node out of the pool: its own, or those of every card."""
    faults = acting(node)
    return any(fault.whole_node for fault in faults) or (node.cards > 0 and len(bad_cards(node)) >= node.cards)


def fault_words(node: Node) -> str:
    """All faults in one line; those without effect say so."""
    said = [f"{fault.words}{' (held by the breaker)' if fault.held else ''}" for fault in node.faults]
    return "; ".join(said)[:MAX_WORDS]


def retell(before: Node, after: Node, cause: Cause, words: str) -> Move:
    """The move from `before` to `after`: quarantined when more is out of the pool, released when less is."""
    out_before, out_after = ({fault.key for fault in acting(node)} for node in (before, after))
    if told(after) is NodePhase.LOST:
        event = NodeEvent.LOST
    elif out_after - out_before or (quarantined(after) and not quarantined(before)):
        event = NodeEvent.QUARANTINED
    elif out_before - out_after:
        event = NodeEvent.RELEASED
    elif told(after) is NodePhase.SUSPECT:
        event = NodeEvent.SUSPECT
    else:
        event = NodeEvent.GRADED
    return Move(after, event, cause, words)


def with_faults(node: Node, faults: tuple[Fault, ...], observed_ms: int) -> Node:
    """`node` with these faults; remembers when one took effect anew."""
    changed = replace(node, faults=tuple(sorted(faults, key=lambda fault: fault.key)))
    fresh = {fault.key for fault in acting(changed)} - {fault.key for fault in acting(node)}
    return replace(changed, acted_ms=observed_ms) if fresh else changed
