"""What billing counts for the Prometheus endpoint: invoices, closings held, and what was invoiced by currency."""

from opentelemetry import metrics

from contracts.invoices import Invoice


class Meters:
    """Counters of this process."""

    def __init__(self) -> None:
        """Make the instruments; they count nowhere when no endpoint is set up."""
        meter = metrics.get_meter("farside.billing")
        self._issued = meter.create_counter("farside.billing.invoices", description="Invoices issued.")
        self._held = meter.create_counter("farside.billing.held", description="Closings held, once for each reason.")
        self._amount = meter.create_counter(
            "farside.billing.amount", unit="{micro}", description="Millionths of a currency invoiced."
        )

    def issued(self, invoice: Invoice) -> None:
        """An invoice was issued."""
        self._issued.add(1, {"tenant": invoice.tenant})
        self._amount.add(invoice.total_micro, {"currency": invoice.currency})

    def held(self, tenant: str) -> None:
        """A closing is held."""
        self._held.add(1, {"tenant": tenant})
