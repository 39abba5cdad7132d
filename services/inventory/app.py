"""How inventory is put together: its routes, its requests and its watch on one App."""

from contracts import registry
from libs.bus import App, Ledger
from libs.db import Connection
from libs.kit.clock import SystemClock
from services.inventory.handlers import Release, announced, list_nodes
from services.inventory.orders import ordered
from services.inventory.reports import reported
from services.inventory.settings import InventorySettings
from services.inventory.watch import Watch

SERVICE = registry.INVENTORY
ORDERS = (
    registry.NODES_CORDON,
    registry.NODES_DRAIN,
    registry.NODES_UNCORDON,
    registry.NODES_RETIRE,
    registry.NODES_CHECK,
)


def build(settings: InventorySettings, ledger: Ledger[Connection]) -> App[Connection]:
    """The App, not yet running. One process leads; a second one stands by."""
    app = App(SERVICE, settings, ledger, leader=True)
    app.on(registry.NODES_ANNOUNCED, announced)
    app.on_batch(registry.NODES_REPORTED, reported)
    for order in ORDERS:
        app.on(order, ordered)
    app.serve(registry.QUERY_NODES, list_nodes)
    app.serve(registry.CALL_RELEASE, Release(SystemClock()))
    app.task(Watch(app, settings).run)
    return app
