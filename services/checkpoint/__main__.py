"""Run the checkpoint service: `python -m services.checkpoint [--check]`. Settings come from `FARSIDE_*`."""

from libs.bus import PgLedger
from libs.kit.start import main
from libs.objects import AsyncStore
from services.checkpoint.app import SERVICE, build
from services.checkpoint.settings import CheckpointSettings


async def run(settings: CheckpointSettings) -> None:
    """Open ledger and store, and serve until told to stop."""
    async with AsyncStore.open(settings) as objects:
        await build(settings, await PgLedger.open(settings.dsn, SERVICE), objects).run()


if __name__ == "__main__":
    main(SERVICE, CheckpointSettings, run)
