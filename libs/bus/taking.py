"""What an App takes: routes of messages, requests, replays, each as a FastStream subscriber.

FastStream calls an entry function whose annotation documents the payload; the middleware has put the transaction and
the decoded message into a context variable by then, and the entry hands both to the service's handler.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from nats.aio.msg import Msg

from contracts import registry
from contracts.registry import Consumer, Message, Request
from libs.bus import tracing
from libs.bus.broker import Broker
from libs.bus.connection import Address
from libs.bus.errors import BusError
from libs.bus.gate import Gate
from libs.bus.provision import durables_of, replay_durable
from libs.bus.serving import Counter, Served
from libs.bus.subscribers import Tap
from libs.bus.work import Route, Work
from libs.kit.ids import new_id
from libs.kit.logs import get_logger

C = TypeVar("C")

AT_ONCE = 16  # at least: twice as many are held, and more are asked for when half of them are done

_scope: ContextVar[tuple[Any, Any]] = ContextVar("scope")


@dataclass
class Taker(Generic[C]):
    """Registers routes and requests with FastStream. `failed` is told when taking cannot go on."""

    service: str
    node: str | None
    address: Address
    broker: Broker
    gate: Gate
    work: Work[C]
    counter: Counter[C]
    failed: Callable[[BaseException], None]
    routes: dict[str, Route[C]] = field(default_factory=dict[str, Route[C]])
    process: str = field(default_factory=new_id)

    def consumer(self, message: Message[Any]) -> Consumer:
        """The registry's row of this service among the consumers of `message`. Raises BusError when there is none."""
        for consumer in message.consumers:
            if consumer.service == self.service:
                return consumer
        msg = f"{self.service} handles {message.id}, but the registry names no such consumer: add it there"
        raise BusError(msg)

    def durable(self, message: Message[Any]) -> str:
        """The durable by which this service (on this node) reads `message`."""
        consumer = self.consumer(message)
        if consumer.per_node and self.node is None:
            msg = f"{message.id} goes to one node: App({self.service!r}, ..., node=...) says which this is"
            raise BusError(msg)
        return registry.durable(message, consumer, self.node)

    def take(self, route: Route[C], payload: Any) -> None:
        """Take the messages of one durable. Raises BusError when it has a handler already."""
        if route.durable in self.routes:
            msg = f"{route.durable} has a handler already: one durable, one handler"
            raise BusError(msg)
        self.routes[route.durable] = route
        process = self._many if route.batch > 1 else self._one
        key = self.node if self.consumer(route.message).per_node else None
        tap = Tap(
            gate=self.gate,
            subject=route.message.subject(key or "*"),
            process=lambda raw, run: process(route, raw, run),
            template=route.message.template,
            failed=self.failed,
            stream=route.message.stream.name,
            durable=route.durable,
            capacity=2 * max(AT_ONCE, route.batch),
            batch=route.batch,
            ack_wait_s=route.ack_wait_s,
            inbox=self._inbox(route.durable),
            api=self.address.api,
            title=route.message.id,
        )
        self.broker.take(tap, _entry(route.durable, payload, route.handler, route.message.model.__doc__))

    def serve(self, request: Request[Any, Any], handler: Callable[[Any, Any], Awaitable[Any]], gate: Gate) -> None:
        """Answer one request while `gate` is open."""
        served: Served[C] = Served(request, handler)

        async def process(raw: Msg, run: Callable[[], Awaitable[Any]]) -> None:
            await self.counter.answer(served, raw, lambda tx, what: _scoped(tx, what, run))

        tap = Tap(
            gate=gate,
            subject=request.subject("*"),
            process=process,
            template=request.template,
            failed=self.failed,
            queue=self.address.name,
            title=request.id,
        )
        self.broker.take(tap, _entry(request.id, request.model, handler, request.model.__doc__))

    def take_replays(self) -> None:
        """Have messages that are sent again to one of our durables handled by the handler of that durable."""
        owner = f"{self.service}/{self.node}" if self.node else self.service
        known = [name for name in durables_of(owner) if name in self.routes]
        if not known:
            return
        durable = replay_durable(owner)
        tap = Tap(
            gate=self.gate,
            subject=registry.replay_subject("*"),
            process=self._replay,
            template=registry.replay_subject("{consumer}"),
            failed=self.failed,
            stream=registry.REPLAYS.name,
            durable=durable,
            capacity=1,
            ack_wait_s=max(self.routes[name].ack_wait_s for name in known),
            inbox=self._inbox(durable),
            api=self.address.api,
            described=False,
        )
        self.broker.take(tap, _entry(durable, bytes, _unused, None))

    def _inbox(self, durable: str) -> str:
        """Of this process alone: another replica would be handed what this one asked for."""
        return f"{self.address.inbox_prefix}.pull.{self.process}.{durable}"

    async def _one(self, route: Route[C], raw: Msg, run: Callable[[], Awaitable[Any]]) -> None:
        await self.work.one(route, raw, lambda tx, what: _scoped(tx, what, run))

    async def _many(self, route: Route[C], raw: list[Msg], run: Callable[[], Awaitable[Any]]) -> None:
        await self.work.many(route, raw, lambda tx, what: _scoped(tx, what, run))

    async def _replay(self, raw: Msg, run: Callable[[], Awaitable[Any]]) -> None:
        del run
        route = self.routes.get(raw.subject.removeprefix(registry.replay_subject("")))
        if route is None:
            get_logger().error("bus.replay_unknown", subject=raw.subject)
            await raw.term()
        else:
            tracing.replaying(route.message, route.durable)
            await self.work.one(route, raw, route.handler)


def _entry(
    name: str, payload: Any, handler: Callable[[Any, Any], Awaitable[Any]], description: str | None
) -> Callable[..., Awaitable[Any]]:
    """What FastStream calls: the handler with the transaction and message of this scope. `payload` documents it."""

    async def entry(body: Any) -> Any:
        del body
        tx, what = _scope.get()
        return await handler(tx, what)

    entry.__name__ = name.replace("-", "_").replace(".", "_")
    entry.__doc__ = description
    entry.__annotations__ = {"body": payload}
    return entry


async def _scoped(tx: Any, what: Any, run: Callable[[], Awaitable[Any]]) -> Any:
    token = _scope.set((tx, what))
    try:
        return await run()
    finally:
        _scope.reset(token)


async def _unused(tx: Any, what: Any) -> None:
    """Replays are dispatched before FastStream's handler."""
    del tx, what
