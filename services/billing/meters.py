"""What billing counts for its metrics: invoices and what they come to, by currency, and closings held at the moment."""

from contracts.invoices import Invoice
from libs.telemetry.metrics import counter, gauge

INVOICES = counter("farside.billing.invoices", "{invoice}", "Invoices issued, by currency.")
INVOICED = counter("farside.billing.invoiced", "{micro}", "Millionths of a currency invoiced, by currency.")


class Meters:
    """The counts of this process."""

    def __init__(self) -> None:
        """Nothing is held until it is looked up."""
        self.held = 0
        gauge("farside.billing.held", lambda: self.held, "{closing}", "Closings that cannot be rated at the moment.")

    def issued(self, invoice: Invoice) -> None:
        """An invoice was issued."""
        INVOICES.add(currency=invoice.currency)
        INVOICED.add(invoice.total_micro, currency=invoice.currency)
