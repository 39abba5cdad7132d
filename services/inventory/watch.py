"""The watch: round after round, a tick into the heartbeat stream, the stream read to its end, the fleet judged.

In: the stream HEARTBEATS. Out: rows of the ledger and, through its outbox, nodes.suspect, nodes.lost, nodes.returned.
One transaction a round; a round that fails leaves no trace but the time that it took, which the next one does not count
as anybody's silence.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from nats.errors import Error as NatsError
from pydantic import TypeAdapter

from contracts import registry
from contracts.nodes import ClockTick, LiveAttempt
from libs.bus import Client, Invalid, Tx
from libs.db import Connection
from libs.kit.clock import boottime
from libs.kit.ids import new_id
from libs.kit.logs import get_logger
from libs.kit.retry import delay
from services.inventory import store, store_health
from services.inventory.core.clock import advance, between_ms
from services.inventory.core.liveness import FaultJudge, fault_judge, judge_tick
from services.inventory.core.model import Beat, Clock, Noise, Sound, Tick
from services.inventory.core.skew import without_way
from services.inventory.effects import Effects
from services.inventory.heartbeats import Heard, HeartbeatReader, Mark, Reading, ReadingError
from services.inventory.refusals import Pace, bury
from services.inventory.settings import InventorySettings

RETRY_FIRST_S = 0.1
RETRY_CAP_S = 2.0
SHOWN = 20

_ATTEMPTS: TypeAdapter[list[LiveAttempt]] = TypeAdapter(list[LiveAttempt])


class Bus(Protocol):
    """What the watch needs of the App."""

    @property
    def client(self) -> Client:
        """The App's own connection."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Tx[Connection]]:
        """One transaction of the ledger."""
        ...


class Watch:
    """Judges the fleet for as long as this process leads."""

    def __init__(self, bus: Bus, settings: InventorySettings, effects: Effects) -> None:
        self._bus = bus
        self._settings = settings
        self._effects = effects
        self._timings = settings.timings
        self._rules = settings.breaker
        self._id = new_id()
        self._counter = 0
        self._reader: HeartbeatReader | None = None
        self._clock: Clock | None = None
        self._previous: Tick | None = None
        self._pace = Pace()

    async def run(self) -> None:
        """Round after round, until cancelled. Errors of the ledger are raised: the App starts it again."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        self._forget()
        failures = 0
        while task is None or not task.cancelling():  # wait_for, below nats-py, may swallow a cancellation
            started = loop.time()
            pause_s = self._settings.tick_every_s
            try:
                await self.round()
                failures = 0
            except (NatsError, ReadingError, TimeoutError) as error:
                get_logger().warning("watch.round_failed", error=repr(error), failures=failures + 1)
                self._forget()
                pause_s = max(pause_s, delay(failures, RETRY_FIRST_S, RETRY_CAP_S))
                failures += 1
            await asyncio.sleep(max(0.0, started + pause_s - loop.time()))
        raise asyncio.CancelledError

    async def round(self) -> None:
        """One tick, read and judged. Raises when the bus or the database is away; nothing is kept then."""
        client = self._bus.client
        if self._reader is None:
            self._reader = HeartbeatReader(client)
        clock = self._clock or await self._load_clock()
        await self._reader.open()
        mark = await self._mark(client)
        reading = await self._reader.read(clock, mark)
        after = advance(clock, reading.tick, self._previous, self._timings.gap_ms)
        await self._commit(clock, after, reading)
        if after.stream != clock.stream:
            get_logger().info("watch.stream_new", stream=after.stream, observed_ms=after.observed_ms)
        self._clock, self._previous = after, reading.tick

    async def _load_clock(self) -> Clock:
        async with self._bus.transaction() as tx:
            return await store.lock_clock(tx.conn)

    async def _mark(self, client: Client) -> Mark:
        self._counter += 1
        sent_ms = _now_ms()
        ack = await client.publish(
            registry.NODES_TICK,
            ClockTick(counter=self._counter, reader=self._id),
            key=registry.NO_KEY,
            subject=registry.INVENTORY,
            sequence=self._counter,
            actor=registry.INVENTORY,
        )
        return Mark(ack.sequence, sent_ms, _now_ms())

    async def _commit(self, before: Clock, after: Clock, reading: Reading) -> None:
        async with self._bus.transaction() as tx:
            if await store.lock_clock(tx.conn) != before:
                msg = f"the clock no longer stands at {before}: another round has been committed"
                raise ReadingError(msg)
            sounds = [_sound(heard) for heard in reading.heard]
            quiet_since_ms = after.observed_ms - self._timings.suspect_ms
            nodes = await store.nodes_to_judge(tx.conn, {sound.node for sound in sounds}, quiet_since_ms)
            effects = judge_tick(
                nodes,
                sounds,
                clock=after,
                timings=self._timings,
                census=await store.census(tx.conn, after.observed_ms - self._rules.window_ms),
                breaker_open=await store.breaker_open(tx.conn),
                rules=self._rules,
                skew=self._settings.skew,
                faults=await self._fault_judge(tx.conn, after.observed_ms),
            )
            await self._effects.run_tick(tx, effects, after.tick_at)
            self._tell_refused(tx, reading.heard, {node.name for node in nodes}, after)
            await store.save_clock(tx.conn, after)

    async def _fault_judge(self, conn: Connection, observed_ms: int) -> FaultJudge:
        rules = self._settings.fault_breaker
        return fault_judge(
            await store.fault_census(conn, observed_ms - rules.window_ms),
            observed_ms=observed_ms,
            breaker_open=await store_health.breaker_open(conn) is not None,
            rules=rules,
        )

    def _tell_refused(self, tx: Tx[Connection], heard: Sequence[Heard], known: set[str], clock: Clock) -> None:
        """Heartbeats that do not count: said once in a while for each node, not with every beat."""
        unknown: list[str] = []
        for item in heard:
            if isinstance(item, Invalid):
                if self._pace.due(f"invalid/{item.key}", clock.observed_ms):
                    get_logger().error("heartbeat.refused", node=item.key, reason=item.reason.value, detail=item.detail)
                    bury(tx, item, clock.tick_at)
            elif item.key not in known and self._pace.due(f"unknown/{item.key}", clock.observed_ms):
                unknown.append(item.key)
        if unknown:
            get_logger().info("heartbeat.unannounced", nodes=len(unknown), first=sorted(unknown)[:SHOWN])

    def _forget(self) -> None:
        """Read afresh from where the ledger's clock stands."""
        self._clock = None
        if self._reader is not None:
            self._reader.forget()


def _now_ms() -> int:
    return int(boottime() * 1000)


def _sound(heard: Heard) -> Sound:
    """What core hears: a beat, or noise with the reason."""
    if isinstance(heard, Invalid):
        return Noise(heard.key, heard.detail.replace("\0", "\\0"))
    body = heard.body
    assert heard.delivery is not None, "heartbeats come from a stream"
    return Beat(
        node=heard.key,
        incarnation=body.incarnation,
        counter=body.counter,
        lease_ms=body.lease_s * 1000,
        skew_ms=without_way(between_ms(body.sent_at, heard.delivery.stored_at), body.round_trip_ms),
        attempts=_ATTEMPTS.dump_json(body.attempts).decode(),
    )
