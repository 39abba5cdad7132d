"""The connection to NATS: one that comes back by itself, whatever the server says.

nats-py gives up for good on errors it does not know (a password that changed, a revoked user). Here every error that
ends a connection leads to the reconnect path instead, callbacks never raise, and reconnecting never stops.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import AuthorizationError, Error, StaleConnectionError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo, StreamConfig

from libs.bus.errors import BusError
from libs.kit.logs import get_logger
from libs.kit.settings import JS_API
from libs.kit.tasks import reap

RECONNECT_WAIT_S = 0.5
FLUSH_TIMEOUT_S = 2
CONNECT_TIMEOUT_S = 2.0
DRAIN_TIMEOUT_S = 10.0
PING_INTERVAL_S = 10.0
MAX_OUTSTANDING_PINGS = 2
PENDING_BYTES = 8 * 1024 * 1024
JS_TIMEOUT_S = 5.0
LOG_EVERY_S = 5.0

_PERMISSIONS = "permissions violation"
_STALE = "stale connection"
_AUTHORIZATION = ("authorization violation", "authentication", "authorization timeout", "account authentication")


@dataclass(frozen=True)
class Address:
    """How to reach the bus. `api` is what the subjects of the JetStream API begin with, in the account of the user."""

    url: str
    name: str
    creds: Path | None = None
    api: str = JS_API

    @property
    def inbox_prefix(self) -> str:
        """Replies come back under this name, so that permissions can tell whose they are."""
        return f"_INBOX.{self.name}"


class Connection(NatsClient):
    """nats-py's client without its ways of giving up, and without its way of never ending."""

    _ended = False

    async def _process_err(self, err_msg: str) -> None:
        """Called for each `-ERR` of the server."""
        text = err_msg.strip("'").lower()
        if _PERMISSIONS in text:
            await self._error_cb(Error(f"nats: {err_msg}"))
            return
        if _STALE in text:
            error: Error = StaleConnectionError()
        elif text.startswith(_AUTHORIZATION):
            error = AuthorizationError()
        else:
            error = Error(f"nats: {err_msg}")
        self._err = error
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _select_next_server(self) -> None:
        """Called before each attempt: nats-py drops the socket of a refused one without closing it."""
        if self._transport is not None:
            self._transport.close()
        await super()._select_next_server()

    async def _connect_to_server(self, s: Any) -> None:
        """Called for each attempt: one that `close` could not cancel (see libs.kit.tasks) ends here."""
        if self._ended:
            raise asyncio.CancelledError
        await super()._connect_to_server(s)

    async def close(self) -> None:
        """Close for good, and see the reconnecting end."""
        self._ended = True
        await super().close()
        task = self._reconnection_task
        if task is not None and task is not asyncio.current_task():
            await reap([task])

    @property
    def is_stuck(self) -> bool:
        """Whether reconnecting has ended without a connection: only a new process helps."""
        task = self._reconnection_task
        return self.is_reconnecting and task is not None and task.done()


@dataclass
class Callbacks:
    """What the connection tells; each may be replaced before connecting."""

    reconnected: Callable[[], None] = lambda: None
    closed: Callable[[], None] = lambda: None


