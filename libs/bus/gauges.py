"""What of an App is looked up at each scrape: its event loop, its bus, its gate, its outbox, its version."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from libs.bus.gate import Gate
from libs.bus.ledger import Ledger, OutboxCounts
from libs.kit.logs import get_logger
from libs.telemetry.metrics import Reading, gauge

COUNT_EVERY_S = 5.0


class Gauges:
    """Shows one App; the outbox as it was when it was last counted. `connected` says whether the bus is reached."""

    def __init__(
        self,
        ledger: Ledger[Any],
        gate: Gate,
        *,
        service: str,
        version: str,
        connected: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._gate = gate
        self._connected = connected
        self._service = service
        self._version = version
        self._counts: OutboxCounts | None = None
        self._round_at: float | None = None

    def show(self) -> None:
        """Have the metrics of this process show it."""
        info = {"service": self._service, "version": self._version}
        gauge("farside.build.info", lambda: [(1, info)], description="What runs here; always 1.")
        gauge("farside.loop.age", self._age, "s", "How long ago the event loop last came round to the ledger.")
        gauge("farside.bus.connected", lambda: int(self._connected()), description="1 while the bus is reached.")
        gauge("farside.gate.open", lambda: int(self._gate.is_open), description="1 while work is taken from the bus.")
        gauge("farside.gate.leading", lambda: int(self._gate.leading), description="1 while this process leads.")
        gauge("farside.outbox.rows", self._rows, "{row}", "Rows that wait for the relay, and rows that it gave up.")

    def _age(self) -> Reading:
        return [] if self._round_at is None else time.monotonic() - self._round_at

    def _rows(self) -> Reading:
        if self._counts is None:
            return []
        return [(self._counts.waiting, {"state": "waiting"}), (self._counts.parked, {"state": "parked"})]

    async def count(self) -> None:
        """Count the outbox, for ever."""
        while True:
            try:
                self._counts = await self._ledger.counts()
            except Exception as error:  # noqa: BLE001 - a count that fails is no reason to end; the next one may not
                get_logger().warning("bus.outbox_not_counted", app=self._service, error=repr(error))
                self._counts = None
            self._round_at = time.monotonic()
            await asyncio.sleep(COUNT_EVERY_S)
