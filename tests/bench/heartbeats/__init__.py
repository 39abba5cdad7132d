"""Heartbeats: a large fleet gives signs of life while the rest of the stack is alive.

`rate` is what the fleet asks for, and whether it gets it; `lag` how old inventory's knowledge is meanwhile; `suspects`
how many living nodes it calls silent, which must be none; `most` how many heartbeats a second go at all.
"""

import tempfile
from pathlib import Path

from tests.bench.frame import Case
from tests.bench.heartbeats import fleet


async def run(*, quick: bool) -> dict[str, Case]:
    """Every case, on servers of its own that are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="farside-bench-") as folder:
        return await fleet.run(Path(folder), fleet.QUICK if quick else fleet.FULL)
