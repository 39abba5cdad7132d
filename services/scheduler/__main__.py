"""Run the scheduler: `python -m services.scheduler [--check]`. Settings come from `FARSIDE_*`."""

from libs.bus import PgLedger
from libs.kit.start import main
from services.scheduler.app import SERVICE, build
from services.scheduler.settings import SchedulerSettings
from services.scheduler.tenants import TenantBook


async def run(settings: SchedulerSettings) -> None:
    """Open the ledger and serve until told to stop."""
    await build(settings, await PgLedger.open(settings.dsn, SERVICE), TenantBook.read(settings.tenants)).run()


if __name__ == "__main__":
    main(SERVICE, SchedulerSettings, run)
