"""Run metering: `python -m services.metering [--check]`. Settings come from `FARSIDE_*`."""

import asyncio
import sys

from libs.bus import PgLedger
from libs.db import connect, migrate
from libs.kit.start import read_settings
from libs.objects import AsyncStore
from services.metering.app import SERVICE, build
from services.metering.settings import MeteringSettings


async def run(settings: MeteringSettings) -> None:
    """Open ledger and store, bring the schema up to date and serve until told to stop."""
    pool = await connect(settings.dsn, SERVICE)
    await migrate(pool, SERVICE, "services.metering")
    objects = AsyncStore.open(settings)
    try:
        await build(settings, PgLedger(pool, SERVICE), objects).run()
    finally:
        await objects.close()


def main(arguments: list[str]) -> int:
    """The command line."""
    settings = read_settings(SERVICE, MeteringSettings)
    if "--check" not in arguments:
        asyncio.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
