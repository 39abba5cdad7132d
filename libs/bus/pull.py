"""A pull that lingers: one request stays open at the server and each message is handed over as it arrives.

nats-py's `fetch(n)` may sit on a partial batch until its timeout. Here a request asks for as many messages as there is
room, messages go out one by one, and the next request follows when this one is used up and half of the room is free:
one for each message would cost as much as the message. Never more than `capacity` messages are asked for and not yet
released, so nothing waits here past its ack_wait.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from libs.bus.connection import subscribe
from libs.kit.logs import get_logger
from libs.kit.retry import delay

EXPIRES_S = 30.0
HEARTBEAT_S = 2.0
MISSED_HEARTBEATS = 2.5
RETRY_FIRST_S = 0.05
RETRY_CAP_S = 1.0
_NS = 1_000_000_000

STATUS = "Status"
_HEARTBEAT = "100"
_OVER = {"404", "408"}


@dataclass(frozen=True)
class PullTarget:
    """Which consumer to pull from. `api` is the JetStream API's prefix, `inbox` where messages are delivered."""

    api: str
    stream: str
    consumer: str
    inbox: str

    @property
    def next_subject(self) -> str:
        """Where requests for messages go."""
        return f"{self.api}.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}"


class Puller:
    """Keeps one request open while there is room. `release` must be called once for each message handed over."""

    def __init__(
        self, connection: NatsClient, target: PullTarget, capacity: int, deliver: Callable[[Msg], None]
    ) -> None:
        self.target = target
        self.refused = 0
        self._connection = connection
        self._capacity = capacity
        self._deliver = deliver
        self._held = 0
        self._asked = 0
        self._number = 0
        self._changed = asyncio.Event()

    @property
    def held(self) -> int:
        """Messages handed over and not released yet."""
        return self._held

    def release(self) -> None:
        """A message is done with; there is room for another."""
        self._held -= 1
        self._changed.set()

    def restart(self) -> None:
        """The open request is lost (the connection was): send a new one."""
        self._asked = 0
        self._changed.set()

    async def run(self) -> None:
        """Pull until cancelled."""
        subscription = await subscribe(self._connection, f"{self.target.inbox}.*", self._arrived)
        try:
            while True:
                await self._request()
        finally:
            self._asked = 0
            if not self._connection.is_closed and not self._connection.is_draining:
                await subscription.unsubscribe()

    async def _request(self) -> None:
        """Wait for room, ask, and return when the request is used up, refused or lost."""
        while self._held > self._capacity // 2:
            await self._wait(None)
        if self.refused:
            await asyncio.sleep(delay(self.refused - 1, RETRY_FIRST_S, RETRY_CAP_S))
        self._number += 1
        self._asked = self._capacity - self._held
        request = {
            "batch": self._asked,
            "expires": int(EXPIRES_S * _NS),
            "idle_heartbeat": int(HEARTBEAT_S * _NS),
        }
        reply = f"{self.target.inbox}.{self._number}"
        try:
            await self._connection.publish(self.target.next_subject, json.dumps(request).encode(), reply=reply)
        except NatsError as error:
            self._status("", repr(error))
        while self._asked > 0:
            if not await self._wait(HEARTBEAT_S * MISSED_HEARTBEATS):
                self._asked = 0

    async def _wait(self, timeout_s: float | None) -> bool:
        """Wait for anything to change; False when nothing did in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    async def _arrived(self, message: Msg) -> None:
        if not message.subject.startswith(self.target.inbox):
            self.refused = 0
            self._asked = max(0, self._asked - 1)
            self._held += 1
            self._changed.set()
            self._deliver(message)
        elif message.subject == f"{self.target.inbox}.{self._number}":
            headers = message.headers or {}
            self._status(headers.get(STATUS, ""), headers.get("Description", ""))

    def _status(self, status: str, description: str) -> None:
        if status in _OVER:
            self.refused = 0
            self._asked = 0
        elif status != _HEARTBEAT:
            self.refused += 1
            self._asked = 0
            get_logger().warning(
                "bus.pull_refused",
                stream=self.target.stream,
                consumer=self.target.consumer,
                status=status,
                description=description,
            )
        self._changed.set()
