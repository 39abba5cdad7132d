"""`farside up` in the foreground: a supervisor that ends on a signal or on request."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.local.stack import Stack

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wishes:
    """What the command line may change; see Stack."""

    only: tuple[str, ...]
    ports: Mapping[str, int]
    env: Mapping[str, str]
    part_env: Mapping[str, Mapping[str, str]]
    tenants: Path


def run(directory: Path, wishes: Wishes, say: Say) -> int:
    """Bring a stack up, keep it up until asked to end; the exit status. Raises StackError when it does not come up."""
    stack = Stack(
        directory,
        parts=wishes.only or None,
        env=wishes.env,
        part_env=wishes.part_env,
        ports=wishes.ports,
        tenants=wishes.tenants,
        say=say,
    )
    return asyncio.run(supervise(stack, say))


async def supervise(stack: Stack, say: Say) -> int:
    """Start the stack, keep it up until a signal or `farside down`, take it down; the exit status.

    A second signal kills everything at once.
    """
    _listen(stack, say)
    starting = asyncio.ensure_future(stack.start())
    asked = asyncio.ensure_future(stack.stop_asked.wait())
    begun = time.monotonic()
    await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        say("interrupted: taking everything down")
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        return INTERRUPTED
    try:
        starting.result()
    except BaseException:
        asked.cancel()
        raise
    say(f"the stack in {stack.directory} is up after {time.monotonic() - begun:.1f} s")
    await asked
    say("taking everything down")
    await stack.stop()
    say("down; the data stays")
    return 0


def _listen(stack: Stack, say: Say) -> None:
    def hear(number: signal.Signals) -> None:
        if stack.stop_asked.is_set():
            say(f"{number.name} again: killing everything")
            stack.kill()
            os._exit(INTERRUPTED)
        stack.stop_asked.set()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, hear, number)
