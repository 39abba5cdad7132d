"""Whether a node's clock is right, told from the stamps of its heartbeats.

The difference between the time at which the stream stored a heartbeat and the time that the node stamped on it is the
skew of the node's clock and the delay of the way. The delay only ever adds, so the least difference of a window is
nearest to the skew: below zero the node's clock is ahead by that much at least; above what is allowed for the way it is
behind by the rest.
"""

from dataclasses import replace

from services.inventory.core.model import Cause, Fault, Move, Node, SkewRules
from services.inventory.core.phases import retell, with_faults

CODE = "clock_skew"


def without_way(difference_ms: int, round_trip_ms: int | None) -> int:
    """What of a difference is left when the way took as long as the round trip before; never made negative by it."""
    return difference_ms if difference_ms <= 0 else max(0, difference_ms - (round_trip_ms or 0))


def note_skew(node: Node, skew_ms: int, observed_ms: int, window_ms: int) -> Node:
    """`node` after one more difference. Two windows are kept, so that one is always whole."""
    if node.skew_low_ms is None:
        return replace(node, skew_ms=skew_ms, skew_low_ms=skew_ms, skew_before_ms=None, skew_from_ms=observed_ms)
    if observed_ms - node.skew_from_ms >= window_ms:
        return replace(
            node, skew_ms=skew_ms, skew_low_ms=skew_ms, skew_before_ms=node.skew_low_ms, skew_from_ms=observed_ms
        )
    return replace(node, skew_ms=skew_ms, skew_low_ms=min(node.skew_low_ms, skew_ms))


def skew(node: Node, rules: SkewRules) -> int | None:
    """How far the clock is ahead (above zero) or behind, in ms, at the least; None before a window is whole."""
    if node.skew_low_ms is None:
        return None
    least = min(node.skew_low_ms, node.skew_low_ms if node.skew_before_ms is None else node.skew_before_ms)
    if least < 0:
        return -least
    if node.skew_before_ms is None:
        return None
    return -max(0, least - rules.delay_ms)


def judge_skew(node: Node, observed_ms: int, rules: SkewRules) -> Move | None:
    """Quarantine a node whose clock is off by more than the bound; release it at half of that."""
    off_ms = skew(node, rules)
    fault = next((fault for fault in node.faults if fault.code == CODE), None)
    if off_ms is None:
        return None
    if fault is None and abs(off_ms) > rules.bound_ms:
        words = _words(off_ms, rules)
        found = Fault(CODE, None, words, whole_node=True)
        return retell(node, with_faults(node, (*node.faults, found), observed_ms), Cause.CLOCK_SKEW, words)
    if fault is not None and abs(off_ms) * 2 <= rules.bound_ms:
        others = tuple(fault for fault in node.faults if fault.code != CODE)
        return retell(node, with_faults(node, others, observed_ms), Cause.CLOCK_SKEW, "its clock is right again")
    return None


def _words(off_ms: int, rules: SkewRules) -> str:
    way = "ahead" if off_ms > 0 else f"behind, {rules.delay_ms / 1000:g} s of delay allowed for"
    return (
        f"clock is {abs(off_ms) / 1000:.3f} s {way} (bound {rules.bound_ms / 1000:g} s): "
        "start the node's time synchronisation"
    )
