"""What is said of heartbeats that cannot be taken: now and then a dead letter, not one every few seconds."""

from base64 import b64encode
from datetime import datetime
from uuid import UUID, uuid5

from contracts import registry
from contracts.base import MAX_BODY_BYTES
from contracts.deadletters import DeadLetter
from libs.bus import Invalid, Tx
from libs.db import Connection
from services.inventory.heartbeats import READER

EVERY_MS = 600_000
MAX_KEYS = 65_536  # far above the nodes of a fleet: with fewer keys than nodes, every one would be said with every beat
MAX_TEXT_CHARS = 4000
_IDS = UUID("4b0bb9c3-58a2-5c0e-9d57-3f8a3c3f1a2b")


class Pace:
    """Says whether it is time to say something again of a key; knows MAX_KEYS keys, the longest unused goes first."""

    def __init__(self, every_ms: int = EVERY_MS) -> None:
        self._every_ms = every_ms
        self._said: dict[str, int] = {}

    def due(self, key: str, observed_ms: int) -> bool:
        """True once in `every_ms` of observed time for each key."""
        said = self._said.get(key)
        if said is not None and observed_ms - said < self._every_ms:
            return False
        self._said.pop(key, None)
        while len(self._said) >= MAX_KEYS:
            del self._said[next(iter(self._said))]
        self._said[key] = observed_ms
        return True


def bury(tx: Tx[Connection], invalid: Invalid, at: datetime) -> None:
    """Emit the dead letter of a heartbeat."""
    delivery = invalid.delivery
    assert delivery is not None, "heartbeats come from a stream"
    body = DeadLetter(
        consumer=READER,
        reason=invalid.reason,
        message=invalid.detail[:MAX_TEXT_CHARS],
        subject=invalid.subject,
        headers=dict(invalid.headers),
        data=b64encode(invalid.data[:MAX_BODY_BYTES]),
        stream=delivery.stream,
        stream_sequence=delivery.stream_sequence,
        deliveries=delivery.deliveries,
        died_at=at,
    )
    tx.emit(
        registry.DEADLETTERED,
        body,
        key=READER,
        subject=READER,
        sequence=delivery.stream_sequence,
        actor=registry.INVENTORY,
        id=str(uuid5(_IDS, f"{delivery.stream}/{delivery.stream_sequence}/{delivery.stored_at.isoformat()}")),
    )
