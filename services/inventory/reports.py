"""What agents report of their nodes' health."""

from collections.abc import Sequence

from contracts.health import NodeReported
from libs.bus import Event, Tx
from libs.db import Connection


async def reported(tx: Tx[Connection], events: Sequence[Event[NodeReported]]) -> None:
    """Reports are newest only: those of today are told again by those to come."""
    del tx, events
