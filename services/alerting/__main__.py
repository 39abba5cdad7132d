"""Run the alerting service: `python -m services.alerting [--check]`. Settings come from `FARSIDE_*`."""

from libs.bus import PgLedger
from libs.kit.start import main
from services.alerting.app import SERVICE, build
from services.alerting.settings import AlertingSettings


async def run(settings: AlertingSettings) -> None:
    """Open the ledger and serve until told to stop."""
    await build(settings, await PgLedger.open(settings.dsn, SERVICE)).run()


if __name__ == "__main__":
    main(SERVICE, AlertingSettings, run)
