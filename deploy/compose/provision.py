"""The step between servers and services in containers: `python -m deploy.compose.provision`.

In: the servers' addresses (FARSIDE_NATS_URL as the operator, FARSIDE_PG_DSN as the superuser, FARSIDE_S3_*), the
password of each service's role (PG_PASSWORD_SCHEDULER), FARSIDE_NODES and FARSIDE_TENANTS (names between blanks). Out:
roles and schemas, streams and durables, and a bucket that takes writes. Waits for servers that still start; safe to
repeat.
"""

import asyncio
import os

from contracts.registry import SERVICES
from libs.bus.provision import provision as provision_bus
from libs.db import connect, prepare_database
from libs.kit.logs import get_logger
from libs.kit.settings import LedgerSettings
from libs.kit.start import read_settings
from libs.objects import Store

NAME = "provision"
LIMIT_S = 120.0
PROBE_KEY = "compose/ready"


async def prepare_roles(dsn: str, passwords: dict[str, str]) -> None:
    """A role and a schema for each service, once the database is there."""
    pool = await connect(dsn, NAME, max_connections=1)
    await pool.close()
    await prepare_database(dsn, passwords)


def prepare_bucket(settings: LedgerSettings) -> None:
    """Make the bucket and wait for a write. Raises UnavailableError."""
    store = Store.open(settings)
    try:
        store.wait_ready(PROBE_KEY, LIMIT_S)
    finally:
        store.close()


async def provision(settings: LedgerSettings) -> None:
    """All of it; TimeoutError when a server has not come after LIMIT_S."""
    nodes, tenants = (os.environ[name].split() for name in ("FARSIDE_NODES", "FARSIDE_TENANTS"))
    passwords = {service: os.environ[f"PG_PASSWORD_{service.upper()}"] for service in SERVICES}
    async with asyncio.timeout(LIMIT_S):
        await prepare_roles(settings.dsn, passwords)
        await provision_bus(settings.nats_url, nodes, tenants)
        await asyncio.to_thread(prepare_bucket, settings)
    get_logger().info("provision.done", nodes=nodes, tenants=tenants, schemas=len(passwords))


if __name__ == "__main__":
    asyncio.run(provision(read_settings(NAME, LedgerSettings)))
