"""The bus: how fast messages go through a service, and how long a submission takes to be placed.

`b`, `c1` and `c2` are rates of one service as deployed (its own process, real nats-server with a fsync for every
message, real PostgreSQL with a fsync for every commit, spans written, relay running), beside raw nats-py on the same
messages. `lat1`, `lat50` and `lat200` are times on the real scheduler and inventory.
"""

import tempfile
from pathlib import Path

from tests.bench.bus import latency, rates
from tests.bench.frame import Case


async def run(*, quick: bool) -> dict[str, Case]:
    """Every case, on servers of its own that are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="farside-bench-") as folder:
        cases = await rates.run(Path(folder), rates.QUICK if quick else rates.FULL)
        return cases | await latency.run(Path(folder), latency.QUICK if quick else latency.FULL)
