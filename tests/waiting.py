"""Wait for conditions, never for time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")

POLL_S = 0.02


async def until(predicate: Callable[[], T | Awaitable[T | None] | None], timeout_s: float = 10.0, what: str = "") -> T:
    """Return the first truthy value of `predicate` (plain or async); fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = predicate()
        value = cast("T | None", await answer if inspect.isawaitable(answer) else answer)
        if value:
            return value
        if time.monotonic() > deadline:
            msg = f"waited {timeout_s} s for {what or predicate}: last value {value!r}"
            raise AssertionError(msg)
        await asyncio.sleep(POLL_S)


def until_sync(predicate: Callable[[], T], timeout_s: float = 10.0, what: str = "") -> T:
    """The same outside an event loop."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            msg = f"waited {timeout_s} s for {what or predicate}: last value {value!r}"
            raise AssertionError(msg)
        time.sleep(POLL_S)
