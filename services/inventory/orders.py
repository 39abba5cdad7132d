"""An operator's orders: cordon, drain, uncordon, retire, check."""

from contracts.nodes import NodeOrder
from libs.bus import Event, Refused, Tx
from libs.db import Connection


async def ordered(tx: Tx[Connection], event: Event[NodeOrder]) -> None:
    """Refuse until orders are kept."""
    del tx
    msg = f"nodes.{event.message.name} of node {event.key} cannot be carried out by this release"
    raise Refused(msg)
