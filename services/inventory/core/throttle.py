"""The breaker of quarantines, for many nodes found faulty together.

That is more often one wrong measure than as many dead machines. It opens when more than a share of the fleet, and
more than one node, has had a fault take effect within a window. From then on new faults are kept without effect until
an operator resets it. Nothing closes it by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from services.inventory.core.model import (
    BreakerRules,
    FaultCensus,
    Move,
    Node,
    OpenFaultBreaker,
    Stage,
)
from services.inventory.core.phases import acting, retell, with_faults


def throttle(
    moves: Sequence[tuple[Node, Move]],
    census: FaultCensus,
    *,
    observed_ms: int,
    breaker_open: bool,
    rules: BreakerRules,
) -> Iterator[Move | OpenFaultBreaker]:
    """The moves (each beside the node as it was), with what the breaker holds; and its opening, if it opens."""
    lately, since_ms = census.lately, observed_ms - rules.window_ms
    for before, move in moves:
        if not _worse(before, move.node):
            yield move
            continue
        if before.stage is Stage.ANNOUNCED:  # it is not in the pool yet, so nothing leaves it
            yield replace(move, node=replace(move.node, acted_ms=before.acted_ms))
            continue
        counted = before.acted_ms is not None and before.acted_ms > since_ms
        lately += not counted
        words = f"{lately} of {census.fleet} nodes found faulty, breaker at more than {rules.share:.0%}"
        if not breaker_open and lately > 1 and lately > rules.share * census.fleet:
            breaker_open = True
            yield OpenFaultBreaker(words)
        if breaker_open:
            lately -= not counted
            yield _held(before, move, words)
        else:
            yield move


def _worse(before: Node, after: Node) -> bool:
    known = {fault.key for fault in acting(before)}
    return any(fault.key not in known for fault in acting(after))


def _held(before: Node, move: Move, words: str) -> Move:
    known = {fault.key for fault in acting(before)}
    faults = tuple(fault if fault.key in known else replace(fault, held=True) for fault in move.node.faults)
    after = with_faults(replace(move.node, acted_ms=before.acted_ms), faults, 0)
    return retell(before, replace(after, acted_ms=before.acted_ms), move.cause, f"{move.reason}; held: {words}")


def forgive(node: Node) -> Node:
    """`node` without what the breaker holds."""
    return replace(node, faults=acting(node))


def enforce(node: Node, observed_ms: int) -> Node:
    """`node` with what the breaker holds taking effect. `acted_ms` stays: the operator has looked at these."""
    faults = tuple(replace(fault, held=False) for fault in node.faults)
    return replace(with_faults(node, faults, observed_ms), acted_ms=node.acted_ms)
