"""An operator's orders about nodes: cordon, drain, uncordon, retire, and check what was mended."""

from contracts import registry
from contracts.nodes import NodeOrder
from libs.bus import Event, Refused, Tx
from libs.db import Connection
from services.inventory import store, store_health
from services.inventory.core.health import Memory, mended
from services.inventory.core.model import Cause, Clock, Move, Node, Refuse
from services.inventory.core.orders import order
from services.inventory.core.phases import retell
from services.inventory.effects import Effects

OPERATOR = "operator"
ORDERS = (
    registry.NODES_CORDON,
    registry.NODES_DRAIN,
    registry.NODES_UNCORDON,
    registry.NODES_RETIRE,
    registry.NODES_CHECK,
)


class Orders:
    """Carries out orders, or refuses them."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    async def ordered(self, tx: Tx[Connection], event: Event[NodeOrder]) -> None:
        """Carry out one order; one that changes nothing tells nothing."""
        clock = await store.lock_clock(tx.conn)
        actor, name, reason = event.actor or OPERATOR, event.key, event.body.reason
        assert event.delivery is not None, "orders come from a stream"
        at = event.delivery.stored_at
        node = (await store.some_nodes(tx.conn, [name])).get(name)
        if node is None:
            msg = f"no agent has announced node {name}, so there is nothing to {event.message.name}"
            raise Refused(msg)
        if event.message is registry.NODES_CHECK:
            move = await self._check(tx, node, clock, f"mended, says {actor}: {reason}")
        else:
            found = order(node, event.message.name, reason, actor)
            if isinstance(found, Refuse):
                raise Refused(found.reason)
            move = found
        if move is not None:
            await self._effects.run_moves(tx, [move], at=at, actor=actor)

    async def _check(self, tx: Tx[Connection], node: Node, clock: Clock, words: str) -> Move | None:
        """Set aside what is held against a node; its next report decides."""
        kept = (await store_health.some(tx.conn, [node.name])).get(node.name)
        examined = mended(node, Memory() if kept is None else kept.memory, clock.observed_ms)
        if kept is not None:
            left = (node.name, examined.memory, kept.link_mbps, kept.card_power_w)
            await store_health.remember(tx.conn, [left])
        return None if examined.node == node else retell(node, examined.node, Cause.MENDED, words)
