"""The run that nobody disturbs: the same script, outside any stack, with a folder in place of a cluster."""

import asyncio
import os
import sys
from pathlib import Path

from deploy.demo import tasklog
from deploy.demo.bodies import DIGITS
from deploy.demo.watcher import StoryError

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
# Behind everything of the stack: a heartbeat must not wait for a comparison.
NICENESS = 10


async def run(folder: Path, dataset: Path) -> dict[int, float]:
    """Losses by step of an uninterrupted run; it never outlives this call."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("FARSIDE_")}
    env |= {"FARSIDE_LOCAL_DIR": str(folder), "FARSIDE_LOCAL_DATASET": str(dataset), "PYTHONPATH": str(ROOT)}
    env |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DIGITS / "train.py"),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=lambda: os.nice(NICENESS),
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except TimeoutError:
        msg = f"the undisturbed run was not done after {LIMIT_S:.0f} s: this machine is too busy"
        raise StoryError(msg) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        msg = f"the uninterrupted run ended with status {process.returncode}: {err.decode(errors='replace')[-500:]}"
        raise StoryError(msg)
    return tasklog.losses(out)
