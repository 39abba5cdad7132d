"""Run metering: `python -m services.metering [--check]`. Settings come from `FARSIDE_*`."""

from libs.bus import PgLedger
from libs.kit.start import main
from libs.objects import AsyncStore
from services.metering.app import SERVICE, build
from services.metering.settings import MeteringSettings


async def run(settings: MeteringSettings) -> None:
    """Open ledger and store, and serve until told to stop."""
    async with AsyncStore.open(settings) as objects:
        await build(settings, await PgLedger.open(settings.dsn, SERVICE), objects).run()


if __name__ == "__main__":
    main(SERVICE, MeteringSettings, run)
