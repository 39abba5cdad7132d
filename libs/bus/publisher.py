"""Publishing to streams, many at a time: one subscription takes every PubAck and wakes who waits for it.

nats-py's own `publish` makes a subject, two tasks' worth of waiting and three objects for each message.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js.api import Header, PubAck
from nats.js.errors import APIError, NoStreamResponseError
from pydantic_core import from_json

from libs.bus.connection import subscribe

_STATUS, _NO_RESPONDERS = "Status", "503"


class LostError(Exception):
    """The connection broke while a PubAck was awaited: whether the message was stored is not known."""


class Publisher:
    """PubAcks come back below a subject of its own: another replica would take them for those it waits for."""

    def __init__(self, connection: NatsClient) -> None:
        self._connection = connection
        self._inbox = connection.new_inbox()
        self._number = 0
        self._waiting: dict[str, asyncio.Future[Msg]] = {}

    async def open(self) -> None:
        """Listen for PubAcks; call it once, before publishing."""
        await subscribe(self._connection, f"{self._inbox}.*", self._arrived)

    def reconnected(self) -> None:
        """Acks of what is in flight will not come any more: its publishers get LostError now."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LostError())

    async def publish(
        self, subject: str, data: bytes, headers: Mapping[str, str], *, stream: str, timeout_s: float
    ) -> PubAck:
        """Publish to `stream` and wait for its PubAck.

        Raises TimeoutError, LostError, and nats-py's errors as its own `publish` does.
        """
        loop = asyncio.get_running_loop()
        self._number += 1
        reply = f"{self._inbox}.{self._number}"
        future: asyncio.Future[Msg] = loop.create_future()
        self._waiting[reply] = future
        timer = loop.call_later(timeout_s, _expire, future)
        try:
            sent = {**headers, Header.EXPECTED_STREAM.value: stream}
            await self._connection.publish(subject, data, reply=reply, headers=sent)
            return _read(await future)
        finally:
            timer.cancel()
            del self._waiting[reply]

    async def _arrived(self, message: Msg) -> None:
        future = self._waiting.get(message.subject)
        if future is not None and not future.done():
            future.set_result(message)


def _expire(future: asyncio.Future[Msg]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def _read(message: Msg) -> PubAck:
    if message.headers is not None and message.headers.get(_STATUS) == _NO_RESPONDERS:
        raise NoStreamResponseError
    answer: dict[str, Any] = from_json(message.data)
    if "error" in answer:
        raise APIError.from_error(answer["error"])
    return PubAck(stream=answer["stream"], seq=answer["seq"], duplicate=answer.get("duplicate"))
