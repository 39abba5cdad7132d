"""One supervisor a folder: a lock that its reaper shares, so that nobody starts while something is left to end."""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from deploy.local import control
from deploy.local.config import stack_file
from deploy.local.errors import StackError

NAME = "stack.lock"
REAPER_LIMIT_S = 30.0
POLL_S = 0.05


@asynccontextmanager
async def lock(directory: Path) -> AsyncGenerator[int]:
    """Hold the folder, made where it is missing; gives the lock's file descriptor, to be inherited by the reaper.

    Raises StackError when another supervisor has it. The reaper of one that was killed is waited for.
    """
    descriptor = _open(directory)
    try:
        await _take(descriptor, directory)
        yield descriptor
    finally:
        os.close(descriptor)


def _open(directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return os.open(directory / NAME, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        msg = f"the stack cannot be kept in {directory} ({error.strerror}): name another folder with --dir"
        raise StackError(msg) from None


async def _take(descriptor: int, directory: Path) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + REAPER_LIMIT_S
    while not _try(descriptor):
        if (stack_file(directory).exists() and control.supervisor(directory) is not None) or loop.time() > deadline:
            msg = f"the stack in {directory} is already up: `farside status` shows it, `farside down` ends it"
            raise StackError(msg)
        await asyncio.sleep(POLL_S)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
