"""`farside` in a process of its own, pointed at a stage."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.checkpoint.stage import Stage

FARSIDE = Path(sys.executable).with_name("farside")
TIMEOUT_S = 60


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its JSON."""
        return json.loads(self.out)


async def farside(stage: Stage, *words: str, **variables: str) -> Ran:
    """Run a command to its end, with `variables` besides those of the stage."""
    process = await asyncio.create_subprocess_exec(
        FARSIDE,
        *words,
        env={**os.environ, **stage.service.environment, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(TIMEOUT_S):
        out, err = await process.communicate()
    return Ran(process.returncode or 0, out.decode(), err.decode())
