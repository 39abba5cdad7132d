"""Run inventory: `python -m services.inventory [--check]`. Settings come from `FARSIDE_*`."""

from libs.bus import PgLedger
from libs.kit.start import main
from services.inventory.app import SERVICE, build
from services.inventory.settings import InventorySettings


async def run(settings: InventorySettings) -> None:
    """Open the ledger and serve until told to stop."""
    await build(settings, await PgLedger.open(settings.dsn, SERVICE)).run()


if __name__ == "__main__":
    main(SERVICE, InventorySettings, run)
