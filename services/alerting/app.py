"""The service put together: what it handles, serves and does in the background."""

from contracts import registry
from libs.bus import App, Ledger
from libs.db import Connection
from libs.kit.clock import SystemClock
from services.alerting.courier import Courier, Tidier
from services.alerting.handlers import Handlers
from services.alerting.meters import Meters
from services.alerting.settings import AlertingSettings

SERVICE = "alerting"


def build(settings: AlertingSettings, ledger: Ledger[Connection]) -> App[Connection]:
    """One leader at a time: a notification is delivered by one process."""
    clock = SystemClock()
    receivers = [webhook.name for webhook in settings.alert_webhooks]
    couriers = [Courier(webhook, ledger, clock, settings) for webhook in settings.alert_webhooks]

    def wake() -> None:
        for courier in couriers:
            courier.wake()

    handlers = Handlers(receivers, wake, clock)
    app = App(SERVICE, settings, ledger, leader=True)
    app.on(registry.NODES_LOST, handlers.node)
    app.on(registry.NODES_RETURNED, handlers.node)
    app.on(registry.NODES_QUARANTINED, handlers.node)
    app.on(registry.NODES_RELEASED, handlers.node)
    app.on(registry.BREAKERS_OPENED, handlers.breaker)
    app.on(registry.BREAKERS_CLOSED, handlers.breaker)
    app.on(registry.CHECKPOINTS_FAILED, handlers.failed)
    app.on(registry.CHECKPOINTS_COMMITTED, handlers.committed)
    app.on(registry.JOBS_FINISHED, handlers.finished)
    app.serve(registry.QUERY_ALERTS, handlers.alerts)
    app.serve(registry.CALL_RESOLVE, handlers.resolve)
    for courier in couriers:
        app.task(courier.run)
    app.task(Tidier(ledger, clock, receivers).run)
    app.task(Meters(ledger).run)
    return app
