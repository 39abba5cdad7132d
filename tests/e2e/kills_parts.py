"""The parts that are killed: what each is in the middle of, and how long until it works again.

In: a running fleet and numbers of submits. Out: one SIGKILL after the other, each when the part before is up again, and
a table of recoveries. Nothing is done for a killed part.
"""

import asyncio
import os
import signal
import time
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from contracts import registry
from contracts.jobs import DatasetRef
from contracts.registry import ALERTING, BILLING, CHECKPOINT, INVENTORY, METERING, SCHEDULER, TRANSFER, Message
from contracts.transfers import TransferRequest
from contracts.usage import CloseRequest
from deploy.local.part import PartState
from libs.bus import Event
from libs.bus.reader import Since
from libs.cli.session import connected
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.objects import upload_prefix
from libs.objects.datasets import build_manifest, manifest_sha256, upload_folder
from tests.e2e.commands import status_of
from tests.e2e.fleet import TASKS, TENANT, Fleet
from tests.waiting import until

LIMIT_S = 120.0
SPARE = "spare"

CENTRAL, REMOTE = ("central-1", "central-2"), ("remote-1", "remote-2")
# Agents that are at work, whichever they are.
AGENTS = {"central agent": CENTRAL, "remote agent": REMOTE}


@dataclass(frozen=True)
class Effect:
    """What a part does first when it is back, as a stream tells it: any of `messages` under any of `keys`."""

    messages: tuple[Message[Any], ...]
    keys: tuple[str, ...] = (TENANT,)


EFFECTS = {
    SCHEDULER: Effect((registry.JOBS_ACCEPTED,)),
    "nats": Effect((registry.JOBS_ACCEPTED,)),
    CHECKPOINT: Effect((registry.CHECKPOINTS_COMMITTED,)),
    "postgres": Effect((registry.JOBS_ACCEPTED,)),
    TRANSFER: Effect((registry.TRANSFERS_COMPLETED,)),
    "leaf": Effect((registry.ATTEMPTS_STARTED,), REMOTE),
    "seaweed": Effect((registry.CHECKPOINTS_COMMITTED,)),
    "central agent": Effect((registry.ATTEMPTS_EXITED,), CENTRAL),
    METERING: Effect((registry.USAGE_PERIOD_CLOSED,)),
    BILLING: Effect((registry.INVOICES_ISSUED,)),
    ALERTING: Effect((registry.ALERTS_RESOLVED,), (registry.NO_KEY,)),
    INVENTORY: Effect((registry.NODES_GRADED, registry.NODES_RETURNED), (SPARE,)),
    "remote agent": Effect((registry.ATTEMPTS_EXITED,), REMOTE),
}
PARTS = tuple(EFFECTS)


@dataclass(frozen=True)
class Kill:
    """A part was killed, `process` by its name in the stack; `up_s` later it answered again."""

    part: str
    process: str
    at: datetime
    up_s: float


class Kills:
    """Kills by the number of the submit ahead of which they come, and what was asked of the parts at that moment."""

    def __init__(self, running: Fleet, schedule: dict[int, str]) -> None:
        self._running = running
        self._schedule = schedule
        self._striking: asyncio.Task[None] | None = None
        self.done: list[Kill] = []
        self.closings: list[str] = []
        self.billed: list[str] = []
        self.transfers: list[str] = []

    async def before(self, number: int) -> None:
        """Ahead of a submit: kill the part whose turn it is, once the one before is up again."""
        if number in self._schedule:
            await self.recovered()
            self._striking = asyncio.create_task(self._strike(self._schedule[number]))

    async def recovered(self) -> None:
        """Wait until the part that was killed last is up again."""
        if self._striking is not None:
            await self._striking

    def lose_spare(self) -> None:
        """The node that runs nothing dies."""
        self._running.stack.hold(SPARE)
        self._signal(SPARE, signal.SIGKILL)

    async def return_spare(self) -> None:
        """It was lost, and comes back; safe to repeat."""
        await self.nth(registry.NODES_LOST, SPARE)
        self._running.stack.release(SPARE)
        await self.nth(registry.NODES_RETURNED, SPARE)

    async def close(self) -> int:
        """Close the tenant's usage now, asked until it is answered; returns the samples in it. None make no invoice."""
        self.closings.append(new_id())
        asked = CloseRequest(close_id=self.closings[-1])
        reply = await self._running.client.request(registry.CALL_CLOSE, asked, key=TENANT, timeout_s=LIMIT_S)
        if reply.samples:
            self.billed.append(reply.close_id)
        return reply.samples

    async def nth(
        self, message: Message[Any], key: str | tuple[str, ...], count: int = 1, *, since: Since = "all"
    ) -> Event[Any]:
        """Wait for the `count`-th message under a key."""
        reading = self._running.client.events([message], key=key, since=since)
        async with asyncio.timeout(LIMIT_S), aclosing(reading) as events:
            async for event in events:
                count -= 1
                if count == 0:
                    return event
        pytest.fail("a reader of events came to an end")

    async def _strike(self, part: str) -> None:
        process = await self._moment(part)
        stack = self._running.stack
        restarts, at, begun = status_of(stack, process).restarts, SystemClock().now(), time.monotonic()
        self._signal(process, signal.SIGKILL)

        def up() -> bool:
            status = status_of(stack, process)
            return status.restarts > restarts and status.state is PartState.UP

        await until(up, LIMIT_S, f"{process} to be up again")
        self.done.append(Kill(part, process, at, time.monotonic() - begun))

    async def _moment(self, part: str) -> str:
        """Bring about, or wait for, something that the part has to do; the name of its process."""
        if part in AGENTS:
            return (await self.nth(registry.ATTEMPTS_STARTED, AGENTS[part], since="new")).body.node
        if part == CHECKPOINT:
            await self.nth(registry.ATTEMPTS_SAVED, "*", since="new")
        elif part == TRANSFER:
            await self._request_transfer()
        elif part == METERING:
            await self.close()
        elif part == BILLING:
            await until(self.close, LIMIT_S, "usage to be billed")
            await self.nth(registry.USAGE_PERIOD_CLOSED, TENANT, len(self.closings))
        elif part == ALERTING:
            await self.nth(registry.NODES_LOST, SPARE)
            self._signal(part, signal.SIGSTOP)  # or it would be too quick
            await self.return_spare()
        elif part == INVENTORY:
            await self.return_spare()
            starts = await self._running.client.history([registry.NODES_ANNOUNCED], key=SPARE)
            self._signal(part, signal.SIGSTOP)
            self._signal(SPARE, signal.SIGKILL)
            await self.nth(registry.NODES_ANNOUNCED, SPARE, len(starts) + 1)
        return part

    def _signal(self, part: str, number: signal.Signals) -> None:
        os.kill(self._running.stack.pid(part), number)

    async def _request_transfer(self) -> None:
        """Ask for a dataset version; returns when the stream has the request."""
        self.transfers.append(new_id())
        dataset = DatasetRef(name="kills", version=f"v{len(self.transfers)}")
        manifest, prefix = build_manifest(TASKS, dataset), upload_prefix(TENANT, self.transfers[-1])
        async with connected(self._running.stack.directory) as session, session.store() as store:
            source = await asyncio.to_thread(upload_folder, store.blocking, TASKS, manifest, prefix)
        request = TransferRequest(
            transfer_id=self.transfers[-1],
            tenant=TENANT,
            dataset=dataset,
            source=source,
            manifest_sha256=manifest_sha256(manifest),
        )
        await self._running.client.publish(
            registry.TRANSFERS_REQUEST, request, key=TENANT, subject=request.transfer_id, actor="test"
        )
