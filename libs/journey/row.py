"""A row of a waterfall."""

from dataclasses import dataclass
from datetime import datetime

from libs.journey.span import Ref, at

NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Row:
    """One line of a waterfall. Times in nanoseconds since 1970.

    `count` is above one for what is told together; `linked` says that it is a trace of its own; `state` is
    `running` for an attempt that goes on, else what ended it where it did not complete. `member` is known for runs.
    """

    start_ns: int
    end_ns: int
    service: str
    node: str
    name: str
    words: str
    services: tuple[str, ...] = ()
    deliveries: int = 1
    count: int = 1
    spans: int = 1
    linked: bool = False
    error: bool = False
    state: str = ""
    member: str = ""
    trace_id: str = ""
    span_id: str = ""
    links: tuple[Ref, ...] = ()

    @property
    def started_at(self) -> datetime:
        """Its start as a time, to the microsecond."""
        return at(self.start_ns)

    @property
    def duration_ms(self) -> float:
        """From start to end; never negative, though clocks of several machines may differ."""
        return max(0, self.end_ns - self.start_ns) / NS_PER_MS
