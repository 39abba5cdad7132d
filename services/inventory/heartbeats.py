"""Reading the heartbeat stream to its end.

In: the stream HEARTBEATS, by batches of direct gets, each starting behind the last message read. Out: this service's
own tick, and what came on every node's heartbeat subject since the last reading.

A consumer would not do. The stream keeps the newest message of each node only, and consumers are told of new messages
a moment after these are acknowledged; a consumer may report its end while the successor of a heartbeat that has just
been dropped is not yet known to it. A direct get reads the store itself: when it ends with nothing pending, every
message that was stored by then has been handed over, or its successor has. Each message names the one before it in the
batch, so a lost one is noticed. Whatever breaks on the way raises, and the next reading starts again where the
ledger's clock stands.
"""

import asyncio
import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias, cast

from nats.aio.msg import Msg

from contracts import registry
from contracts.deadletters import DeadReason
from contracts.nodes import NodeHeartbeat
from libs.bus import Client, Delivery, Event, Invalid
from libs.bus.codec import decode
from libs.bus.connection import server_of
from services.inventory.core.clock import start_sequence
from services.inventory.core.model import Clock, Tick

STREAM = registry.HEARTBEATS.name
TICK_SUBJECT = registry.NODES_TICK.subject(registry.NO_KEY)
READER = "inventory-nodes-heartbeat"
BATCH = 10_000
BATCH_BYTES = 32 * 1024 * 1024
MAX_BATCHES = 100
AT_A_STRETCH = 256
PENDING_MESSAGES = 4 * BATCH
PENDING_BYTES = 4 * BATCH_BYTES
ANSWER_TIMEOUT_S = 5.0
MAX_LEASE_S = 7 * 24 * 3600
MAX_ATTEMPTS = 2048

_SUBJECT = "Nats-Subject"
_SEQUENCE = "Nats-Sequence"
_STORED_AT = "Nats-Time-Stamp"
_PENDING = "Nats-Num-Pending"
_BEFORE = "Nats-Last-Sequence"
_ADDED = {"Nats-Stream", _SUBJECT, _SEQUENCE, _STORED_AT, _PENDING, _BEFORE}
_END_OF_BATCH = "204"
_NOTHING = "404"

Heard: TypeAlias = Event[NodeHeartbeat] | Invalid


class ReadingError(Exception):
    """The stream could not be read to its end this time; the next round tries again from where the clock stands."""


@dataclass(frozen=True)
class Mark:
    """A tick that has been published: its sequence in the stream and the readings of the own clock around it."""

    sequence: int
    sent_ms: int
    acked_ms: int


@dataclass(frozen=True)
class Reading:
    """Everything up to the stream's end: the own tick and what was heard, oldest first."""

    tick: Tick
    heard: list[Heard]


@dataclass(frozen=True)
class Stored:
    """One message as a direct get hands it over, without the headers that the server added."""

    subject: str
    sequence: int
    stored_at: datetime
    pending: int
    headers: dict[str, str]
    data: bytes


class Answers:
    """The answers to one request as they come; the one without a sequence is the last."""

    def __init__(self, inbox: str) -> None:
        self.inbox = inbox
        self._messages: list[Msg] = []
        self._complete = asyncio.Event()

    def take(self, message: Msg) -> None:
        """One has come, to this request or to one that was given up."""
        if message.subject == self.inbox:
            self._messages.append(message)
            if _SEQUENCE not in (message.headers or {}):
                self._complete.set()

    async def all(self) -> list[Msg]:
        """Every answer in order, the last one included. Raises TimeoutError when none comes any more."""
        while not self._complete.is_set():
            seen = len(self._messages)
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self._complete.wait()
            except TimeoutError:
                if len(self._messages) == seen:
                    raise
        return self._messages


