"""The breaker: when a large share of the fleet falls silent together, lost nodes are told with requeueing held.

Many nodes silent at once is more often a cut link or a failed room than as many dead machines. Their leases end all the
same, so nothing runs twice; what the breaker holds back is the wave of restarts on the nodes that are left. It closes
by itself when so many nodes are back that the share is no longer exceeded, or by hand.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from contracts.nodes import NodePhase
from services.inventory.core.model import (
    BreakerRules,
    Census,
    CloseBreaker,
    Move,
    Node,
    NodeEvent,
    OpenBreaker,
    TickEffect,
)


def judge_breaker(
    moves: Sequence[tuple[Node, Move]],
    census: Census,
    *,
    observed_ms: int,
    breaker_open: bool,
    rules: BreakerRules,
) -> Iterator[TickEffect]:
    """The moves (each beside the node as it was) with the hold put on the losses, and the breaker's own change."""
    after = _after(moves, census, observed_ms - rules.window_ms)
    silent = after.suspect + after.lost_lately
    fleet = after.ready + silent
    exceeded = silent > 1 and silent > rules.share * fleet
    losses = any(move.event is NodeEvent.LOST for _, move in moves)
    words = f"{silent} of {fleet} nodes silent, breaker at more than {rules.share:.0%}"
    if losses and exceeded and not breaker_open:
        yield OpenBreaker(words)
    for _, move in moves:
        yield _hold(move, words) if exceeded and move.event is NodeEvent.LOST else move
    if breaker_open and not exceeded:
        yield CloseBreaker(words)


def _after(moves: Sequence[tuple[Node, Move]], census: Census, since_ms: int) -> Census:
    left = Counter(node.phase for node, _ in moves if counted(node, since_ms))
    came = Counter(move.node.phase for _, move in moves)
    return Census(
        ready=census.ready - left[NodePhase.READY] + came[NodePhase.READY],
        suspect=census.suspect - left[NodePhase.SUSPECT] + came[NodePhase.SUSPECT],
        lost_lately=census.lost_lately - left[NodePhase.LOST] + came[NodePhase.LOST],
    )


def counted(node: Node, since_ms: int) -> bool:
    """Whether a node belongs to the fleet that the breaker's share is taken of: long-lost nodes do not."""
    lately = node.lost_ms is not None and node.lost_ms > since_ms
    return node.phase is not NodePhase.LOST or node.requeue_held or lately


def _hold(move: Move, words: str) -> Move:
    return replace(move, node=replace(move.node, requeue_held=True), reason=f"{move.reason}; requeueing held: {words}")
