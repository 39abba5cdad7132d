"""Ending tasks for sure.

A cancellation can be lost: a library that turns it into a timeout of its own, or `asyncio.wait_for` (before Python
3.12) when both fall together, leaves a task running that was told to end, and whoever awaits it waits for ever.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 2.0


async def reap(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel `tasks`, again and again where need be, and return when all have ended. Their errors are dropped."""
    ending = list(tasks)
    pending = {task for task in ending if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
    for task in ending:
        if task.done() and not task.cancelled():
            task.exception()
