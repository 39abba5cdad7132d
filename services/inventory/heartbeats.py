"""Reading the heartbeat stream to its end.

In: the stream HEARTBEATS, by an ephemeral consumer that keeps order and needs no acks. Out: this service's own tick,
and what came on every node's heartbeat subject since the last reading. A reading ends when the server says that
nothing is left, after the tick has been seen; whatever breaks on the way (connection, consumer, stream) raises, and the
next reading starts with a new consumer where the ledger's clock stands.
"""

import json
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from contracts import registry
from contracts.deadletters import DeadReason
from contracts.nodes import NodeHeartbeat
from libs.bus import Client, Delivery, Event, Invalid
from libs.bus.codec import decode
from services.inventory.core.clock import start_sequence
from services.inventory.core.model import Clock, Tick

STREAM = registry.HEARTBEATS.name
TICK_SUBJECT = registry.NODES_TICK.subject(registry.NO_KEY)
BATCH = 1000
MAX_BATCHES = 1000
ANSWER_TIMEOUT_S = 5.0
INACTIVE_THRESHOLD_S = 30.0
NO_MESSAGES = "404"
MAX_LEASE_S = 7 * 24 * 3600
MAX_ATTEMPTS = 2048

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


@dataclass
class _Consumer:
    """An ephemeral consumer on one life of the stream, and how far it has been read."""

    name: str
    stream: str
    next_sequence: int
    delivered: int
    inbox: str
    subscription: Subscription
    pulls: int = 0


class HeartbeatReader:
    """Reads on from reading to reading. `reader` names this process in the names of its consumers."""

    def __init__(self, client: Client, reader: str, domain: str | None) -> None:
        self._connection = client.connection
        self._js = client.js
        self._api = f"$JS.{domain}.API" if domain else "$JS.API"
        self._reader = reader
        self._opened = 0
        self._consumer: _Consumer | None = None

    async def open(self, clock: Clock) -> None:
        """Be ready to read on from `clock`. Raises nats-py's errors, NotFoundError when there is no stream."""
        held = self._consumer
        if held is not None and held.next_sequence == start_sequence(clock, held.stream):
            return
        await self.reset()
        stream = await self._life()
        self._opened += 1
        name = f"inventory-{self._reader}-{self._opened}"
        start = start_sequence(clock, stream)
        config = ConsumerConfig(
            name=name,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=INACTIVE_THRESHOLD_S,
            mem_storage=True,
        )
        await cast("Any", self._js).add_consumer(STREAM, config)  # its further parameters have no types
        if await self._life() != stream:
            msg = f"stream {STREAM} was made anew while consumer {name} was added to it"
            raise ReadingError(msg)
        inbox = self._connection.new_inbox()
        subscription = await cast("Any", self._connection).subscribe(f"{inbox}.*")  # as above
        self._consumer = _Consumer(name, stream, start, 0, inbox, subscription)

    async def reset(self) -> None:
        """Forget the consumer; the server drops it once it has been idle for INACTIVE_THRESHOLD_S."""
        held, self._consumer = self._consumer, None
        if held is not None and self._connection.is_connected:
            await held.subscription.unsubscribe()

    async def _life(self) -> str:
        """Tells one life of the stream from the next."""
        info = await self._js.stream_info(STREAM)
        assert info.created is not None, "JetStream tells when a stream was created"
        return info.created.isoformat()

    async def read(self, mark: Mark) -> Reading:
        """Read to the end of the stream, which holds the tick `mark`. Raises ReadingError, and nats-py's errors."""
        consumer = self._consumer
        assert consumer is not None, "open the reader before reading"
        tick: Tick | None = None
        heard: list[Heard] = []
        for _ in range(MAX_BATCHES):
            messages, ended = await self._pull(consumer)
            for message in messages:
                at = _follow(consumer, message)
                if message.subject != TICK_SUBJECT:
                    heard.append(_decoded(message, at))
                elif at.stream_sequence == mark.sequence:
                    tick = Tick(consumer.stream, 0, at.stored_at, mark.sent_ms, mark.acked_ms)
            if ended and tick is not None:
                last = consumer.next_sequence - 1
                return Reading(Tick(tick.stream, last, tick.stored_at, tick.sent_ms, tick.acked_ms), heard)
            if ended:
                break
        msg = f"own tick {mark.sequence} is not in stream {STREAM}, read to {consumer.next_sequence - 1}: "
        raise ReadingError(msg + "it was made anew, or another inventory reads it under the same ledger")

    async def _pull(self, consumer: _Consumer) -> tuple[list[Msg], bool]:
        """Up to BATCH messages, and whether the server had no more at that moment."""
        consumer.pulls += 1
        inbox = f"{consumer.inbox}.{consumer.pulls}"
        request = json.dumps({"batch": BATCH, "no_wait": True}).encode()
        await self._connection.publish(f"{self._api}.CONSUMER.MSG.NEXT.{STREAM}.{consumer.name}", request, reply=inbox)
        messages: list[Msg] = []
        while len(messages) < BATCH:
            message = await consumer.subscription.next_msg(timeout=ANSWER_TIMEOUT_S)
            status = _status(message)
            if status is None:
                messages.append(message)
            elif message.subject == inbox:
                if status == NO_MESSAGES:
                    return messages, True
                msg = f"consumer {consumer.name} of stream {STREAM} answers {status}: it is gone"
                raise ReadingError(msg)
        return messages, False


def _status(message: Msg) -> str | None:
    """The status of an answer that is no message; messages of a stream always have a reply subject."""
    if message.reply:
        return None
    return (message.headers or {}).get("Status", "unknown")


def _follow(consumer: _Consumer, message: Msg) -> Delivery:
    """Note how far the consumer is; a delivery that got lost on the way leaves a hole in its count."""
    meta = message.metadata
    delivered = meta.sequence.consumer
    if delivered != consumer.delivered + 1:
        msg = f"consumer {consumer.name} delivered number {delivered} after {consumer.delivered}: some got lost"
        raise ReadingError(msg)
    consumer.delivered = delivered
    consumer.next_sequence = meta.sequence.stream + 1
    return Delivery(STREAM, consumer.name, meta.sequence.stream, meta.num_delivered, meta.timestamp)


def _decoded(message: Msg, at: Delivery) -> Heard:
    heard = decode(
        registry.NODES_HEARTBEAT,
        message.subject,
        message.headers or {},
        message.data,
        received_at=at.stored_at,
        delivery=at,
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
        subject=message.subject,
        headers=dict(message.headers or {}),
        data=message.data,
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
