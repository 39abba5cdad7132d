"""The ledger of services: PostgreSQL, in the service's own schema (tables of libs/bus/migrations)."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

from asyncpg import InterfaceError, PostgresError
from pydantic_core import from_json

from libs.bus.errors import NotLeader
from libs.bus.ledger import OutboxCounts, Tx
from libs.bus.outbox import OutboxRow
from libs.db import Connection, Pool, connect, is_transient, migrate
from libs.kit.clock import Clock, SystemClock
from libs.kit.logs import held

ACQUIRE_TIMEOUT_S = 10.0
PING_TIMEOUT_S = 2.0
ELECTION_TIMEOUT_S = 5.0
SILENT_LEADER_S = 15
LOCK_CLASS = 0x0FA6
PRUNE_LIMIT = 10_000

_FENCED = "FS001"
_CLAIM = """
    INSERT INTO inbox (consumer, key, source, id) VALUES ($1, $2, $3, $4)
    ON CONFLICT DO NOTHING RETURNING true
"""
_EMIT = """
    INSERT INTO outbox (id, aggregate, stream, subject, headers, data)
    SELECT id, aggregate, stream, subject, headers, data
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[])
      WITH ORDINALITY AS said (id, aggregate, stream, subject, headers, data, place)
    ORDER BY place
    ON CONFLICT (id) DO NOTHING
"""
# The subquery is hashed once; an array compared with ANY would be gone through for each row.
_WAITING = """
    SELECT number, id, aggregate, stream, subject, headers, data FROM outbox
    WHERE published_at IS NULL AND parked_at IS NULL AND aggregate NOT IN (SELECT unnest($2::text[]))
    ORDER BY number LIMIT $1
"""
_COUNT_FAILURE = """
    INSERT INTO failures (consumer, stream, sequence, failures, message) VALUES ($1, $2, $3, 1, $4)
    ON CONFLICT (consumer, stream, sequence)
    DO UPDATE SET failures = failures.failures + 1, message = excluded.message, failed_at = now()
    RETURNING failures
"""
_COUNTS = """
    SELECT count(*) FILTER (WHERE parked_at IS NULL) AS waiting, count(*) FILTER (WHERE parked_at IS NOT NULL) AS parked
    FROM outbox WHERE published_at IS NULL
"""
_PRUNE_OUTBOX = """
    DELETE FROM outbox WHERE number IN (
      SELECT number FROM outbox WHERE published_at < now() - make_interval(secs => $1) LIMIT $2)
"""
_PRUNE_INBOX = """
    DELETE FROM inbox WHERE ctid IN (
      SELECT ctid FROM inbox WHERE taken_at < now() - make_interval(secs => $1) LIMIT $2)
"""
_PRUNE_FAILURES = "DELETE FROM failures WHERE failed_at < now() - make_interval(secs => $1)"
_ELECT = """
    INSERT INTO leader (epoch, holder) VALUES (1, $1)
    ON CONFLICT (one) DO UPDATE SET epoch = leader.epoch + 1, holder = $1, since = now()
    RETURNING epoch
