"""Run billing: `python -m services.billing [--check]`. Settings come from `FARSIDE_*`."""

import asyncio
import sys

from libs.bus import PgLedger
from libs.db import connect, migrate
from libs.kit.logs import get_logger
from libs.kit.start import BAD_SETTINGS, read_settings
from services.billing.app import SERVICE, build
from services.billing.rates import RateBook, RateCardError
from services.billing.settings import BillingSettings


async def run(settings: BillingSettings, book: RateBook) -> None:
    """Open the ledger, bring it up to date and serve until told to stop."""
    pool = await connect(settings.dsn, SERVICE)
    await migrate(pool, SERVICE, "services.billing")
    await build(settings, PgLedger(pool, SERVICE), book).run()


def main(arguments: list[str]) -> int:
    """The command line; 2 when a rate card is at fault."""
    settings = read_settings(SERVICE, BillingSettings)
    try:
        book = RateBook.read(settings.rates)
    except RateCardError as error:
        get_logger().error("settings.invalid", detail=str(error))
        return BAD_SETTINGS
    if "--check" not in arguments:
        asyncio.run(run(settings, book))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
