"""How the scheduler is put together: its routes, its requests and its cycle on one App."""

from contracts import registry
from libs.bus import App, Ledger
from libs.db import Connection
from libs.kit.clock import SystemClock
from services.scheduler.answers import Answers
from services.scheduler.cycle import Cycle
from services.scheduler.desk import Desk
from services.scheduler.handlers import Scheduler
from services.scheduler.policies import PolicyBook
from services.scheduler.settings import SchedulerSettings
from services.scheduler.submissions import Submissions
from services.scheduler.tenants import TenantBook

SERVICE = registry.SCHEDULER


def build(
    settings: SchedulerSettings, ledger: Ledger[Connection], book: TenantBook, policies: PolicyBook
) -> App[Connection]:
    """The App, not yet running. One process leads; a second one stands by."""
    app = App(SERVICE, settings, ledger, leader=True)
    desk = Desk(app.transaction, book, policies, settings.limits, SystemClock())
    submissions = Submissions(desk)
    submissions.register(app)
    Scheduler(desk).register(app)
    Answers(desk, submissions).register(app)
    app.task(Cycle(desk, cycle_s=settings.cycle_s).run)
    return app
