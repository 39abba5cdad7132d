"""Whether what was learnt of a node is worth telling, and in what words."""

from services.inventory.core.model import Cause, Fault, Move, Node, Stage
from services.inventory.core.phases import retell

MAX_WORDS = 2000


def learnt(before: Node, after: Node, *, reassessed: bool) -> Move | None:
    """The move after a report; None when it says nothing new. A figure that moves within the same fault is no news."""
    was, now = _told_of(before), _told_of(after)
    if was == now and not reassessed:
        return None
    if was == now:
        return retell(before, after, Cause.REASSESSED, "its limits were assessed anew")
    cause = Cause.CHECKED if before.stage is not after.stage and before.faults == after.faults else Cause.REPORTED
    return retell(before, after, cause, "; ".join(_words(before, after))[:MAX_WORDS])


def _told_of(node: Node) -> tuple[Stage, frozenset[tuple[object, ...]]]:
    return node.stage, frozenset((fault.key, fault.remedy, fault.whole_node, fault.held) for fault in node.faults)


def _words(before: Node, after: Node) -> list[str]:
    words = [fault.words for fault in after.faults if not _among(fault, before)]
    words += [
        f"no more: {fault.words}" for fault in before.faults if not any(one.key == fault.key for one in after.faults)
    ]
    if before.stage is not after.stage:
        words.append("its checks before first work passed")
    return words or ["its faults are taken otherwise"]


def _among(fault: Fault, node: Node) -> bool:
    return any((one.key, one.remedy) == (fault.key, fault.remedy) for one in node.faults)
