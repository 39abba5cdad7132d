"""Run billing: `python -m services.billing [--check]`. Settings come from `FARSIDE_*`."""

from libs.bus import PgLedger
from libs.kit.start import main
from services.billing.app import SERVICE, build
from services.billing.rates import RateBook
from services.billing.settings import BillingSettings


async def run(settings: BillingSettings) -> None:
    """Open the ledger and serve until told to stop."""
    await build(settings, await PgLedger.open(settings.dsn, SERVICE), RateBook.read(settings.rates)).run()


if __name__ == "__main__":
    main(SERVICE, BillingSettings, run)
