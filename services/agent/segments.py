"""A task's output on disk: segments named by the offset of their first byte, within a bound.

In: bytes from the task. Out: files `<offset>.log`; the first `head_bytes` are kept until the agent has shipped them,
and of what comes after, the newest `tail_bytes`. Imports the standard library only.
"""

import os
from contextlib import suppress
from pathlib import Path

from services.agent.handoff import LogBound


def segment_name(offset: int) -> str:
    """`0000000000262144.log`: sorts by offset."""
    return f"{offset:016d}.log"


class SegmentWriter:
    """Appends to the newest segment and drops the oldest ones of the tail."""

    def __init__(self, folder: Path, bound: LogBound) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._bound = bound
        self._total = 0
        self._start = 0
        self._handle = self._open(0)
        self._tail: list[int] = []

    def write(self, data: bytes) -> None:
        """Append; a new segment begins wherever a segment is full or the head ends.

        What a full disk does not take is dropped: a task does not die of its log.
        """
        view = memoryview(data)
        while view:
            room = self._segment_end() - self._total
            if room <= 0:
                self._roll()
                continue
            try:
                count = os.write(self._handle, view[:room])
            except OSError:
                return
            self._total += count
            view = view[count:]

    def close(self) -> None:
        """Close the newest segment."""
        os.close(self._handle)

    def _segment_end(self) -> int:
        end = self._start + self._bound.segment_bytes
        return min(end, self._bound.head_bytes) if self._start < self._bound.head_bytes else end

    def _roll(self) -> None:
        os.close(self._handle)
        self._start = self._total
        self._handle = self._open(self._start)
        if self._start >= self._bound.head_bytes:
            self._tail.append(self._start)
            self._drop()

    def _drop(self) -> None:
        while len(self._tail) > 1 and self._total - self._tail[1] >= self._bound.tail_bytes:
            with suppress(FileNotFoundError):
                (self._folder / segment_name(self._tail.pop(0))).unlink()

    def _open(self, offset: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.open(self._folder / segment_name(offset), flags, 0o600)
