"""What metering counts for its metrics: rows by what became of them, closings, and how far behind the stream it is."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from contracts.usage import RowFault
from libs.telemetry.metrics import counter, histogram

SAMPLES = counter("farside.metering.samples", "{sample}", "Samples stored.")
REFUSED = counter("farside.metering.refused", "{row}", "Rows kept and not billed, by fault.")
CLOSES = counter("farside.metering.closes", "{closing}", "Closings carried out.")
LAG = histogram("farside.metering.lag", "From when the stream took the oldest message of a batch to its judgement.")


class Meters:
    """The counts of this process."""

    def stored(self, samples: int) -> None:
        """New samples were stored."""
        SAMPLES.add(samples)

    def refused(self, faults: Iterable[RowFault]) -> None:
        """Rows were kept, each with a fault."""
        for fault, count in Counter(faults).items():
            REFUSED.add(count, fault=fault.value)

    def judged(self, stored_at: datetime, now: datetime) -> None:
        """A batch whose oldest message was stored at `stored_at` was judged."""
        LAG.record(max(0.0, (now - stored_at).total_seconds()))

    def closed(self) -> None:
        """A closing was carried out."""
        CLOSES.add()