"""


class PgLedger:
    """Inbox, outbox and failure counts of `service` in the schema that `pool` lives in."""

    def __init__(self, pool: Pool, service: str, clock: Clock | None = None) -> None:
        self.source = f"/farside/{service}"
        self.on_commit = _nothing
        self._pool = pool
        self._service = service
        self._clock = clock or SystemClock()
        self._epoch: int | None = None

    @classmethod
    async def open(cls, dsn: str, service: str) -> Self:
        """Connect as `service` and bring its schema up to date. Raises MigrationError, and asyncpg's own errors."""
        pool = await connect(dsn, service)
        await migrate(pool, service, f"services.{service}")
        return cls(pool, service)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Tx[Connection], None]:
        """One transaction at READ COMMITTED."""
        sessions = self._pool.acquire()
        async with asyncio.timeout(ACQUIRE_TIMEOUT_S):  # asyncpg's own limit takes a task for each
            connection = await sessions.__aenter__()
        tx, epoch = Tx(connection, self.source, self._clock), self._epoch
        try:
            with held():
                await connection.execute("BEGIN")
                try:
                    yield tx
                    await _emit(tx)
                    await self._commit(connection, epoch)
                except BaseException:
                    await _roll_back(connection)
                    raise
        finally:
            await sessions.__aexit__(None, None, None)
        if tx.rows:
            self.on_commit()
        for call in tx.calls:
            call()

    async def _commit(self, connection: Connection, epoch: int | None) -> None:
        """Commit; for a leader in one turn with the fence, by the epoch in which it began. Raises NotLeader."""
        try:
            await connection.execute("COMMIT" if epoch is None else f"SELECT fence({epoch}); COMMIT")
        except PostgresError as error:
            if getattr(error, "sqlstate", None) != _FENCED:
                raise
            msg = f"{self._service} {error}: the transaction is void"
            raise NotLeader(msg) from None

    async def claim(self, tx: Tx[Connection], consumer: str, key: str, source: str, id: str) -> bool:  # noqa: A002
        """Enter a message into the inbox; False when it is there already."""
        return await tx.conn.fetchval(_CLAIM, consumer, key, source, id) is not None

    async def count_failure(self, consumer: str, stream: str, sequence: int, message: str) -> int:
        """Count one more failure of a message."""
        async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            return int(await connection.fetchval(_COUNT_FAILURE, consumer, stream, sequence, message))

    async def forget_failure(self, tx: Tx[Connection], consumer: str, stream: str, sequence: int) -> None:
        """Drop the count."""
        query = "DELETE FROM failures WHERE consumer = $1 AND stream = $2 AND sequence = $3"
        await tx.conn.execute(query, consumer, stream, sequence)

    async def waiting(self, limit: int, skip: Collection[str]) -> Sequence[OutboxRow]:
        """The oldest rows to be published."""
        async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            rows = await connection.fetch(_WAITING, limit, list(skip))
        return [
            OutboxRow(
                id=row["id"],
                aggregate=row["aggregate"],
                stream=row["stream"],
                subject=row["subject"],
                headers=from_json(row["headers"]),
                data=row["data"],
                number=row["number"],
            )
            for row in rows
        ]

    async def mark_published(self, numbers: Sequence[int]) -> None:
        """Mark rows whose PubAck has come."""
        async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            await connection.execute("UPDATE outbox SET published_at = now() WHERE number = ANY($1)", list(numbers))

    async def park(self, number: int, reason: str) -> None:
        """Put a row aside that the bus refuses for good."""
        query = "UPDATE outbox SET parked_at = now(), parked_reason = $2 WHERE number = $1"
        async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            await connection.execute(query, number, reason)

    async def counts(self) -> OutboxCounts:
        """How many rows wait and how many are parked."""
        async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            row = await connection.fetchrow(_COUNTS)
        return OutboxCounts(0, 0) if row is None else OutboxCounts(row["waiting"], row["parked"])

    async def prune(self, outbox_keep_s: float, inbox_keep_s: float) -> None:
        """Remove published rows and inbox entries that are older, a bounded number at a time."""
        async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            await connection.execute(_PRUNE_OUTBOX, outbox_keep_s, PRUNE_LIMIT)
            await connection.execute(_PRUNE_INBOX, inbox_keep_s, PRUNE_LIMIT)
            await connection.execute(_PRUNE_FAILURES, inbox_keep_s)

    async def ping(self) -> None:
        """Raise unless the server answers within PING_TIMEOUT_S."""
        async with asyncio.timeout(PING_TIMEOUT_S), self._pool.acquire(timeout=PING_TIMEOUT_S) as connection:
            await connection.fetchval("SELECT 1", timeout=PING_TIMEOUT_S)

    def is_transient(self, error: BaseException) -> bool:
        """Whether the same work may succeed later by itself."""
        return is_transient(error)

    def election(self) -> "PgElection":
        """A new candidacy for this service."""
        return PgElection(self._pool, self._service)

    def lead(self, epoch: int | None) -> None:
        """From now on transactions commit only while `epoch` is the newest."""
        self._epoch = epoch


async def _roll_back(connection: Connection) -> None:
    """End a transaction, and the session where it cannot be asked any more: what broke it is being raised already."""
    try:
        await connection.execute("ROLLBACK")
    except Exception:  # noqa: BLE001 - see above
        with suppress(InterfaceError):  # the pool may have taken a lost session back by itself
            connection.terminate()


async def _emit(tx: Tx[Connection]) -> None:
    """Put what was emitted into the outbox, in its order."""
    rows = tx.rows
    if rows:
        await tx.conn.execute(
            _EMIT,
            [row.id for row in rows],
            [row.aggregate for row in rows],
            [row.stream for row in rows],
            [row.subject for row in rows],
            [row.headers_json for row in rows],
            [row.data for row in rows],
        )


class PgElection:
    """Leadership by an advisory lock: it lasts as long as the session that holds the lock.

    A process that hangs keeps its session, so the server ends one that has asked nothing for SILENT_LEADER_S.
    """

    def __init__(self, pool: Pool, service: str) -> None:
        self._pool = pool
        self._service = service
        self._held = AsyncExitStack()
        self._session: Connection | None = None

    async def win(self, wait_s: float) -> int:
        """Wait until this process leads; returns the new epoch. Raises when the server is away."""
        await self.resign()
        session = await self._held.enter_async_context(self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S))
        self._session = session
        await session.execute(f"SET idle_session_timeout = '{SILENT_LEADER_S}s'", timeout=ELECTION_TIMEOUT_S)
        query = "SELECT pg_try_advisory_lock($1, hashtext($2))"
        while True:
            if await session.fetchval(query, LOCK_CLASS, self._service, timeout=ELECTION_TIMEOUT_S):
                break
            await asyncio.sleep(wait_s)
        return int(await session.fetchval(_ELECT, self._service, timeout=ELECTION_TIMEOUT_S))

    async def hold(self, check_s: float) -> None:
        """Return when the session no longer answers."""
        assert self._session is not None, "win the election before holding it"
        try:
            while True:
                await self._session.fetchval("SELECT 1", timeout=ELECTION_TIMEOUT_S)
                await asyncio.sleep(check_s)
        except Exception as error:
            if not is_transient(error):
                raise

    async def resign(self) -> None:
        """Drop the session, and the lock with it; the pool may have taken it back already."""
        session, self._session = self._session, None
        held, self._held = self._held, AsyncExitStack()
        for end in (lambda: _terminate(session), held.aclose):
            try:
                await end()
            except Exception as error:
                if not is_transient(error):
                    raise


async def _terminate(session: Connection | None) -> None:
    if session is not None:
        session.terminate()


def _nothing() -> None:
    """Until an App listens for commits."""
