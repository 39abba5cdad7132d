"""The background loops: one courier for each receiver, so that one that is down delays no other.

A notification is marked delivered after the receiver has taken it. A process killed in between sends it once more when
it is back, with the same `Idempotency-Key`.
"""

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from libs.bus import Ledger
from libs.db import Connection
from libs.kit.bell import Bell
from libs.kit.clock import Clock
from libs.kit.ids import RANDOM_BYTES, uuid7
from libs.kit.logs import get_logger
from libs.telemetry import spans
from services.alerting import store
from services.alerting.core.delivery import Again, Delivered, Fate, Park, judge
from services.alerting.core.payload import payload
from services.alerting.posting import post
from services.alerting.settings import AlertingSettings, Webhook
from services.alerting.store import Due

DELIVERIES_AT_ONCE = 4
SUBJECTS_KEEP = timedelta(days=40)  # longer than the streams keep what might still come
ALERTS_KEEP = timedelta(days=90)  # as long as their stream
TIDY_S = 3600.0
_OUTCOMES = {Delivered: "done", Again: "failed", Park: "refused"}


class Courier:
    """Delivers what is queued for one receiver, woken by handlers and every `alerting_poll_s`."""

    def __init__(self, webhook: Webhook, ledger: Ledger[Connection], clock: Clock, settings: AlertingSettings) -> None:
        """Nothing runs before `run`."""
        self._webhook = webhook
        self._ledger = ledger
        self._clock = clock
        self._settings = settings
        self._bell = Bell()
        self._unmarked: dict[str, Fate] = {}

    def wake(self) -> None:
        """There may be something to deliver."""
        self._bell.ring()

    async def run(self) -> None:
        """Deliver for ever."""
        while True:
            self._bell.quiet()
            async with self._ledger.transaction() as tx:
                items = await store.due(tx.conn, self._webhook.name, self._clock.now(), DELIVERIES_AT_ONCE)
            ended = await asyncio.gather(*(self._deliver(item) for item in items), return_exceptions=True)
            for error in ended:
                if error is not None:
                    raise error
            if not items:
                await self._bell.wait(self._settings.alerting_poll_s)

    async def _deliver(self, item: Due) -> None:
        """Try it and mark it. What the store did not take is marked later, and not tried again for that."""
        with spans.span("notify", trace=item.trace):
            labels = item.alert.labels
            spans.annotate(job=labels.get("job"), node=labels.get("node"), tenant=labels.get("tenant"))
            spans.put(**{"farside.alert": item.alert.alert_id, "farside.receiver": item.receiver})
            fate = self._unmarked.get(item.key) or await self._try(item)
            self._unmarked[item.key] = fate
            async with self._ledger.transaction() as tx:
                await store.settle(tx.conn, item, fate, self._clock.now())
            del self._unmarked[item.key]
            spans.put(**{"farside.outcome": _OUTCOMES[type(fate)]})
            _log(item, fate)

    async def _try(self, item: Due) -> Fate:
        body = json.dumps(payload(item.alert, item.receiver, self._settings.alerting_external_url)).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "farside", "Idempotency-Key": item.key}
        answer = await post(self._webhook.url, body, headers, self._settings.alerting_timeout_s)
        now, patience = self._clock.now(), self._settings.patience
        return judge(answer, tries=item.tries, queued_at=item.queued_at, now=now, patience=patience)


def _log(item: Due, fate: Fate) -> None:
    log = get_logger().bind(alert=item.alert.alert_id, receiver=item.receiver, about=item.about.value)
    match fate:
        case Delivered():
            log.info("notification.delivered", tries=item.tries + 1)
        case Again(due_at, message):
            log.warning("notification.postponed", tries=item.tries + 1, due_at=due_at.isoformat(), message=message)
        case Park(message):
            log.error("notification.parked", tries=item.tries + 1, message=message)


def _first_id(at: datetime) -> str:
    """The lowest id that can have been made at `at`."""
    return uuid7(round(at.timestamp() * 1000), bytes(RANDOM_BYTES))


class Tidier:
    """Parks what waits for receivers that are no longer configured, and forgets what is long over."""

    def __init__(self, ledger: Ledger[Connection], clock: Clock, receivers: Sequence[str]) -> None:
        """Nothing runs before `run`."""
        self._ledger = ledger
        self._clock = clock
        self._receivers = receivers

    async def run(self) -> None:
        """Tidy up at the start and every TIDY_S."""
        while True:
            now = self._clock.now()
            async with self._ledger.transaction() as tx:
                message = "its receiver is no longer among FARSIDE_ALERT_WEBHOOKS"
                parked = await store.park_others(tx.conn, self._receivers, message, now)
                await store.forget_subjects(tx.conn, now - SUBJECTS_KEEP)
                await store.forget_alerts(tx.conn, _first_id(now - ALERTS_KEEP))
            if parked:
                get_logger().warning("notification.receiver_gone", receivers=sorted({*parked}), parked=len(parked))
            await asyncio.sleep(TIDY_S)
