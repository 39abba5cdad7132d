"""Doing what was decided: tables, notifications and the events that tell it, in the caller's transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from contracts import registry
from contracts.alerts import Alert
from contracts.registry import Message
from libs.bus import Tx
from libs.db import Connection
from libs.kit.logs import get_logger
from libs.telemetry import context
from services.alerting import store
from services.alerting.core.model import Count, Effect, Fire, Resolve

FIRED, RESOLVED = 1, 2


@dataclass(frozen=True)
class Teller:
    """One transaction with the time at which it decides, the receivers of now, and who caused it."""

    tx: Tx[Connection]
    now: datetime
    receivers: Sequence[str]
    actor: str

    async def apply(self, effect: Effect) -> None:
        """Run what was decided; an episode is told twice: as it fires and when it is over."""
        match effect:
            case Fire(alert):
                await store.add_alert(self.tx.conn, alert)
                get_logger().warning("alert.fired", **_fields(alert))
                await self._tell(alert, registry.ALERTS_FIRED, FIRED, self.receivers)
            case Count(alert):
                await store.save_alert(self.tx.conn, alert)
            case Resolve(alert):
                await store.save_alert(self.tx.conn, alert)
                get_logger().info("alert.resolved", **_fields(alert), resolution=alert.resolution)
                told = await store.told(self.tx.conn, alert.alert_id)
                await self._tell(alert, registry.ALERTS_RESOLVED, RESOLVED, told)
            case _:
                assert_never(effect)

    async def _tell(self, alert: Alert, message: Message[Alert], sequence: int, receivers: Sequence[str]) -> None:
        await store.queue(self.tx.conn, alert, receivers, context.current(), self.now)
        self.tx.emit(message, alert, key=registry.NO_KEY, subject=alert.alert_id, sequence=sequence, actor=self.actor)


def _fields(alert: Alert) -> dict[str, object]:
    return {"alert": alert.alert_id, "name": alert.name, "alert_level": alert.level, "labels": dict(alert.labels)}
