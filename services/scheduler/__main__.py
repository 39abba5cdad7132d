"""Run the scheduler: `python -m services.scheduler [--check]`. Settings come from `FARSIDE_*`."""

import asyncio
import sys

from pydantic import ValidationError

from libs.bus import PgLedger
from libs.db import connect, migrate
from libs.kit.logs import configure, get_logger
from services.scheduler.app import SERVICE, build
from services.scheduler.settings import SchedulerSettings
from services.scheduler.tenants import TenantBook, TenantFileError


async def run(settings: SchedulerSettings, book: TenantBook) -> None:
    """Open the ledger, bring it up to date and serve until told to stop."""
    pool = await connect(settings.dsn, SERVICE)
    await migrate(pool, SERVICE, "services.scheduler")
    await build(settings, PgLedger(pool, SERVICE), book).run()


def main(arguments: list[str]) -> int:
    """The command line; 2 when the settings or the tenant files are at fault."""
    configure(SERVICE)
    try:
        settings = SchedulerSettings()
        book = TenantBook.read(settings.tenants)
    except (ValidationError, TenantFileError) as error:
        get_logger().error("settings.invalid", detail=str(error))
        return 2
    configure(SERVICE, settings.log_level)
    if "--check" not in arguments:
        asyncio.run(run(settings, book))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
