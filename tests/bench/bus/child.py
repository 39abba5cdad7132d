"""Processes that measure: each prints one JSON value on standard output and nothing else."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any


def answer(measured: Coroutine[Any, Any, object]) -> None:
    """Run what a child measures and print it."""
    sys.stdout.write(json.dumps(asyncio.run(measured)) + "\n")


async def ask(module: str, *words: str, env: Mapping[str, str], log: Path) -> Any:
    """What `python -m module words` prints. Its log lines go to `log`; whoever fails shows their end."""
    with log.open("ab") as lines:
        command = [sys.executable, "-m", module, *words]
        child = await asyncio.create_subprocess_exec(*command, env=dict(env), stdout=PIPE, stderr=lines)
    try:
        printed, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        tail = log.read_text(errors="replace")[-3000:]
        msg = f"{module} {' '.join(words)} ended with {child.returncode}:\n{tail}"
        raise RuntimeError(msg)
    return json.loads(printed)
