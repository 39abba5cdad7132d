"""What can go wrong with the database, and which of it passes by itself."""

import asyncpg


class DbError(Exception):
    """Root of this package's errors."""


ConstraintError = asyncpg.IntegrityConstraintViolationError
"""What was written breaks a constraint of the schema: the transaction is void."""

_TRANSIENT = (
    OSError,  # refused, reset, no such socket: the server is away
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,  # "connection is closed", "pool is closing": the server went away under us
    asyncpg.InternalClientError,  # "cannot switch to state": the connection broke in the middle of a statement
    asyncpg.CannotConnectNowError,  # starting up or shutting down
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleSessionTimeoutError,  # we were silent for so long that the server ended the session
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby is being promoted
    asyncpg.InsufficientResourcesError,
)


def is_transient(error: BaseException) -> bool:
    """Whether the same work may succeed later, without anybody's doing."""
    return isinstance(error, _TRANSIENT) and not isinstance(error, asyncpg.exceptions.DataError)
