"""Run the scheduler: `python -m services.scheduler [--check]`. Settings come from `FARSIDE_*`."""

from libs.bus import PgLedger
from libs.kit.start import main
from services.scheduler.app import SERVICE, build
from services.scheduler.policies import PolicyBook
from services.scheduler.settings import SchedulerSettings
from services.scheduler.tenants import TenantBook


async def run(settings: SchedulerSettings) -> None:
    """Open the ledger and serve until told to stop."""
    ledger = await PgLedger.open(settings.dsn, SERVICE)
    await build(settings, ledger, TenantBook.read(settings.tenants), PolicyBook.read(settings.policy)).run()


if __name__ == "__main__":
    main(SERVICE, SchedulerSettings, run)
