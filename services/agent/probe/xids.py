"""Errors that the driver tells of while it runs: XIDs, listened for by a thread.

In: NVML's event set. Out: a bounded queue of sightings, and a wake for whoever reads it. The thread waits WAIT_MS at a
time, ends when it is told to, and begins anew when the event set breaks, as it does when a card is lost.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from services.agent.probe.driver import Driver, code_of

WAIT_MS = 500
AGAIN_S = 5.0
MAX_WAITING = 1024
XID, DRAM_RETIREMENT_FAILURE = 0x8, 0x800
TIMEOUT = 10


@dataclass(frozen=True)
class Sighting:
    """One XID of a card."""

    index: int
    code: int
    at: datetime


class XidListener:
    """Listens for as long as the agent runs; without a driver that knows events it does nothing."""

    def __init__(self, driver: Driver, clock: Clock, wake: Callable[[], object]) -> None:
        self._driver = driver
        self._clock = clock
        self._wake = wake
        self._seen: deque[Sighting] = deque(maxlen=MAX_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xids", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """End; the thread notices within WAIT_MS, and no longer than that is waited for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2 * WAIT_MS / 1000)

    def take(self) -> list[Sighting]:
        """What came since the last call; of more than MAX_WAITING the newest."""
        found: list[Sighting] = []
        while self._seen:
            found.append(self._seen.popleft())
        return found

    def _run(self) -> None:
        while not self._stop.is_set():
            nvml: Any = self._driver.session()
            if nvml is None:
                return
            try:
                if not self._listen(nvml):
                    return
            except nvml.NVMLError as error:
                get_logger().warning("xids.deaf", error=str(error), again_s=AGAIN_S)
                self._stop.wait(AGAIN_S)

    def _listen(self, nvml: Any) -> bool:
        """Wait for events until told to stop; False where no card tells any. Raises NVMLError when the set breaks."""
        events = nvml.nvmlEventSetCreate()
        try:
            cards = self._register(nvml, events)
            while cards and not self._stop.is_set():
                self._next(nvml, events, cards)
            return bool(cards)
        finally:
            nvml.nvmlEventSetFree(events)

    def _register(self, nvml: Any, events: Any) -> dict[int, int]:
        """The cards that tell of their XIDs: indexes by the address of the handle."""
        cards: dict[int, int] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                able = nvml.nvmlDeviceGetSupportedEventTypes(handle)
                nvml.nvmlDeviceRegisterEvents(handle, able & (XID | DRAM_RETIREMENT_FAILURE), events)
            except nvml.NVMLError as error:
                get_logger().info("xids.not_told", card=index, error=str(error))
            else:
                cards[_address(handle)] = index
        return cards

    def _next(self, nvml: Any, events: Any, cards: dict[int, int]) -> None:
        try:
            event = nvml.nvmlEventSetWait(events, WAIT_MS)
        except nvml.NVMLError as error:
            if code_of(error) == TIMEOUT:
                return
            raise
        index = cards.get(_address(event.device))
        if index is not None and event.eventType == XID:
            self._seen.append(Sighting(index, int(event.eventData), self._clock.now()))
        self._wake()


def _address(handle: Any) -> int:
    import ctypes  # noqa: PLC0415 - of no use where there is no driver

    return ctypes.cast(handle, ctypes.c_void_p).value or 0
