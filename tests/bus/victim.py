"""A service of its own process, to be killed: `python -m tests.bus.victim NATS_URL PG_DSN`.

Each submission leaves one row in `effects` and one event.
"""

import asyncio
import sys

from contracts import registry
from libs.db import connect
from libs.kit.logs import configure
from tests.bus.rig import SERVICE, new_app, record


async def main(url: str, dsn: str) -> None:
    configure("victim", "warning")
    pool = await connect(dsn, SERVICE)
    app = new_app(url, pool, leader=True)
    app.on(registry.JOBS_SUBMIT, record)
    try:
        await app.run()
    finally:
        await pool.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
