"""Run the scheduler: `python -m services.scheduler [--check]`. Settings come from `FARSIDE_*`."""

import asyncio
import sys

from libs.bus import PgLedger
from libs.db import connect, migrate
from libs.kit.logs import get_logger
from libs.kit.start import BAD_SETTINGS, read_settings
from services.scheduler.app import SERVICE, build
from services.scheduler.settings import SchedulerSettings
from services.scheduler.tenants import TenantBook, TenantFileError


async def run(settings: SchedulerSettings, book: TenantBook) -> None:
    """Open the ledger, bring it up to date and serve until told to stop."""
    pool = await connect(settings.dsn, SERVICE)
    await migrate(pool, SERVICE, "services.scheduler")
    await build(settings, PgLedger(pool, SERVICE), book).run()


def main(arguments: list[str]) -> int:
    """The command line; 2 when the tenant files are at fault."""
    settings = read_settings(SERVICE, SchedulerSettings)
    try:
        book = TenantBook.read(settings.tenants)
    except TenantFileError as error:
        get_logger().error("settings.invalid", detail=str(error))
        return BAD_SETTINGS
    if "--check" not in arguments:
        asyncio.run(run(settings, book))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
