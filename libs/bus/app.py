"""A service on the bus: routes, requests, background tasks, the relay, and how all of it starts and ends.

    app = App("scheduler", settings, PgLedger(pool, "scheduler"), leader=True)
    app.on(registry.JOBS_SUBMIT, handler)
    app.serve(registry.CALL_CLAIM, claim)
    await app.run()

`run` returns after SIGTERM or SIGINT, and ends the process with a log line when something cannot go on: the connection
closed for good, a durable deleted, a background task crashed.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Generic, TypeVar

from contracts import registry
from contracts.base import Model
from contracts.registry import Message, Request
from contracts.requests import ServiceStatus, StatusQuery
from libs.bus.broker import Broker
from libs.bus.client import Client
from libs.bus.connection import Address, Callbacks, Connection, close
from libs.bus.errors import BusError, ConnectionClosed, NotLeader
from libs.bus.events import Call, Event, Invalid
from libs.bus.gate import Gate, Health
from libs.bus.gauges import Gauges
from libs.bus.ledger import Ledger, Tx
from libs.bus.publisher import Publisher
from libs.bus.relay import Relay
from libs.bus.serving import Counter
from libs.bus.taking import Taker
from libs.bus.work import Desk, Policy, Route, Work
from libs.kit.clock import Clock, SystemClock
from libs.kit.logs import get_logger
from libs.kit.settings import ServiceSettings
from libs.kit.tasks import reap
from libs.telemetry.errors import TelemetryError
from libs.telemetry.process import telemetry

C = TypeVar("C")
M = TypeVar("M", bound=Model)
R = TypeVar("R", bound=Model)

Handler = Callable[[Tx[C], Event[M]], Awaitable[None]]
BatchHandler = Callable[[Tx[C], Sequence[Event[M]]], Awaitable[None]]
OnInvalid = Callable[[Tx[C], Invalid], Awaitable[bool]]

TRANSACTIONS_AT_ONCE = 12
ELECTION_POLL_S = 0.2
LEADER_CHECK_S = 0.5
TASK_RESTART_S = 0.2
TASK_SETTLED_S = 10.0
DRAIN_S = 5.0
STUCK_CHECK_S = 2.0
PRUNE_EVERY_S = 60.0
OUTBOX_KEEP_S = 3600.0
INBOX_KEEP_S = 35 * 24 * 3600.0


class App(Generic[C]):
    """One service (or one node's agent); see the module."""

    def __init__(
        self,
        service: str,
        settings: ServiceSettings,
        ledger: Ledger[C],
        *,
        node: str | None = None,
        leader: bool = False,
        policy: Policy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.service = service
        self.node = node
        self.name = f"{service}-{node}" if node else service
        self.ledger = ledger
        self.gate = Gate(needs_leader=leader)
        self._settings = settings
        self._clock = clock or SystemClock()
        self._health = Health(self.gate, ledger.ping, service=self.name)
        self._address = Address(settings.nats_url, self.name, settings.nats_creds, settings.js_api)
        self.broker = Broker(self._address, Callbacks(self._reconnected, self._closed))
        self._gauges = Gauges(
            ledger, self.gate, service=service, version=settings.version, connected=lambda: self.connected
        )
        self._taker = self._make_taker(policy or Policy())
        self._loops: list[Callable[[], Awaitable[None]]] = []
        self._always_open = Gate(needs_leader=False)
        self._stop = asyncio.Event()
        self._started = asyncio.Event()
        self._failure: BaseException | None = None
        self._stopping = False
        self._client: Client | None = None
        self._relay: Relay | None = None
        self._started_at: datetime = self._clock.now()
        self._serve_status()

    def _make_taker(self, policy: Policy) -> Taker[C]:
        slots = asyncio.Semaphore(TRANSACTIONS_AT_ONCE)
        desk = Desk(self.ledger, self.gate, self._health, policy, self._clock, slots)
        return Taker(
            service=self.service,
            node=self.node,
            address=self._address,
            broker=self.broker,
            gate=self.gate,
            work=Work(desk),
            counter=Counter(desk, self._reply),
            failed=self._failed,
        )

    # ---- what the service takes ------------------------------------------------------------------------------------

    def on(self, message: Message[M], handler: Handler[C, M], *, on_invalid: OnInvalid[C] | None = None) -> None:
        """Handle each `message` once, in one transaction: inbox, effect, outbox.

        `on_invalid(tx, invalid)` may tell the sender of a refused message by an event; when it returns True there
        is no dead letter.
        """
        durable, consumer = self._taker.durable(message), self._taker.consumer(message)
        self._taker.take(Route(message, durable, handler, 1, consumer.ack_wait_s, on_invalid), message.model)

    def on_batch(self, message: Message[M], handler: BatchHandler[C, M]) -> None:
        """Handle many of `message` in one transaction. There is no inbox: the handler's own unique keys decide."""
        durable, consumer = self._taker.durable(message), self._taker.consumer(message)
        route: Route[C] = Route(message, durable, handler, consumer.batch, consumer.ack_wait_s)
        self._taker.take(route, list[message.model])

    def serve(self, request: Request[M, R], handler: Callable[[Tx[C], Call[M]], Awaitable[R]]) -> None:
        """Answer `request`, in one transaction; the handler raises Problem when it cannot."""
        self._taker.serve(request, handler, self.gate)

    def task(self, loop: Callable[[], Awaitable[None]]) -> None:
        """Run `loop` while the gate is open.

        When the store goes away or another process leads, it is started again once the gate opens, so it must be
        able to begin anew at any point. Any other exception, and returning, ends the process.
        """
        self._loops.append(loop)

    # ---- what the service says -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Tx[C], None]:
        """One transaction outside any handler, for cycles and loops; what it emits is published after it commits.

        Raises NotLeader when another process leads by now, and the store's own errors.
        """
        async with self.ledger.transaction() as tx:
            yield tx

    async def _reply(self, subject: str, data: bytes, headers: dict[str, str]) -> None:
        await self.client.connection.publish(subject, data, headers=headers)

    @property
    def client(self) -> Client:
        """Publishing, asking and reading on this App's connection; there once `run` has connected."""
        if self._client is None:
            msg = f"{self.name} is not connected yet: use app.client inside handlers and tasks"
            raise BusError(msg)
        return self._client

    @property
    def connected(self) -> bool:
        """Whether the bus is reached at this moment."""
        return self._client is not None and self._client.connection.is_connected

    @property
    def paused_aggregates(self) -> frozenset[str]:
        """Aggregates whose rows could not be published just now and are tried again."""
        return frozenset() if self._relay is None else self._relay.paused

    def asyncapi(self) -> str:
        """FastStream's AsyncAPI document of what this App takes, as JSON."""
        return self.broker.describe(f"Farside {self.service}", self._settings.version)

    def _serve_status(self) -> None:
        request = registry.STATUS.get(self.service)
        if request is None:
            return

        async def status(tx: Any, call: Call[StatusQuery]) -> ServiceStatus:
            del tx, call
            counts = await self.ledger.counts()
            return ServiceStatus(
                service=self.service,
                version=self._settings.version,
                started_at=self._started_at,
                leader=self.gate.leading,
                outbox_rows=counts.waiting,
                parked_rows=counts.parked,
            )

        self._taker.serve(request, status, self._always_open)

    # ---- how it runs -----------------------------------------------------------------------------------------------

    async def wait_started(self) -> None:
        """Return once `run` has connected and every durable was found."""
        await self._started.wait()

    def stop(self) -> None:
        """End `run` in good order."""
        self._stop.set()

    def _failed(self, error: BaseException) -> None:
        """Something cannot go on."""
        if self._failure is None and not self._stopping:
            self._failure = error
        self._stop.set()

    def _closed(self) -> None:
        if not self._stopping:
            self._failed(ConnectionClosed("the connection to the bus was closed for good: start the process again"))

    def _reconnected(self) -> None:
        if self._client is not None:
            self._client.reconnected()
        if self._relay is not None:
            self._relay.reconnected()
        for subscriber in self.broker.subscribers:
            pulling = getattr(subscriber, "pulling", None)
            if pulling is not None and pulling.puller is not None:
                pulling.puller.restart()

    async def run(self) -> None:
        """Run until told to stop. Raises SystemExit(1) after a log line when something cannot go on."""
        try:
            with telemetry(self.service, self._settings, self.node):
                self._gauges.show()
                await self._run()
        except TelemetryError as error:
            get_logger().error("app.failed", app=self.name, error=str(error))
            raise SystemExit(1) from None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._taker.take_replays()
        tasks: list[asyncio.Task[None]] = []
        main = asyncio.create_task(self._start(tasks))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([main, stopping], return_when=asyncio.FIRST_COMPLETED)
            if main.done() and not main.cancelled() and (error := main.exception()) is not None:
                self._failed(error)
            await stopping
        finally:
            self._stopping = True
            await reap([main, stopping])
            await self._shut(tasks)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if self._failure is not None:
            get_logger().error("app.failed", app=self.name, error=repr(self._failure), exc_info=self._failure)
            raise SystemExit(1)
        get_logger().info("app.stopped", app=self.name)

    async def _start(self, tasks: list[asyncio.Task[None]]) -> None:
        connection: Connection = await self.broker.connect()  # pyright: ignore[reportAssignmentType]
        self._client = Client(connection, self._address, self.ledger.source, self._clock)
        publisher = Publisher(connection)
        await publisher.open()
        self._relay = Relay(self.ledger, connection, publisher, self._health, service=self.name)
        self.ledger.on_commit = self._relay.wake
        loops = [self._lead, self._prune, lambda: self._watch_connection(connection)]
        if self._settings.metrics_port is not None:
            loops.append(self._gauges.count)
        tasks += [self._spawn(loop) for loop in loops]
        await self.broker.start()
        tasks += [self._spawn(lambda loop=loop: self._restarting(loop)) for loop in self._loops]
        self._started.set()
        get_logger().info("app.started", app=self.name, version=self._settings.version)

    def _spawn(self, loop: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await loop()
            except Exception as error:  # noqa: BLE001 - it ends the process, with its words in the log
                self._failed(error)

        return asyncio.create_task(run())

    async def _lead(self) -> None:
        """Win the election, publish while it is held, and stand again when it is lost."""
        assert self._relay is not None
        election, failures = self.ledger.election(), 0
        try:
            while True:
                try:
                    epoch = await election.win(ELECTION_POLL_S)
                except Exception as error:  # noqa: BLE001 - judged
                    failures += 1
                    await self._health.judge(error, self.ledger.is_transient(error), failures)
                    await asyncio.sleep(ELECTION_POLL_S)
                    continue
                failures = 0
                get_logger().info("app.leading", app=self.name, epoch=epoch)
                await self._reign(election.hold(LEADER_CHECK_S), epoch, self._relay)
                get_logger().warning("app.leadership_lost", app=self.name, epoch=epoch)
                await self._health.alive()
        finally:
            self.gate.set_leading(leading=False)
            await election.resign()

    async def _reign(self, holding: Awaitable[None], epoch: int, relay: Relay) -> None:
        self.ledger.lead(epoch if self.gate.needs_leader else None)
        self.gate.set_leading(leading=True)
        relaying = asyncio.create_task(relay.run())
        held = asyncio.ensure_future(holding)
        try:
            await asyncio.wait([relaying, held], return_when=asyncio.FIRST_COMPLETED)
            if relaying.done():
                relaying.result()
            held.result()
        finally:
            self.gate.set_leading(leading=False)
            await reap([relaying, held])

    async def _restarting(self, loop: Callable[[], Awaitable[None]]) -> None:
        name, failures = getattr(loop, "__name__", repr(loop)), 0
        while True:
            await self.gate.wait_open()
            begun = self._clock.monotonic()
            try:
                await loop()
            except NotLeader as error:
                get_logger().warning("app.task_waits", app=self.name, task=name, error=repr(error))
            except Exception as error:  # noqa: BLE001 - judged
                failures = 1 if self._clock.monotonic() - begun > TASK_SETTLED_S else failures + 1
                await self._health.judge(error, self.ledger.is_transient(error), failures)
                get_logger().warning("app.task_waits", app=self.name, task=name, error=repr(error))
            else:
                msg = f"task {name} of {self.name} returned: tasks run for as long as the service"
                raise BusError(msg)
            await asyncio.sleep(TASK_RESTART_S)

    async def _prune(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_EVERY_S)
            try:
                await self.ledger.prune(OUTBOX_KEEP_S, INBOX_KEEP_S)
            except Exception as error:  # noqa: BLE001 - judged
                await self._health.judge(error, self.ledger.is_transient(error), 0)

    async def _watch_connection(self, connection: Connection) -> None:
        while True:
            await asyncio.sleep(STUCK_CHECK_S)
            if connection.is_stuck:
                msg = "reconnecting to the bus has stopped without a connection: start the process again"
                raise ConnectionClosed(msg)

    async def _shut(self, tasks: list[asyncio.Task[None]]) -> None:
        """Stop taking, finish what runs, publish what is in the outbox, close."""
        await asyncio.gather(*(subscriber.stop() for subscriber in self.broker.subscribers), return_exceptions=True)
        if self._relay is not None and self.gate.leading:
            await self._relay.drain(DRAIN_S)
        await reap(tasks)
        self._health.stop()
        if self._client is not None:
            await close(self._client.connection)
