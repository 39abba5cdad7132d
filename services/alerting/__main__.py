"""Run the alerting service: `python -m services.alerting [--check]`. Settings come from `FARSIDE_*`."""

import asyncio
import sys

from libs.db import connect, migrate
from libs.kit.start import read_settings
from services.alerting.after import AlertingLedger
from services.alerting.app import SERVICE, build
from services.alerting.settings import AlertingSettings


async def run(settings: AlertingSettings) -> None:
    """Open the ledger, bring the schema up to date and serve until told to stop."""
    pool = await connect(settings.dsn, SERVICE)
    await migrate(pool, SERVICE, "services.alerting")
    await build(settings, AlertingLedger(pool, SERVICE)).run()


def main(arguments: list[str]) -> int:
    """The command line."""
    settings = read_settings(SERVICE, AlertingSettings)
    if "--check" not in arguments:
        asyncio.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
