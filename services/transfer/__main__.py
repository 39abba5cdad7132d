"""Run the transfer service: `python -m services.transfer [--check]`. Settings come from `FARSIDE_*`."""

from libs.bus import PgLedger
from libs.kit.start import main
from libs.objects import AsyncStore
from services.transfer.app import SERVICE, build
from services.transfer.settings import TransferSettings


async def run(settings: TransferSettings) -> None:
    """Open ledger and store, and serve until told to stop."""
    async with AsyncStore.open(settings) as objects:
        await build(settings, await PgLedger.open(settings.dsn, SERVICE), objects).run()


if __name__ == "__main__":
    main(SERVICE, TransferSettings, run)
