"""Connections: a pool whose sessions live in the service's own schema."""

import asyncio
from typing import Any, cast

import asyncpg

from libs.db.errors import is_transient
from libs.db.types import Connection, Pool
from libs.kit.logs import get_logger
from libs.kit.retry import delays

MIN_CONNECTIONS = 1
MAX_CONNECTIONS = 20
CONNECT_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 30.0
IDLE_IN_TRANSACTION_S = 150  # longer than a handler may take: only a process that hangs leaves one open so long
RETRY_FIRST_S = 0.1
RETRY_CAP_S = 2.0

_asyncpg = cast("Any", asyncpg)  # its coroutines carry no types; libs.db.types gives them back


async def connect(dsn: str, service: str, *, max_connections: int = MAX_CONNECTIONS) -> Pool:
    """A pool of at most `max_connections` sessions with `search_path` = the service's schema.

    Waits for a server that is not there yet; wrong credentials or a missing database raise at once.
    """
    for delay_s in delays(RETRY_FIRST_S, RETRY_CAP_S):
        try:
            pool: Pool = await _asyncpg.create_pool(
                dsn,
                min_size=MIN_CONNECTIONS,
                max_size=max_connections,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=COMMAND_TIMEOUT_S,
                reset=_as_it_is,
                server_settings={
                    "search_path": service,
                    "application_name": service,
                    "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S}s",
                },
            )
        except Exception as error:
            if not is_transient(error):
                raise
            get_logger().warning("db.waiting", service=service, error=repr(error), retry_s=delay_s)
            await asyncio.sleep(delay_s)
        else:
            return pool
    raise AssertionError


async def _as_it_is(_: Connection) -> None:
    """Give a session back without asyncpg's RESET ALL, a turn of its own for each transaction.

    Nothing of ours outlives a transaction (`SET LOCAL`, `pg_advisory_xact_lock`); an election, whose lock does, ends
    its session. A transaction left open is rolled back all the same.
    """


async def connect_once(dsn: str, service: str | None = None) -> Connection:
    """One session outside any pool, for a lock that lives as long as the session; raises when the server is away."""
    settings = {"search_path": service, "application_name": service} if service else {}
    connection: Connection = await _asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT_S, server_settings=settings)
    return connection
