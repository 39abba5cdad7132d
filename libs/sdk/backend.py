"""What a session needs from the world around it: an agent's socket, or plain folders on a laptop."""

from dataclasses import dataclass
from typing import Protocol

from libs.sdk.protocol import JobInfo


@dataclass(frozen=True)
class Point:
    """One progress report. Serials only grow, so that none is counted twice after a reconnect."""

    serial: int
    step: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class SavedFile:
    """A checkpoint file ready to be taken: how long the training stood still, and how long writing took."""

    step: int
    file: str
    sha256: str
    size_bytes: int
    stall_ms: int
    write_ms: int


@dataclass(frozen=True)
class SaveStatus:
    """Steps on their way to the store, and the newest one that is there."""

    pending: tuple[int, ...]
    saved: int | None


class Backend(Protocol):
    """The calls of a session. Each may take long, and none is lost: they return when the other side has it."""

    @property
    def info(self) -> JobInfo:
        """What the task may know of its job."""
        ...

    def progress(self, points: list[Point], *, flush: bool) -> int:
        """Hand points over; the newest serial that is kept for good."""
        ...

    def save(self, saved: SavedFile) -> None:
        """Hand a checkpoint file over; returns when it is noted down."""
        ...

    def saves(self, wait_s: float) -> SaveStatus:
        """How saves stand, once none is pending or `wait_s` have passed."""
        ...

    def ready(self, endpoint: str) -> None:
        """Say that the job serves at `endpoint`."""
        ...

    def close(self) -> None:
        """Let go."""
        ...