class _Reporter:
    """Logs errors of the connection, the same one at most every LOG_EVERY_S; never raises."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: dict[str, float] = {}

    async def error(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        text = repr(error)[:300]
        if now - self._last.get(text, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._last = {text: now} if len(self._last) > 64 else self._last | {text: now}  # noqa: PLR2004 - a bound
            get_logger().warning("bus.connection_error", name=self._name, error=text)

    async def disconnected(self) -> None:
        get_logger().warning("bus.disconnected", name=self._name)


async def connect(address: Address, callbacks: Callbacks) -> Connection:
    """Connect, waiting for a server that is not there yet for as long as it takes."""
    connection = Connection()
    connecting = asyncio.create_task(connection.connect(**options(address, callbacks)))
    try:
        await asyncio.wait([connecting])
    finally:
        await reap([connecting])
    connecting.result()
    get_logger().info("bus.connected", name=address.name)
    return connection


def options(address: Address, callbacks: Callbacks) -> dict[str, Any]:
    """The keyword arguments of nats-py's `connect`. Raises BusError for a creds file that could not be used."""
    if address.creds is not None and find_spec("nkeys") is None:
        msg = f"{address.creds} is a creds file, which takes the package nkeys: pip install nkeys"
        raise BusError(msg)
    reporter = _Reporter(address.name)
    return {
        "servers": [address.url],
        "name": address.name,
        "allow_reconnect": True,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": RECONNECT_WAIT_S,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "ping_interval": PING_INTERVAL_S,
        "max_outstanding_pings": MAX_OUTSTANDING_PINGS,
        "drain_timeout": DRAIN_TIMEOUT_S,
        "pending_size": PENDING_BYTES,
        "inbox_prefix": address.inbox_prefix,
        "user_credentials": None if address.creds is None else str(address.creds),
        "error_cb": reporter.error,
        "disconnected_cb": reporter.disconnected,
        "reconnected_cb": _tell(callbacks, "reconnected", address.name),
        "closed_cb": _tell(callbacks, "closed", address.name),
    }


def _tell(callbacks: Callbacks, what: str, name: str) -> Callable[[], Awaitable[None]]:
    async def tell() -> None:
        get_logger().info(f"bus.{what}", name=name)
        callback: Callable[[], None] = getattr(callbacks, what)
        callback()

    return tell


def jetstream(connection: NatsClient, api: str = JS_API) -> JetStreamContext:
    """The JetStream API of the hub."""
    return JetStreamContext(connection, prefix=api, timeout=JS_TIMEOUT_S)


def server_of(connection: NatsClient) -> str:
    """Names the server that the connection leads to, and this run of it: a server started anew has another name."""
    told: dict[str, Any] = cast("Any", connection)._server_info  # noqa: SLF001 - nats-py keeps it to itself
    return str(told["server_id"])


async def subscribe(
    connection: NatsClient, subject: str, callback: Callable[[Msg], Awaitable[None]], queue: str = ""
) -> Subscription:
    """Subscribe; `callback` is awaited for one message after another."""
    untyped = cast("Any", connection)  # its `future` parameter has no type
    subscription: Subscription = await untyped.subscribe(subject, queue=queue, cb=callback)
    return subscription


async def settle(connection: NatsClient, timeout_s: int) -> None:
    """Return once the server has taken in what was sent before. Raises nats.errors.Error, TimeoutError.

    Twice, because nats-py writes the PING of a flush ahead of what is still pending: the first one brings that out.
    """
    for _ in range(2):
        await connection.flush(timeout=timeout_s)


async def close(connection: NatsClient) -> None:
    """Flush and close; a connection that is not there is closed without flushing (drain would raise)."""
    try:
        if connection.is_connected:
            await settle(connection, FLUSH_TIMEOUT_S)
    except (Error, TimeoutError, OSError) as error:
        get_logger().warning("bus.flush_failed", error=repr(error))
    try:
        await connection.close()
    except (Error, OSError) as error:
        get_logger().warning("bus.close_failed", error=repr(error))


async def add_stream(js: JetStreamContext, config: StreamConfig) -> None:
    """Make a stream."""
    await cast("Any", js).add_stream(config)


async def update_stream(js: JetStreamContext, config: StreamConfig) -> None:
    """Bring a stream to `config`."""
    await cast("Any", js).update_stream(config)


async def add_consumer(js: JetStreamContext, stream: str, config: ConsumerConfig) -> ConsumerInfo:
    """Make a consumer, or bring a durable one to `config`."""
    info: ConsumerInfo = await cast("Any", js).add_consumer(stream, config)
    return info
