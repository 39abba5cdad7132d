"""What becomes of a message: the four outcomes.

In: a delivered message and its route. Out: the handler's effect and an ack, or one of
- duplicate: ack, nothing else;
- invalid or refused: a dead letter with the reason (or the sender told by `on_invalid`), then ack;
- transient: the store is away, so the message is held here, kept alive at the server, until the store is back; no nak;
- early: what it needs was not told yet, so nak with a growing delay; after `max_early` deliveries it is refused;
- failure: counted, nak with a growing delay; after `max_failures` a dead letter, then ack.
"""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid5

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from contracts import registry
from contracts.base import MAX_BODY_BYTES, Model
from contracts.deadletters import DeadLetter, DeadReason
from contracts.registry import Message
from libs.bus import tracing
from libs.bus.codec import decode
from libs.bus.errors import NotLeader, NotYet, Refused
from libs.bus.events import Delivery, Event, Invalid
from libs.bus.gate import Gate, Health
from libs.bus.ledger import Ledger, Tx
from libs.bus.tracing import Outcome
from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from libs.kit.retry import delay
from libs.telemetry import spans

C = TypeVar("C")
T = TypeVar("T")

DEAD_LETTERS = UUID("6f1d3b1c-9a55-5c3e-8a63-0f0b6a3f7d10")
SUBJECT_HEADER = "farside-subject"
KEPT_BYTES = 256 * 1024
MAX_TEXT_CHARS = 4000
IN_PLACE_RETRIES = 3
STANDBY_S = 5.0


@dataclass(frozen=True)
class Policy:
    """How often a failing message is tried and one that came early (some six minutes), and what a handler may take."""

    max_failures: int = 8
    max_early: int = 20
    first_delay_s: float = 0.25
    delay_cap_s: float = 30.0
    handler_timeout_s: float = 120.0


@dataclass(frozen=True)
class Route(Generic[C]):
    """One durable and the handler of its messages."""

    message: Message[Any]
    durable: str
    handler: Callable[[Tx[C], Any], Awaitable[None]]
    batch: int = 1
    ack_wait_s: float = 30.0
    on_invalid: Callable[[Tx[C], Invalid], Awaitable[bool]] | None = None


@dataclass(frozen=True)
class Desk(Generic[C]):
    """What all routes of an App share. `slots` bounds the transactions at once, so that the pool never runs dry."""

    ledger: Ledger[C]
    gate: Gate
    health: Health
    policy: Policy
    clock: Clock
    slots: asyncio.Semaphore


def delivery_of(message: Msg) -> Delivery:
    """Where a JetStream message stands."""
    meta = message.metadata
    return Delivery(
        stream=meta.stream,
        consumer=meta.consumer,
        stream_sequence=meta.sequence.stream,
        deliveries=meta.num_delivered,
        stored_at=meta.timestamp,
    )


def original_subject(message: Msg) -> str:
    """The subject a message was first sent to: a replay carries it in a header."""
    if message.subject.startswith(registry.replay_subject("")):
        return (message.headers or {}).get(SUBJECT_HEADER, message.subject)
    return message.subject


def read(route: Route[Any], message: Msg) -> Event[Any] | Invalid:
    """Decode a delivered message as the route's."""
    delivery = delivery_of(message)
    return decode(
        route.message,
        original_subject(message),
        message.headers or {},
        message.data,
        received_at=delivery.stored_at,
        delivery=delivery,
    )


def dead_letter_id(durable: str, delivery: Delivery) -> str:
    """The same for every try to bury the same message."""
    return str(uuid5(DEAD_LETTERS, f"{durable}/{delivery.stream}/{delivery.stream_sequence}"))


