"""Billing put together: what it handles, serves and does in the background."""

from contracts import registry
from libs.bus import App, Ledger
from libs.db import Connection
from libs.kit.clock import SystemClock
from services.billing.handlers import Handlers
from services.billing.rater import Rater
from services.billing.rates import RateBook
from services.billing.settings import BillingSettings

SERVICE = registry.BILLING


def build(settings: BillingSettings, ledger: Ledger[Connection], book: RateBook) -> App[Connection]:
    """The App, not yet running. One process leads; a second one stands by."""
    clock = SystemClock()
    app = App(SERVICE, settings, ledger, leader=True)
    rater = Rater(app.transaction, book, clock, settings.billing_poll_s)
    handlers = Handlers(rater.wake, clock)
    app.on(registry.USAGE_ROLLED_UP, handlers.rolled_up)
    app.on(registry.USAGE_PERIOD_CLOSED, handlers.period_closed)
    app.serve(registry.QUERY_INVOICES, handlers.invoices)
    app.serve(registry.QUERY_LINES, handlers.lines)
    app.task(rater.run)
    return app
