"""Metering put together: what it handles, serves and does in the background."""

from contracts import registry
from libs.bus import App, Ledger
from libs.db import Connection
from libs.kit.clock import SystemClock
from libs.objects import AsyncStore
from services.metering import reads
from services.metering.closer import Closer
from services.metering.handlers import Handlers
from services.metering.meters import Meters
from services.metering.reconcile import Reconciler
from services.metering.settings import MeteringSettings

SERVICE = registry.METERING


def build(settings: MeteringSettings, ledger: Ledger[Connection], objects: AsyncStore) -> App[Connection]:
    """The App, not yet running. One process leads; a second one stands by."""
    clock, meters = SystemClock(), Meters()
    app = App(SERVICE, settings, ledger, leader=True)
    closer = Closer(app.transaction, objects, settings, meters, clock)
    handlers = Handlers(settings.limits, meters, clock, closer.wake)
    app.on_batch(registry.USAGE_MEASURED, handlers.measured)
    app.on(registry.JOBS_PLACED, handlers.placed)
    app.on(registry.JOBS_FINISHED, handlers.finished)
    app.on(registry.CHECKPOINTS_RESTORED, handlers.restored)
    app.serve(registry.CALL_CLOSE, handlers.close)
    app.serve(registry.QUERY_USAGE, reads.usage)
    app.serve(registry.QUERY_SAMPLES, reads.samples)
    app.serve(registry.QUERY_REFUSED, reads.refused)
    app.serve(registry.QUERY_ROLLUPS, reads.rollups)
    app.task(closer.run)
    app.task(Reconciler(app.transaction, lambda: app.client, clock, settings.metering_reconcile_s).run)
    return app
