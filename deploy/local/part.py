"""What a part of the stack is: a command, when it counts as up, and how it ends."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from deploy.local.process import Command

Probe = Callable[[], Awaitable[bool]]


class Phase(IntEnum):
    """The order in which parts end: agents first, servers last."""

    SERVER = 0
    LEAF = 1
    STEP = 2
    SERVICE = 3
    AGENT = 4


class PartState(StrEnum):
    """Where a part is in its life. `held` parts are down and stay so until they are released."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    RESTARTING = "restarting"
    FAILED = "failed"
    HELD = "held"
    STOPPED = "stopped"


async def _nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Part:
    """One supervised process.

    `prepare` runs before each start, `probe` says whether it does its work (one try; errors of connection count as
    no), `tidy` removes what the process leaves outside the stack's folder.
    """

    name: str
    phase: Phase
    after: tuple[str, ...]
    command: Command
    probe: Probe
    detail: str
    version: str
    prepare: Callable[[], Awaitable[None]] = _nothing
    tidy: Callable[[], None] = lambda: None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_s: float = 5.0
    start_s: float = 90.0


@dataclass(frozen=True)
class Step:
    """Something done once at each start; `run` returns what it did, in a few words."""

    name: str
    after: tuple[str, ...]
    run: Callable[[], Awaitable[str]]
    limit_s: float = 60.0


@dataclass(frozen=True)
class PartStatus:
    """A part at this moment."""

    name: str
    state: PartState
    pid: int | None
    restarts: int
    up_s: float | None
    version: str
    detail: str


async def answers(port: int, host: str = "127.0.0.1", timeout_s: float = 1.0) -> bool:
    """Whether something accepts connections and says a first byte (as NATS does)."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                return bool(await reader.read(1))
            finally:
                writer.close()
                await writer.wait_closed()
    except (OSError, TimeoutError):
        return False


async def http_get(port: int, path: str, host: str = "127.0.0.1", timeout_s: float = 1.0) -> str | None:
    """The body of a small page of the loopback; None unless it answers 200."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
                await writer.wait_closed()
    except (OSError, TimeoutError):
        return None
    return body.decode() if b" 200 " in head.partition(b"\r\n")[0] else None
