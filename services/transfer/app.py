"""The service put together: what it handles, serves and does in the background."""

from contracts import registry
from libs.bus import App, Ledger
from libs.db import Connection
from libs.kit.clock import SystemClock
from libs.objects import AsyncStore
from services.transfer.handlers import Handlers
from services.transfer.settings import TransferSettings
from services.transfer.stager import Stager
from services.transfer.worker import Worker

SERVICE = "transfer"


def build(settings: TransferSettings, ledger: Ledger[Connection], objects: AsyncStore) -> App[Connection]:
    """One leader at a time: a transfer is staged by one process."""
    clock = SystemClock()
    stager = Stager(objects)
    worker = Worker(ledger, stager, clock, settings)
    handlers = Handlers(stager, worker, clock)
    app = App(SERVICE, settings, ledger, leader=True)
    app.on(registry.TRANSFERS_REQUEST, handlers.requested)
    app.on(registry.JOBS_PLACED, handlers.placed)
    app.serve(registry.QUERY_DATASETS, handlers.datasets)
    app.serve(registry.QUERY_DATASET, handlers.dataset)
    app.task(worker.run)
    return app
