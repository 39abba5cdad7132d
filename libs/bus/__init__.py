"""The bus: the only way in and out of a service. See docs/bus.md for what it promises.

from libs.bus import App, Client, Event, PgLedger, Refused, Tx
"""

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
from libs.bus.ledger_pg import PgLedger
from libs.bus.ledger_sqlite import SqliteLedger
from libs.bus.work import Policy, actor_of

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
