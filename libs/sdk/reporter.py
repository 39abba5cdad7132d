"""Progress on its way out: the job's loop only appends, a thread sends.

In: points. Out: batches to the backend. The buffer is bounded: when the other side is away for long, only every second
point is held, then every fourth, so that the curve keeps its shape; the newest point is always held.
"""

import threading
import time

from libs.sdk.backend import Backend, Point
from libs.sdk.errors import LinkError, RefusedError

HELD_POINTS = 8192
BATCH_POINTS = 256
FLUSH_BATCHES = 100_000
PAUSE_S = 0.1
STALLED_PAUSE_S = 1.0


class Reporter:
    """Holds points until the agent has kept them for good."""

    def __init__(self, backend: Backend, patience_s: float) -> None:
        self._backend = backend
        self._patience_s = patience_s
        self._serial = backend.info.serial
        self._points: list[Point] = []
        self._stride = 1
        self._sent = self._serial
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="farside-progress", daemon=True)
        self._thread.start()

    def add(self, step: int, metrics: dict[str, float]) -> None:
        """Take in a point; never waits for the agent."""
        with self._changed:
            self._serial += 1
            if self._points and self._points[-1].serial % self._stride:
                self._points.pop()
            self._points.append(Point(self._serial, step, metrics))
            if len(self._points) > HELD_POINTS:
                self._stride *= 2
                newest = self._points[-1]
                self._points = [p for p in self._points if p.serial % self._stride == 0 or p is newest]
            self._changed.notify()

    def flush(self) -> None:
        """Return when every point is kept for good. Raises LinkError when the agent stays away."""
        deadline = time.monotonic() + self._patience_s
        for _ in range(FLUSH_BATCHES):
            try:
                if not self._send(flush=True):
                    return
            except LinkError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE_S)

    def close(self, *, flush: bool) -> None:
        """Stop sending; with `flush` everything is handed over first."""
        if flush:
            self.flush()
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._unsent())
                if self._closed:
                    return
            pause_s = PAUSE_S
            try:
                self._send(flush=False)
            except LinkError:
                pause_s = STALLED_PAUSE_S
            with self._changed:
                self._changed.wait_for(lambda: self._closed, timeout=pause_s)

    def _unsent(self) -> bool:
        return bool(self._points) and self._points[-1].serial > self._sent

    def _send(self, *, flush: bool) -> bool:
        """Send one batch; whether points are left that this call could send or see kept."""
        with self._sending:
            with self._changed:
                batch = [point for point in self._points if point.serial > self._sent][:BATCH_POINTS]
                if not batch and not (flush and self._points):
                    return False
            try:
                kept = self._backend.progress(batch, flush=flush)
            except LinkError:
                with self._changed:
                    self._sent = self._points[0].serial - 1 if self._points else self._sent
                raise
            except RefusedError:
                kept = batch[-1].serial if batch else self._sent
            with self._changed:
                self._sent = batch[-1].serial if batch else self._sent
                self._points = [point for point in self._points if point.serial > kept]
                self._stride = self._stride if self._points else 1
                return bool(self._points) and (flush or self._unsent())
