"""What metering counts for the Prometheus endpoint."""

from collections.abc import Mapping

from opentelemetry import metrics

from contracts.usage import RowFault


class Meters:
    """Counters of this process."""

    def __init__(self) -> None:
        """Make the instruments; they count nowhere when no endpoint is set up."""
        meter = metrics.get_meter("farside.metering")
        self._samples = meter.create_counter("farside.metering.samples", description="Samples stored.")
        self._refused = meter.create_counter("farside.metering.refused", description="Rows kept and not billed.")
        self._closes = meter.create_counter("farside.metering.closes", description="Closings carried out.")

    def stored(self, samples: int) -> None:
        """New samples were stored."""
        self._samples.add(samples)

    def refused(self, faults: Mapping[RowFault, int]) -> None:
        """Rows were kept with a fault."""
        for fault, count in faults.items():
            self._refused.add(count, {"fault": fault.value})

    def closed(self) -> None:
        """A closing was carried out."""
        self._closes.add(1)
