"""The ledger of agents: one SQLite file that survives a power cut (WAL, synchronous FULL), one connection, no server.

Statements are short and run on the event loop; a lock keeps transactions apart. The agent's own tables live in the
same file, so that its journal and its messages commit together.
"""

import asyncio
import fcntl
import json
import os
import sqlite3
from collections.abc import AsyncGenerator, Collection, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from libs.bus.errors import Nested
from libs.bus.ledger import OutboxCounts, Tx
from libs.bus.outbox import OutboxRow
from libs.kit.clock import Clock, SystemClock
from libs.kit.logs import held
from libs.kit.migrations import read_migrations

MEMORY = Path(":memory:")
PRUNE_LIMIT = 10_000

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS inbox (
      consumer TEXT NOT NULL, key TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL,
      taken_at REAL NOT NULL DEFAULT (unixepoch()),
      PRIMARY KEY (consumer, key, source, id)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS outbox (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE, aggregate TEXT NOT NULL, stream TEXT NOT NULL, subject TEXT NOT NULL,
      headers TEXT NOT NULL, data BLOB NOT NULL,
      created_at REAL NOT NULL DEFAULT (unixepoch()),
      published_at REAL, parked_at REAL, parked_reason TEXT
    );
    CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (number) WHERE published_at IS NULL AND parked_at IS NULL;
    CREATE TABLE IF NOT EXISTS failures (
      consumer TEXT NOT NULL, stream TEXT NOT NULL, sequence INTEGER NOT NULL,
      failures INTEGER NOT NULL, message TEXT NOT NULL,
      failed_at REAL NOT NULL DEFAULT (unixepoch()),
      PRIMARY KEY (consumer, stream, sequence)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS schema_migrations (
      package TEXT NOT NULL, file TEXT NOT NULL, PRIMARY KEY (package, file)
    ) WITHOUT ROWID;
"""
_CLAIM = "INSERT INTO inbox (consumer, key, source, id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_EMIT = """
    INSERT INTO outbox (id, aggregate, stream, subject, headers, data) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING
"""
_WAITING = """
    SELECT number, id, aggregate, stream, subject, headers, data FROM outbox
    WHERE published_at IS NULL AND parked_at IS NULL
      AND aggregate NOT IN (SELECT value FROM json_each(?))
    ORDER BY number LIMIT ?
"""
_COUNT_FAILURE = """
    INSERT INTO failures (consumer, stream, sequence, failures, message) VALUES (?, ?, ?, 1, ?)
    ON CONFLICT (consumer, stream, sequence)
    DO UPDATE SET failures = failures + 1, message = excluded.message, failed_at = unixepoch()
    RETURNING failures
"""
_COUNTS = """
    SELECT coalesce(sum(parked_at IS NULL), 0), coalesce(sum(parked_at IS NOT NULL), 0)
    FROM outbox WHERE published_at IS NULL
"""
_PRUNE_OUTBOX = """
    DELETE FROM outbox WHERE number IN (
      SELECT number FROM outbox WHERE published_at < unixepoch() - ? LIMIT ?)
"""
_PRUNE_INBOX = "DELETE FROM inbox WHERE taken_at < unixepoch() - ?"


class SqliteLedger:
    """Inbox, outbox and failure counts of one agent in the file `path`, beside the tables of `packages`.

    `packages` are those whose `migrations` folder belongs in this file. `source` names the node.
    """

    def __init__(self, path: Path, source: str, *packages: str, clock: Clock | None = None) -> None:
        self.source = source
        self.on_commit = _nothing
        self._path = path
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[object] | None = None
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.executescript(_SCHEMA)
        for package in packages:
            self._migrate(package)

    def _migrate(self, package: str) -> None:
        rows = self._connection.execute("SELECT file FROM schema_migrations WHERE package = ?", (package,))
        applied = {row["file"] for row in rows.fetchall()}
        for migration in read_migrations(package):
            if migration.file not in applied:
                done = f"INSERT INTO schema_migrations VALUES ('{package}', '{migration.file}');"  # noqa: S608 - ours
                self._connection.executescript(f"BEGIN IMMEDIATE; {migration.sql}; {done} COMMIT;")

    @property
    def conn(self) -> sqlite3.Connection:
        """The connection, for reads outside transactions."""
        return self._connection

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Tx[sqlite3.Connection], None]:
        """One transaction. It holds the only connection: await nothing slow inside."""
        async with self._locked():
            tx = Tx(self._connection, self.source, self._clock)
            with held(), self._committing(tx):
                yield tx
        if tx.rows:
            self.on_commit()
        for call in tx.calls:
            call()

    @contextmanager
    def _committing(self, tx: Tx[sqlite3.Connection]) -> Generator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            for row in tx.rows:
                values = (row.id, row.aggregate, row.stream, row.subject, row.headers_json, row.data)
                self._connection.execute(_EMIT, values)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @asynccontextmanager
    async def _locked(self) -> AsyncGenerator[None, None]:
        task = asyncio.current_task()
        if self._owner is not None and self._owner is task:
            msg = "a transaction of the agent's file was opened inside another one: use the outer `tx`"
            raise Nested(msg)
        async with self._lock:
            self._owner = task
            try:
                yield
            finally:
                self._owner = None

    async def claim(
        self,
        tx: Tx[sqlite3.Connection],
        consumer: str,
        key: str,
        source: str,
        id: str,  # noqa: A002 - the attribute's name in CloudEvents
    ) -> bool:
        """Enter a message into the inbox; False when it is there already."""
        return tx.conn.execute(_CLAIM, (consumer, key, source, id)).rowcount == 1

    async def count_failure(self, consumer: str, stream: str, sequence: int, message: str) -> int:
        """Count one more failure of a message."""
        async with self._locked():
            rows = self._connection.execute(_COUNT_FAILURE, (consumer, stream, sequence, message)).fetchall()
        return int(rows[0][0])

    async def forget_failure(self, tx: Tx[sqlite3.Connection], consumer: str, stream: str, sequence: int) -> None:
        """Drop the count."""
        query = "DELETE FROM failures WHERE consumer = ? AND stream = ? AND sequence = ?"
        tx.conn.execute(query, (consumer, stream, sequence))

    async def waiting(self, limit: int, skip: Collection[str]) -> Sequence[OutboxRow]:
        """The oldest rows to be published."""
        async with self._locked():
            rows = self._connection.execute(_WAITING, (json.dumps(list(skip)), limit)).fetchall()
        return [
            OutboxRow(
                id=row["id"],
                aggregate=row["aggregate"],
                stream=row["stream"],
                subject=row["subject"],
                headers=json.loads(row["headers"]),
                data=row["data"],
                number=row["number"],
            )
            for row in rows
        ]

    async def mark_published(self, numbers: Sequence[int]) -> None:
        """Mark rows whose PubAck has come."""
        query = "UPDATE outbox SET published_at = unixepoch() WHERE number IN (SELECT value FROM json_each(?))"
        async with self._locked():
            self._connection.execute(query, (json.dumps(list(numbers)),))

    async def park(self, number: int, reason: str) -> None:
        """Put a row aside that the bus refuses for good."""
        query = "UPDATE outbox SET parked_at = unixepoch(), parked_reason = ? WHERE number = ?"
        async with self._locked():
            self._connection.execute(query, (reason, number))

    async def counts(self) -> OutboxCounts:
        """How many rows wait and how many are parked."""
        async with self._locked():
            waiting, parked = self._connection.execute(_COUNTS).fetchone()
        return OutboxCounts(int(waiting), int(parked))

    async def prune(self, outbox_keep_s: float, inbox_keep_s: float) -> None:
        """Remove published rows and inbox entries that are older."""
        async with self._locked():
            self._connection.execute(_PRUNE_OUTBOX, (outbox_keep_s, PRUNE_LIMIT))
            self._connection.execute(_PRUNE_INBOX, (inbox_keep_s,))
            self._connection.execute("DELETE FROM failures WHERE failed_at < unixepoch() - ?", (inbox_keep_s,))

    async def ping(self) -> None:
        """Raise unless the file can be read."""
        async with self._locked():
            self._connection.execute("SELECT 1 FROM outbox LIMIT 1").fetchall()

    def is_transient(self, error: BaseException) -> bool:
        """Whether the same work may succeed later by itself: the file is locked, or the disk is full."""
        return isinstance(error, sqlite3.OperationalError)

    def election(self) -> "FileElection":
        """A candidacy for this file."""
        return FileElection(self._path)

    def lead(self, epoch: int | None) -> None:
        """Nothing to check: the lock lives as long as the process."""


class FileElection:
    """One process per file, by a lock beside it that the system drops when the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._memory = path == MEMORY
        self._descriptor: int | None = None

    async def win(self, wait_s: float) -> int:
        """Wait until no other process holds the file."""
        if self._memory:
            return 1
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._descriptor = descriptor
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(wait_s)
            else:
                return 1

    async def hold(self, check_s: float) -> None:
        """The lock is never lost."""
        del check_s
        await asyncio.Event().wait()

    async def resign(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _nothing() -> None:
    """Until an App listens for commits."""