class Work(Generic[C]):
    """Brings one message after another to its outcome; see the module."""

    def __init__(self, desk: Desk[C]) -> None:
        self._desk = desk

    async def one(self, route: Route[C], message: Msg, call: Callable[[Tx[C], Any], Awaitable[None]]) -> None:
        """Bring one message to its outcome. `call` runs the route's handler."""
        decoded = read(route, message)
        if isinstance(decoded, Event):
            tracing.about(route.message.key, decoded.key, decoded.body)
        await self._settle(route, message, lambda: self._single(route, message, decoded, call))

    async def many(self, route: Route[C], messages: list[Msg], call: Callable[[Tx[C], Any], Awaitable[None]]) -> None:
        """Bring a batch to its outcome; one that fails is halved until the message at fault stands alone."""
        good: list[tuple[Msg, Event[Any]]] = []
        for message in messages:
            decoded = read(route, message)
            if isinstance(decoded, Invalid):
                with tracing.processing(route.message.template, route.durable, message):
                    await self._settle(route, message, lambda m=message, d=decoded: self._single(route, m, d, call))
            else:
                good.append((message, decoded))
        stack = [good] if good else []
        while stack:
            part = stack.pop()
            if await self._part(route, part, call):
                continue
            middle = len(part) // 2
            stack += [part[middle:], part[:middle]]

    async def _part(
        self,
        route: Route[C],
        part: list[tuple[Msg, Event[Any]]],
        call: Callable[[Tx[C], Any], Awaitable[None]],
    ) -> bool:
        """Handle a part of a batch in one transaction; False when it must be halved."""

        async def run() -> Outcome:
            async with self._timed(), self._desk.ledger.transaction() as tx:
                await call(tx, [event for _, event in part])
            return Outcome.DONE

        if len(part) == 1:
            await self._alone(route, *part[0], run)
            return True
        match await self._try(run):
            case Outcome() as outcome:
                for message, _ in part:
                    await self._ack(message)
            case NotLeader():
                outcome = Outcome.REDELIVERED
                for message, _ in part:
                    await self._nak(message, 0.0)
            case error:
                get_logger().warning("bus.batch_halved", consumer=route.durable, size=len(part), error=repr(error))
                return False
        tracing.outcome(route.message.template, route.durable, outcome, len(part))
        return True

    async def _alone(
        self, route: Route[C], message: Msg, event: Event[Any], run: Callable[[], Awaitable[Outcome]]
    ) -> None:
        """Bring the only message of a part of a batch to its outcome, in the trace of that message."""
        with tracing.processing(route.message.template, route.durable, message):
            tracing.about(route.message.key, event.key, event.body)
            await self._settle(route, message, run)

    async def _single(
        self,
        route: Route[C],
        message: Msg,
        decoded: Event[Any] | Invalid,
        call: Callable[[Tx[C], Any], Awaitable[None]],
    ) -> Outcome:
        """One transaction for one message: inbox, effect, outbox."""
        ledger, outcome = self._desk.ledger, Outcome.DONE
        async with self._timed(), ledger.transaction() as tx:
            if isinstance(decoded, Invalid):
                await self._refuse(tx, route, message, decoded)
                outcome = Outcome.INVALID
            elif route.batch > 1:
                await call(tx, [decoded])
            elif await ledger.claim(tx, route.durable, decoded.key, decoded.source, decoded.id):
                await call(tx, decoded)
            else:
                outcome = Outcome.DUPLICATE
            delivery = delivery_of(message)
            if delivery.deliveries > 1:
                await ledger.forget_failure(tx, route.durable, delivery.stream, delivery.stream_sequence)
        return outcome

    async def _refuse(self, tx: Tx[C], route: Route[C], message: Msg, invalid: Invalid) -> None:
        delivery = delivery_of(message)
        mark = (f"invalid/{delivery.stream}", str(delivery.stream_sequence))
        if not await self._desk.ledger.claim(tx, route.durable, invalid.key, *mark):
            return
        get_logger().warning(
            "bus.invalid", consumer=route.durable, subject=invalid.subject, reason=invalid.reason, detail=invalid.detail
        )
        told = route.on_invalid is not None and await route.on_invalid(tx, invalid)
        if not told:
            self._bury(tx, route, message, invalid.reason, invalid.detail)
            tracing.buried(route.durable, invalid.reason)

    def _timed(self) -> asyncio.Timeout:
        return asyncio.timeout(self._desk.policy.handler_timeout_s)

    async def _settle(self, route: Route[C], message: Msg, run: Callable[[], Awaitable[Outcome]]) -> None:
        """Run one message's transaction and give the message its outcome."""
        match await self._try(run):
            case Outcome() as outcome:
                await self._ack(message)
            case NotLeader():
                outcome = Outcome.REDELIVERED
                await self._nak(message, 0.0)
            case Refused() as error:
                outcome = Outcome.REFUSED
                await self._finish(route, message, DeadReason.REFUSED, str(error))
            case NotYet() as error:
                outcome = await self._put_off(route, message, error)
            case error:
                outcome = Outcome.FAILED
                spans.failed(error)
                await self._failed(route, message, error)
        tracing.outcome(route.message.template, route.durable, outcome)

    async def _try(self, run: Callable[[], Awaitable[T]]) -> T | Exception:
        """Run a transaction, holding on while the store is away; what it returns, or the error to act on."""
        retries = 0
        while True:
            try:
                async with self._desk.slots:
                    return await run()
            except NotLeader as error:
                if not await self._held():
                    return error
            except Exception as error:  # noqa: BLE001 - a handler may raise anything; the outcome is decided by the caller
                if not await self._desk.health.alive():
                    if not await self._held():
                        return NotLeader("another process leads")
                elif not self._desk.ledger.is_transient(error) or retries >= IN_PLACE_RETRIES:
                    return error
                else:
                    retries += 1
                    await asyncio.sleep(delay(retries, 0.01, 1.0))

    async def _held(self) -> bool:
        """Wait for the gate; False when the store is there but another process leads."""
        gate = self._desk.gate
        while not await gate.opens_within(STANDBY_S):
            if not gate.down:
                return False
        return True

    async def _failed(self, route: Route[C], message: Msg, error: Exception) -> None:
        """Count a failure; nak, or bury after too many."""
        delivery, policy = delivery_of(message), self._desk.policy
        text = f"{type(error).__name__}: {error}"[:MAX_TEXT_CHARS]
        try:
            failures = await self._desk.ledger.count_failure(
                route.durable, delivery.stream, delivery.stream_sequence, text
            )
        except Exception as again:  # noqa: BLE001 - the count can wait, the message comes back
            get_logger().error("bus.count_failed", consumer=route.durable, error=repr(again))
            await self._nak(message, policy.first_delay_s)
            return
        get_logger().error(
            "bus.handler_failed",
            consumer=route.durable,
            subject=message.subject,
            stream=delivery.stream,
            sequence=delivery.stream_sequence,
            failures=failures,
            error=text,
            exc_info=error,
        )
        if failures >= policy.max_failures:
            await self._finish(route, message, DeadReason.HANDLER_FAILED, text)
        else:
            await self._nak(message, delay(failures - 1, policy.first_delay_s, policy.delay_cap_s))

    async def _put_off(self, route: Route[C], message: Msg, error: NotYet) -> Outcome:
        """Hand back what came early, not counted as a failure; refuse what has come too often."""
        policy, deliveries = self._desk.policy, max(1, delivery_of(message).deliveries)
        if deliveries >= policy.max_early:
            await self._finish(route, message, DeadReason.REFUSED, f"{error} (it came {deliveries} times)")
            return Outcome.REFUSED
        await self._nak(message, delay(deliveries - 1, policy.first_delay_s, policy.delay_cap_s))
        return Outcome.REDELIVERED

    async def _finish(self, route: Route[C], message: Msg, reason: DeadReason, text: str) -> None:
        """Bury a message in a transaction of its own, then ack."""
        delivery = delivery_of(message)

        async def run() -> None:
            async with self._desk.ledger.transaction() as tx:
                self._bury(tx, route, message, reason, text)
                await self._desk.ledger.forget_failure(tx, route.durable, delivery.stream, delivery.stream_sequence)

        error = await self._try(run)
        if error is None:
            tracing.buried(route.durable, reason)
            await self._ack(message)
        else:
            get_logger().error("bus.bury_failed", consumer=route.durable, error=repr(error))
            await self._nak(message, self._desk.policy.delay_cap_s)

    def _bury(self, tx: Tx[C], route: Route[C], message: Msg, reason: DeadReason, text: str) -> None:
        """Emit the dead letter of a message."""
        delivery = delivery_of(message)
        data = message.data
        if len(data) > MAX_BODY_BYTES:
            text = f"{text} (kept here: the first {KEPT_BYTES} bytes)"
            data = data[:KEPT_BYTES]
        body = DeadLetter(
            consumer=route.durable,
            reason=reason,
            message=_plain(text)[:MAX_TEXT_CHARS],
            subject=_plain(original_subject(message)),
            headers={_plain(name): _plain(value) for name, value in (message.headers or {}).items()},
            data=b64encode(data),
            stream=delivery.stream,
            stream_sequence=delivery.stream_sequence,
            deliveries=max(1, delivery.deliveries),
            died_at=self._desk.clock.now(),
        )
        get_logger().error("bus.dead_letter", consumer=route.durable, reason=reason, subject=body.subject, detail=text)
        tx.emit(
            registry.DEADLETTERED,
            body,
            key=route.durable,
            subject=route.durable,
            sequence=delivery.stream_sequence,
            actor=route.durable,
            id=dead_letter_id(route.durable, delivery),
        )

    async def _ack(self, message: Msg) -> None:
        try:
            await message.ack()
        except NatsError as error:
            get_logger().warning("bus.ack_failed", subject=message.subject, error=repr(error))

    async def _nak(self, message: Msg, delay_s: float) -> None:
        try:
            await message.nak(delay=delay_s)
        except NatsError as error:
            get_logger().warning("bus.nak_failed", subject=message.subject, error=repr(error))


def _plain(text: str) -> str:
    """Text that JSON can carry and PostgreSQL keep: bytes of a header that were no UTF-8, and NUL, are written out."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def actor_of(event: Event[Model]) -> str:
    """Whom to name as the cause of what this event leads to."""
    return event.actor or event.source
