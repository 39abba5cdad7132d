"""The gate: work is taken from the bus only while the store answers and, where it matters, this process leads."""

import asyncio
from collections.abc import Awaitable, Callable

from libs.kit.logs import get_logger
from libs.kit.retry import delays

PROBE_FIRST_S = 0.1
PROBE_CAP_S = 1.0
PATIENCE = 20


class Gate:
    """Open or closed; pull loops, held messages and background tasks wait on it."""

    def __init__(self, *, needs_leader: bool) -> None:
        self.down = False
        self.leading = False
        self.needs_leader = needs_leader
        self._opened = asyncio.Event()
        self._closed = asyncio.Event()
        self._update()

    def _update(self) -> None:
        if not self.down and (self.leading or not self.needs_leader):
            self._closed.clear()
            self._opened.set()
        else:
            self._opened.clear()
            self._closed.set()

    @property
    def is_open(self) -> bool:
        """Whether work may be taken."""
        return self._opened.is_set()

    def set_down(self, *, down: bool) -> None:
        """The store is away, or back."""
        self.down = down
        self._update()

    def set_leading(self, *, leading: bool) -> None:
        """Whether this process leads."""
        self.leading = leading
        self._update()

    async def wait_open(self) -> None:
        """Return once work may be taken."""
        await self._opened.wait()

    async def wait_closed(self) -> None:
        """Return once no more work may be taken."""
        await self._closed.wait()

    async def opens_within(self, timeout_s: float) -> bool:
        """Whether the gate is open, now or within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._opened.wait()
        except TimeoutError:
            return False
        return True


class Health:
    """Finds out whether the store is away when something failed; closes the gate, opens it when the store is back."""

    def __init__(self, gate: Gate, ping: Callable[[], Awaitable[None]], *, service: str) -> None:
        self._gate = gate
        self._ping = ping
        self._service = service
        self._probe: asyncio.Task[None] | None = None

    async def alive(self) -> bool:
        """Ask the store; False closes the gate until it answers again."""
        if self._gate.down:
            return False
        try:
            await self._ping()
        except Exception as error:  # noqa: BLE001 - whatever the reason, it does not answer
            if not self._gate.down:
                get_logger().error("bus.store_down", app=self._service, error=repr(error))
                self._gate.set_down(down=True)
                self._probe = asyncio.create_task(self._probe_until_back())
            return False
        return True

    async def _probe_until_back(self) -> None:
        for delay_s in delays(PROBE_FIRST_S, PROBE_CAP_S):
            await asyncio.sleep(delay_s)
            try:
                await self._ping()
            except Exception:  # noqa: BLE001, S112 - asked again after the next delay, for as long as it takes
                continue
            break
        get_logger().info("bus.store_back", app=self._service)
        self._gate.set_down(down=False)

    async def judge(self, error: Exception, transient: bool, failures: int) -> None:  # noqa: FBT001 - a verdict
        """Raise `error` if it is here to stay: the store answers, and it is not of the kind that passes.

        `failures` in a row of whatever kind, with the store answering, are here to stay too.
        """
        if await self.alive() and (not transient or failures >= PATIENCE):
            raise error

    def stop(self) -> None:
        """End the probe, if one runs."""
        if self._probe is not None:
            self._probe.cancel()
