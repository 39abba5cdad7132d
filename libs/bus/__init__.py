"""The bus: the only way in and out of a service. See docs/bus.md for what it promises.

from libs.bus import App, Client, Event, PgLedger, Refused, Tx
"""

from typing import TYPE_CHECKING

from libs.bus.app import App
from libs.bus.client import Client, PubAck
from libs.bus.errors import (
    BusError,
    ConnectionClosed,
    Nested,
    NotLeader,
    NotProvisioned,
    NotYet,
    Problem,
    Refused,
    TooLarge,
)
from libs.bus.events import Call, Delivery, Event, Invalid
from libs.bus.ledger import Ledger, OutboxCounts, Tx
from libs.bus.ledger_sqlite import SqliteLedger
from libs.bus.work import Policy, actor_of

if TYPE_CHECKING:
    from libs.bus.ledger_pg import PgLedger

__all__ = [
    "App",
    "BusError",
    "Call",
    "Client",
    "ConnectionClosed",
    "Delivery",
    "Event",
    "Invalid",
    "Ledger",
    "Nested",
    "NotLeader",
    "NotProvisioned",
    "NotYet",
    "OutboxCounts",
    "PgLedger",
    "Policy",
    "Problem",
    "PubAck",
    "Refused",
    "SqliteLedger",
    "TooLarge",
    "Tx",
    "actor_of",
]


def __getattr__(name: str) -> object:
    """PgLedger once it is asked for: an agent has no PostgreSQL, and its image no driver of one."""
    if name == "PgLedger":
        from libs.bus.ledger_pg import PgLedger as Found  # noqa: PLC0415 - as said

        return Found
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
