"""FastStream's NATS broker with our connection, our subscribers and our middleware."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.middlewares import AckPolicy
from faststream.nats import NatsBroker
from faststream.nats.subscriber.config import NatsSubscriberConfig, NatsSubscriberSpecificationConfig
from faststream.nats.subscriber.specification import NatsSubscriberSpecification
from faststream.specification import AsyncAPI
from nats.js.api import ConsumerConfig

from libs.bus.connection import Address, Callbacks, Connection, connect
from libs.bus.subscribers import GRACEFUL_S, BatchSubscriber, CallSubscriber, EachSubscriber, Settle, Tap
from libs.bus.tracing import Traced

Entry = Callable[..., Awaitable[Any]]


async def _undecoded(message: Any) -> None:
    """Bodies are decoded once, by the codec; FastStream would decode each once more, for nobody."""
    del message


class Broker(NatsBroker):
    """Never declares a stream, never acks by itself, never publishes; see libs.bus.subscribers."""

    def __init__(self, address: Address, callbacks: Callbacks) -> None:
        super().__init__(
            address.url,
            middlewares=[Traced, Settle],
            apply_types=False,
            logger=None,
            graceful_timeout=GRACEFUL_S,
            js_options={"prefix": address.api},
            ack_policy=AckPolicy.MANUAL,
        )
        self._address = address
        self._callbacks = callbacks

    async def _connect(self) -> Connection:
        connection = await connect(self._address, self._callbacks)
        cast("Any", self.config).connect(connection)
        return connection

    def take(self, tap: Tap, entry: Entry) -> None:
        """Have `entry` run, inside the middleware, for what comes from `tap`. Its annotation is the payload."""
        outer = cast("Any", self.config)
        config = NatsSubscriberConfig(
            subject=tap.subject,
            sub_config=ConsumerConfig(durable_name=tap.durable or None),
            extra_options={},
            no_reply=True,
            _outer_config=outer,
            _ack_policy=AckPolicy.MANUAL,
        )
        calls: CallsCollection[Any] = CallsCollection()
        described = NatsSubscriberSpecificationConfig(
            subject=tap.subject,
            queue=tap.queue or None,
            title_=tap.title or None,
            description_=None,
            include_in_schema=tap.described,
        )
        specification = NatsSubscriberSpecification(_outer_config=outer, calls=calls, specification_config=described)
        kind = CallSubscriber if not tap.durable else BatchSubscriber if tap.batch > 1 else EachSubscriber
        subscriber = kind(config, specification, calls, tap=tap)
        cast("Any", Registrator).subscriber(self, subscriber)
        cast("Any", subscriber)(entry, decoder=_undecoded)

    def describe(self, title: str, version: str) -> str:
        """FastStream's AsyncAPI document of what is taken, as JSON."""
        document = AsyncAPI(self, title=title, version=version, schema_version="3.0.0").to_specification()
        return document.to_json()
