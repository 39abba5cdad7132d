"""Run inventory: `python -m services.inventory [--check]`. Settings come from `FARSIDE_*`."""

import asyncio
import sys

from libs.bus import PgLedger
from libs.db import connect, migrate
from libs.kit.start import read_settings
from services.inventory.app import build
from services.inventory.settings import InventorySettings

SERVICE = "inventory"


async def run(settings: InventorySettings) -> None:
    """Open the ledger, bring it up to date and serve until told to stop."""
    pool = await connect(settings.dsn, SERVICE)
    await migrate(pool, SERVICE, "services.inventory")
    await build(settings, PgLedger(pool, SERVICE)).run()


def main(arguments: list[str]) -> int:
    """The command line."""
    settings = read_settings(SERVICE, InventorySettings)
    if "--check" not in arguments:
        asyncio.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
