"""Dead letters: finding them, and sending one again to the consumer that gave up on it and to no other."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from contracts import registry
from contracts.deadletters import DeadLetter
from libs.bus.client import PUBLISH_TIMEOUT_S, Client, PubAck
from libs.bus.codec import MSG_ID
from libs.bus.errors import BusError
from libs.bus.events import Event
from libs.bus.work import SUBJECT_HEADER
from libs.kit.ids import new_id

MIN_PREFIX_CHARS = 4


@dataclass(frozen=True)
class Buried:
    """One dead letter, its id and when it was buried."""

    id: str
    letter: DeadLetter
    at: datetime


async def find_all(client: Client, *, consumer: str = "*", limit: int = 1000) -> list[Buried]:
    """The newest `limit` dead letters of one consumer (or of all), oldest first."""
    events = await client.history([registry.DEADLETTERED], key=consumer, limit=limit)
    return [_buried(event) for event in events]


async def find(client: Client, id_prefix: str) -> Buried:
    """The dead letter whose id begins so. Raises BusError when there is none, or more than one."""
    if len(id_prefix) < MIN_PREFIX_CHARS:
        msg = f"{id_prefix!r} is too short: give at least {MIN_PREFIX_CHARS} characters of the dead letter's id"
        raise BusError(msg)
    found = {buried.id: buried for buried in await find_all(client) if buried.id.startswith(id_prefix)}
    if len(found) != 1:
        what = "no dead letter has" if not found else f"{len(found)} dead letters have"
        msg = f"{what} an id that begins with {id_prefix!r}: `farside deadletter list` shows them"
        raise BusError(msg)
    return next(iter(found.values()))


async def replay(client: Client, buried: Buried) -> PubAck:
    """Send the original message again, to the consumer that failed only. Its inbox still takes it once."""
    letter = buried.letter
    headers = {name: value for name, value in letter.headers.items() if not name.lower().startswith("nats-")}
    headers |= {SUBJECT_HEADER: letter.subject, MSG_ID: new_id()}
    ack: Any = await client.js.publish(
        registry.replay_subject(letter.consumer),
        letter.data,
        timeout=PUBLISH_TIMEOUT_S,
        stream=registry.REPLAYS.name,
        headers=dict(headers),
    )
    return PubAck(ack.stream, ack.seq, bool(ack.duplicate))


def _buried(event: Event[Any]) -> Buried:
    letter: DeadLetter = event.body
    return Buried(event.id, letter, event.time)
