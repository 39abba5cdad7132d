"""What the service shows of itself: alerts that fire, and notifications by receiver and state."""

import asyncio
from collections.abc import Iterator, Mapping

from libs.bus import Ledger
from libs.db import Connection
from libs.telemetry.metrics import gauge
from services.alerting import store

READ_EVERY_S = 10.0


class Meters:
    """Reads the tables now and then, and hands out what it read last."""

    def __init__(self, ledger: Ledger[Connection]) -> None:
        """Nothing is read before `run`."""
        self._ledger = ledger
        self._firing: dict[tuple[str, int], int] = {}
        self._notifications: dict[tuple[str, str], int] = {}
        gauge("farside.alerts.firing", self.firing, "{alert}", "Alerts that fire, by name and level.")
        gauge(
            "farside.alerts.notifications",
            self.notifications,
            "{notification}",
            "Notifications, by receiver and state: waiting, delivered or parked.",
        )

    async def run(self) -> None:
        """Read for ever. What once fired is shown as 0 afterwards, so that its end can be seen."""
        while True:
            async with self._ledger.transaction() as tx:
                firing = await store.count_firing(tx.conn)
                notifications = await store.count_notifications(tx.conn)
            self._firing = {**dict.fromkeys(self._firing, 0), **firing}
            self._notifications = {**dict.fromkeys(self._notifications, 0), **notifications}
            await asyncio.sleep(READ_EVERY_S)

    def firing(self) -> Iterator[tuple[float, Mapping[str, str]]]:
        """How many alerts fire."""
        for (name, level), number in self._firing.items():
            yield number, {"alertname": name, "level": str(level)}

    def notifications(self) -> Iterator[tuple[float, Mapping[str, str]]]:
        """How many notifications there are."""
        for (receiver, state), number in self._notifications.items():
            yield number, {"receiver": receiver, "state": state}
