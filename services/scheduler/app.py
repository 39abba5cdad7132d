"""How the scheduler is put together: its routes, its requests and its cycle on one App."""

from contracts import registry
from libs.bus import App, Ledger
from libs.db import Connection
from libs.kit.clock import SystemClock
from services.scheduler.answers import Answers
from services.scheduler.cycle import Cycle
from services.scheduler.handlers import Scheduler
from services.scheduler.settings import SchedulerSettings
from services.scheduler.tenants import TenantBook

SERVICE = registry.SCHEDULER


def build(settings: SchedulerSettings, ledger: Ledger[Connection], book: TenantBook) -> App[Connection]:
    """The App, not yet running. One process leads; a second one stands by."""
    clock = SystemClock()
    app = App(SERVICE, settings, ledger, leader=True)
    Scheduler(book, settings.limits, clock).register(app)
    Answers().register(app)
    app.task(Cycle(app.transaction, book, settings.limits, clock, cycle_s=settings.cycle_s).run)
    return app
