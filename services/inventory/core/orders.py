"""What follows from an operator's order about a node."""

from dataclasses import replace

from services.inventory.core.model import Cause, Move, Node, Refuse, Standing
from services.inventory.core.phases import retell

CORDON, DRAIN, UNCORDON, RETIRE = "cordon", "drain", "uncordon", "retire"

_STANDING = {
    CORDON: (Standing.CORDONED, Cause.CORDONED, "cordoned"),
    DRAIN: (Standing.DRAINING, Cause.DRAINED, "draining"),
    UNCORDON: (Standing.FREE, Cause.UNCORDONED, "uncordoned"),
    RETIRE: (Standing.RETIRING, Cause.RETIRED, "to be retired"),
}
_OUTWARD = (Standing.FREE, Standing.CORDONED, Standing.DRAINING, Standing.RETIRING, Standing.RETIRED)


def order(node: Node, name: str, reason: str, actor: str) -> Move | Refuse | None:
    """The move that carries out the order `name`; None when the node stands so already, or further out of the fleet.

    Only `uncordon` takes an order back: a cordon ends no drain, and neither ends a retirement.
    """
    standing, cause, verb = _STANDING[name]
    if node.standing is Standing.RETIRED and name in {CORDON, DRAIN}:
        return Refuse(f"node {node.name} is retired: uncordon it first if it is to come back")
    if node.standing is standing or (name != UNCORDON and _OUTWARD.index(node.standing) > _OUTWARD.index(standing)):
        return None
    words = f"{verb} by {actor}: {reason}"
    after = replace(node, standing=standing, order="" if standing is Standing.FREE else words)
    return retell(node, after, cause, words)
