"""Read a folder of trace files, one line after the other, and tell which of the processes behind them were killed.

A process of ours holds a lock on its file while it lives and ends the file with a span `process ended`. A file of one
process that has neither is what a killed process left. In a file of several processes, such as the Collector writes,
only the last span tells something.
"""

import fcntl
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from libs.journey.span import DamagedError, Origin, Span, at, spans_of

PROCESS_ENDED = "process ended"
_MENTIONED = re.compile(rb'"traceId"\s*:\s*"([0-9a-fA-F]{32})"')


class Fate(StrEnum):
    """What is known of a process."""

    LIVING = "living"
    ENDED = "ended"
    KILLED = "killed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Process:
    """A process and the end of the last span it wrote, in nanoseconds since 1970."""

    origin: Origin
    fate: Fate
    last_ns: int

    @property
    def last_at(self) -> datetime:
        """The end of its last span as a time, to the microsecond."""
        return at(self.last_ns)


@dataclass
class Folder:
    """The trace files of a folder, and what reading them through has told."""

    path: Path
    damaged_lines: int = 0
    _last_ns: dict[Origin, int] = field(default_factory=dict[Origin, int])
    _fates: dict[Origin, Fate] = field(default_factory=dict[Origin, Fate])

    def read(self) -> Iterator[Span]:
        """Every span, and on the way the fates of processes and the number of damaged lines."""
        for file in files(self.path):
            # Asked before the file is read: what a process without the lock wrote is all there.
            living = is_held(file)
            seen: set[Origin] = set()
            for span in self._spans(file):
                seen.add(span.origin)
                self._last_ns[span.origin] = max(span.end_ns, self._last_ns.get(span.origin, 0))
                if span.name == PROCESS_ENDED:
                    self._fates[span.origin] = Fate.ENDED
                yield span
            if len(seen) == 1:
                self._fates.setdefault(seen.pop(), Fate.LIVING if living else Fate.KILLED)

    def _spans(self, file: Path) -> Iterator[Span]:
        for line in _lines(file):
            try:
                yield from spans_of(line)
            except DamagedError:
                # A line without its end is the last one of a process that was killed or is writing it now.
                self.damaged_lines += line.endswith(b"\n")

    def only(self, trace_ids: frozenset[str]) -> Iterator[Span]:
        """The spans of some traces. Lines that do not mention one are passed over undecoded."""
        for file in files(self.path):
            for line in _lines(file):
                if any(found.decode().lower() in trace_ids for found in _MENTIONED.findall(line)):
                    yield from self._wanted(line, trace_ids)

    def _wanted(self, line: bytes, trace_ids: frozenset[str]) -> Iterator[Span]:
        try:
            for span in spans_of(line):
                if span.ref.trace_id in trace_ids:
                    yield span
        except DamagedError:
            return  # counted by read()

    def processes(self) -> list[Process]:
        """The processes that wrote here, in the order of their last spans; complete once `read` is through."""
        found = [
            Process(origin, self._fates.get(origin, Fate.UNKNOWN), last_ns) for origin, last_ns in self._last_ns.items()
        ]
        return sorted(found, key=lambda process: (process.last_ns, str(process.origin)))


def files(folder: Path) -> list[Path]:
    """The trace files of a folder, in the order of their names."""
    return sorted(file for file in folder.glob("*.jsonl") if file.is_file())


def _lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        for line in stream:
            if line.strip():
                yield line


def is_held(file: Path) -> bool:
    """Whether a living process holds the lock of this file."""
    with file.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