class HeartbeatReader:
    """Reads on from reading to reading, on one life of the stream after another."""

    def __init__(self, client: Client) -> None:
        self._connection = client.connection
        self._js = client.js
        self._direct_get = f"{client.address.api}.DIRECT.GET.{STREAM}"
        self._life: str | None = None
        self._inbox = client.connection.new_inbox()
        self._listening = False
        self._answers = Answers("")
        self._requests = 0

    async def open(self) -> None:
        """Know which life of the stream is read. Raises NotFoundError when there is no stream."""
        if self._life is None:
            self._life = await self._life_now()

    def forget(self) -> None:
        """Ask again, at the next reading, which life of the stream it is."""
        self._life = None

    async def read(self, clock: Clock, mark: Mark) -> Reading:
        """Read from `clock` to the end of the stream, which holds the tick `mark`.

        Raises ReadingError, and nats-py's errors.
        """
        life = self._life
        assert life is not None, "open the reader before reading"
        tick: Tick | None = None
        heard: list[Heard] = []
        last = start_sequence(clock, life) - 1
        for place, message in enumerate(await self._to_the_end(last + 1)):
            if place % AT_A_STRETCH == 0:
                await asyncio.sleep(0)  # others, with the ledger locked, may wait for the loop
            last = message.sequence
            if message.subject != TICK_SUBJECT:
                heard.append(_decoded(message))
            elif message.sequence == mark.sequence:
                tick = Tick(life, last, message.stored_at, mark.sent_ms, mark.acked_ms)
        if tick is None:
            msg = f"own tick {mark.sequence} is not in stream {STREAM}, read to {last}: the stream was made anew, or "
            raise ReadingError(msg + "another inventory reads it under the same ledger")
        if await self._life_now() != life:
            msg = f"stream {STREAM} was made anew while it was read"
            raise ReadingError(msg)
        return Reading(replace(tick, read_sequence=last), heard)

    async def _life_now(self) -> str:
        """Tells one life of the stream from the next.

        The stream is not synced: a server that was killed may have lost what it acknowledged, so each run of it counts.
        """
        info = await self._js.stream_info(STREAM)
        assert info.created is not None, "JetStream tells when a stream was created"
        return f"{info.created.isoformat()} {server_of(self._connection)}"

    async def _to_the_end(self, start: int) -> list[Stored]:
        """Everything from sequence `start` on, until the server has nothing pending.

        Batches may be served by different replicas of the stream: one that has fewer messages pending than the batch
        before has left is behind the others and proves nothing.
        """
        found: list[Stored] = []
        pending = 0
        for _ in range(MAX_BATCHES):
            batch, left = await self._batch(start)
            if pending > 0 and (not batch or batch[0].pending + 1 < pending):
                msg = f"a replica of stream {STREAM} is behind: {pending} messages were pending from {start} on"
                raise ReadingError(msg)
            found += batch
            if left == 0:
                return found
            start, pending = batch[-1].sequence + 1, left
        msg = f"stream {STREAM} has {pending} messages behind {start - 1} after {MAX_BATCHES} batches"
        raise ReadingError(msg)

    async def _batch(self, start: int) -> tuple[list[Stored], int]:
        """Up to BATCH messages from sequence `start` on, and how many the server has left."""
        await self._listen()
        self._requests += 1
        answers = self._answers = Answers(f"{self._inbox}.{self._requests}")
        request = {"seq": start, "next_by_subj": ">", "batch": BATCH, "max_bytes": BATCH_BYTES}
        await self._connection.publish(self._direct_get, json.dumps(request).encode(), reply=answers.inbox)
        batch: list[Stored] = []
        for message in await answers.all():
            headers = message.headers or {}
            before = headers.get(_BEFORE)
            if batch and before != str(batch[-1].sequence):
                msg = f"what followed message {batch[-1].sequence} of stream {STREAM} got lost on the way"
                raise ReadingError(msg)
            if _SEQUENCE not in headers:
                return batch, _pending_after(headers)
            batch.append(_stored(message, headers))
        raise AssertionError(answers.inbox)

    async def _listen(self) -> None:
        if self._listening:
            return
        untyped = cast("Any", self._connection)  # its `future` parameter has no type
        limits = {"pending_msgs_limit": PENDING_MESSAGES, "pending_bytes_limit": PENDING_BYTES}
        await untyped.subscribe(f"{self._inbox}.*", cb=self._arrived, **limits)
        self._listening = True

    async def _arrived(self, message: Msg) -> None:
        self._answers.take(message)


def _pending_after(headers: dict[str, str]) -> int:
    """What a batch's last answer says is left."""
    status = headers.get("Status")
    if status == _NOTHING:
        return 0
    if status == _END_OF_BATCH and headers.get(_PENDING, "").isdigit():
        return int(headers[_PENDING])
    msg = f"stream {STREAM} cannot be read: the server answers {headers}"
    raise ReadingError(msg)


def _stored(message: Msg, headers: dict[str, str]) -> Stored:
    return Stored(
        subject=headers[_SUBJECT],
        sequence=int(headers[_SEQUENCE]),
        stored_at=datetime.fromisoformat(headers[_STORED_AT]),
        pending=int(headers[_PENDING]),
        headers={name: value for name, value in headers.items() if name not in _ADDED},
        data=message.data,
    )


def _decoded(stored: Stored) -> Heard:
    at = Delivery(STREAM, READER, stored.sequence, 1, stored.stored_at)
    heard = decode(
        registry.NODES_HEARTBEAT, stored.subject, stored.headers, stored.data, received_at=stored.stored_at, delivery=at
    )
    if isinstance(heard, Invalid):
        return heard
    fault = _absurd(heard.body)
    if fault is None:
        return heard
    return Invalid(
        key=heard.key,
        id=heard.id,
        source=heard.source,
        subject=stored.subject,
        headers=stored.headers,
        data=stored.data,
        reason=DeadReason.REFUSED,
        detail=fault,
        delivery=at,
    )


def _absurd(body: NodeHeartbeat) -> str | None:
    """Words for a heartbeat that keeps to the schema and still cannot be meant."""
    if body.lease_s > MAX_LEASE_S:
        return f"lease_s is {body.lease_s}, the most is {MAX_LEASE_S}: correct the agent's FARSIDE_LEASE_S"
    if len(body.attempts) > MAX_ATTEMPTS:
        return f"{len(body.attempts)} attempts on one node, the most is {MAX_ATTEMPTS}"
    return None
