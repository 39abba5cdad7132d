"""Each service's own App, put together as its `__main__` does, but connected to nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from contracts import registry
from libs.bus import App, PgLedger
from services.agent.service import build as build_agent
from services.agent.settings import AgentSettings
from services.alerting.app import build as build_alerting
from services.alerting.settings import AlertingSettings
from services.billing.app import build as build_billing
from services.billing.settings import BillingSettings
from services.checkpoint.app import build as build_checkpoint
from services.checkpoint.settings import CheckpointSettings
from services.inventory.app import build as build_inventory
from services.inventory.settings import InventorySettings
from services.metering.app import build as build_metering
from services.metering.settings import MeteringSettings
from services.scheduler.app import build as build_scheduler
from services.scheduler.settings import SchedulerSettings
from services.transfer.app import build as build_transfer
from services.transfer.settings import TransferSettings

NODE = "central-1"
DSN = "postgresql://nobody@127.0.0.1/nothing"
NOTHING = cast("Any", None)


def _agent(folder: Path) -> App[Any]:
    settings = AgentSettings(node=NODE, state_dir=folder / "state", runtime_dir=folder / "run", nvml=False)
    service = build_agent(settings)
    service.ledger.close()
    return service.app


def _alerting(_: Path) -> App[Any]:
    return build_alerting(AlertingSettings(pg_dsn=DSN), PgLedger(NOTHING, registry.ALERTING))


def _billing(_: Path) -> App[Any]:
    return build_billing(BillingSettings(pg_dsn=DSN), PgLedger(NOTHING, registry.BILLING), NOTHING)


def _checkpoint(_: Path) -> App[Any]:
    return build_checkpoint(CheckpointSettings(pg_dsn=DSN), PgLedger(NOTHING, registry.CHECKPOINT), NOTHING)


def _inventory(_: Path) -> App[Any]:
    return build_inventory(InventorySettings(pg_dsn=DSN), PgLedger(NOTHING, registry.INVENTORY))


def _metering(_: Path) -> App[Any]:
    return build_metering(MeteringSettings(pg_dsn=DSN), PgLedger(NOTHING, registry.METERING), NOTHING)


def _scheduler(_: Path) -> App[Any]:
    return build_scheduler(SchedulerSettings(pg_dsn=DSN), PgLedger(NOTHING, registry.SCHEDULER), NOTHING, NOTHING)


def _transfer(_: Path) -> App[Any]:
    return build_transfer(TransferSettings(pg_dsn=DSN), PgLedger(NOTHING, registry.TRANSFER), NOTHING)


BUILD: dict[str, Callable[[Path], App[Any]]] = {
    registry.AGENT: _agent,
    registry.ALERTING: _alerting,
    registry.BILLING: _billing,
    registry.CHECKPOINT: _checkpoint,
    registry.INVENTORY: _inventory,
    registry.METERING: _metering,
    registry.SCHEDULER: _scheduler,
    registry.TRANSFER: _transfer,
}
