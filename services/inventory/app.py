"""How inventory is put together: its routes, its requests and its watch on one App."""

from contracts import registry
from libs.bus import App, Ledger
from libs.db import Connection
from libs.kit.clock import SystemClock
from services.inventory.capacity import Capacity
from services.inventory.effects import Effects
from services.inventory.handlers import Announcements, Listing, Release
from services.inventory.orders import ORDERS, Orders
from services.inventory.questions import Questions
from services.inventory.reports import Reports
from services.inventory.rulebook import read_capacity, read_grading, read_health
from services.inventory.settings import InventorySettings
from services.inventory.telling import Teller
from services.inventory.watch import Watch

SERVICE = registry.INVENTORY
PROMISES = (registry.JOBS_PLACED, registry.JOBS_WAITING, registry.JOBS_HELD, registry.JOBS_FINISHED)


def build(settings: InventorySettings, ledger: Ledger[Connection]) -> App[Connection]:
    """The App, not yet running. One process leads; a second one stands by. Raises RulebookError."""
    app = App(SERVICE, settings, ledger, leader=True)
    clock, rules = SystemClock(), read_capacity(settings.capacity_file)
    effects = Effects(Teller(read_grading(settings.grading_file), rules.headroom_pct))
    reports = Reports(effects, read_health(settings.health_file), settings.fault_breaker)
    capacity = Capacity(effects.teller, rules, clock)
    questions = Questions(effects, capacity, settings.skew, clock)
    app.on_batch(registry.NODES_ANNOUNCED, Announcements(effects, reports).announced)
    app.on_batch(registry.NODES_REPORTED, reports.reported)
    for order in ORDERS:
        app.on(order, Orders(effects).ordered)
    for told in PROMISES:
        app.on_batch(told, capacity.promised)
    app.serve(registry.QUERY_NODES, Listing(effects).nodes)
    app.serve(registry.QUERY_NODE, questions.node)
    app.serve(registry.QUERY_HISTORY, questions.history)
    app.serve(registry.QUERY_DECLARED, questions.declared)
    app.serve(registry.QUERY_GRADES, capacity.grades)
    app.serve(registry.QUERY_CAPACITY, capacity.capacity)
    app.serve(registry.QUERY_BREAKERS, questions.breakers)
    app.serve(registry.CALL_ASSESS, capacity.assess)
    app.serve(registry.CALL_DECLARE, questions.declare)
    app.serve(registry.CALL_RELEASE, Release(effects, clock))
    app.serve(registry.CALL_RESET, questions.reset)
    app.task(Watch(app, settings, effects).run)
    return app
