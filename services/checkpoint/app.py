"""The service put together: what it handles, serves and does in the background."""

from contracts import registry
from libs.bus import App, Ledger
from libs.db import Connection
from libs.kit.clock import SystemClock
from libs.objects import AsyncStore
from services.checkpoint.committer import Committer
from services.checkpoint.handlers import Handlers
from services.checkpoint.protocol import Protocol
from services.checkpoint.restorer import Restorer
from services.checkpoint.settings import CheckpointSettings
from services.checkpoint.worker import Worker

SERVICE = "checkpoint"


def build(settings: CheckpointSettings, ledger: Ledger[Connection], objects: AsyncStore) -> App[Connection]:
    """One leader at a time: the work in the store is then done by one process."""
    clock = SystemClock()
    protocol = Protocol(objects)
    committer = Committer(ledger, protocol, clock, settings)
    worker = Worker(ledger, committer, protocol, clock, settings)
    restorer = Restorer(ledger, protocol, committer, clock, settings)
    handlers = Handlers(ledger, protocol, restorer, worker, clock, settings)
    app = App(SERVICE, settings, ledger, leader=True)
    app.on(registry.JOBS_PLACED, handlers.placed)
    app.on(registry.ATTEMPTS_SAVED, handlers.saved)
    app.on(registry.ATTEMPTS_UNSAVED, handlers.unsaved)
    app.on(registry.JOBS_FINISHED, handlers.finished)
    app.serve(registry.CALL_RESTORE, handlers.restore)
    app.serve(registry.QUERY_CHECKPOINTS, handlers.checkpoints)
    app.task(worker.run)
    return app
