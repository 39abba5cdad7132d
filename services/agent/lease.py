"""The node's lease as the agent counts it.

In: heartbeats that got a PubAck, each with the moment before it was sent. Out: a file that every shim reads. The lease
runs `lease_s` from that moment on the boot clock. When it lapses its `epoch` is raised at the next renewal, so that an
attempt begun under the old one can never live on under the new.
"""

import asyncio
from pathlib import Path

from services.agent import handoff, proctree
from services.agent.handoff import Lease

NEVER = float("-inf")


class LeaseKeeper:
    """Holds the lease of one node; one writer for each file."""

    def __init__(self, path: Path, lease_s: float) -> None:
        self._path = path
        self._lease_s = lease_s
        self._boot = proctree.boot_id()
        self._epoch = 0
        self._deadline = NEVER
        self._lapsed: float | None = None
        self._renewed = asyncio.Event()

    def load(self) -> None:
        """Go on with the lease that an earlier agent held; for the one agent that runs, before its first heartbeat."""
        known = handoff.read_lease(self._path)
        if known is not None:
            self._epoch = max(self._epoch, known.epoch)
            if known.boot == self._boot:
                self._deadline, self._lapsed = max(self._deadline, known.deadline), known.lapsed

    @property
    def path(self) -> Path:
        """The file that shims read."""
        return self._path

    @property
    def epoch(self) -> int:
        """Number of the present unbroken lease."""
        return self._epoch

    @property
    def valid(self) -> bool:
        """Whether the lease runs at this moment."""
        return proctree.boottime() < self._deadline

    def end_of(self, epoch: int) -> float | None:
        """When the lease `epoch` runs out or ran out, on the boot clock; None where that is not known any more."""
        if epoch == self._epoch:
            return None if self._deadline == NEVER else self._deadline
        return self._lapsed if epoch == self._epoch - 1 else None

    async def renew(self, sent: float) -> None:
        """A heartbeat sent at `sent` (boot clock) was acknowledged just now."""
        now = proctree.boottime()
        deadline = sent + self._lease_s
        if deadline <= now or deadline <= self._deadline:
            return
        epoch, lapsed = self._epoch, self._lapsed
        if now >= self._deadline:
            epoch, lapsed = epoch + 1, None if self._deadline == NEVER else self._deadline
        lease = Lease(deadline, epoch, self._boot, lapsed)
        await asyncio.to_thread(handoff.write, self._path, lease, durable=False)
        self._deadline, self._epoch, self._lapsed = deadline, epoch, lapsed
        self._renewed.set()

    async def wait_valid(self) -> int:
        """Wait for a running lease; its epoch."""
        while not self.valid:
            self._renewed.clear()
            await self._renewed.wait()
        return self._epoch
