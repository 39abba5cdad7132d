"""Migrations of PostgreSQL: each file of libs.kit.migrations applied once, in a transaction of its own.

Out: the schema they describe and one row each in `schema_migrations`, with the file's digest.
"""

from libs.db.types import Connection, Pool
from libs.kit.logs import get_logger
from libs.kit.migrations import MigrationError, read_migrations

LOCK_CLASS = 0x0FA5
MIGRATION_TIMEOUT_S = 600.0
# A migration that cannot get its lock gives up, rather than hold up every query that queues behind it.
_GUARDS = "SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '600s'"

_CREATE_TABLE = """
    CREATE TABLE IF NOT EXISTS schema_migrations (
      package text NOT NULL,
      file text NOT NULL,
      sha256 text NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT now(),
      PRIMARY KEY (package, file)
    )
"""


async def migrate(pool: Pool, service: str, *packages: str) -> None:
    """Bring the schema of `service` up to date: first the bus's own tables, then those of `packages`.

    Safe to run from several processes at once. Raises MigrationError when an applied file has changed.
    """
    async with pool.acquire() as connection:
        await connection.execute(
            "SELECT pg_advisory_lock($1, hashtext($2))", LOCK_CLASS, service, timeout=MIGRATION_TIMEOUT_S
        )
        try:
            await connection.execute(_CREATE_TABLE)
            for package in ("libs.bus", *packages):
                await _migrate_package(connection, service, package)
        finally:
            await connection.execute("SELECT pg_advisory_unlock($1, hashtext($2))", LOCK_CLASS, service)


async def _migrate_package(connection: Connection, service: str, package: str) -> None:
    rows = await connection.fetch("SELECT file, sha256 FROM schema_migrations WHERE package = $1", package)
    applied = {str(row["file"]): str(row["sha256"]) for row in rows}
    for migration in read_migrations(package):
        known = applied.get(migration.file)
        if known is None:
            async with connection.transaction():
                await connection.execute(_GUARDS)
                await connection.execute(migration.sql, timeout=MIGRATION_TIMEOUT_S)
                await connection.execute(
                    "INSERT INTO schema_migrations (package, file, sha256) VALUES ($1, $2, $3)",
                    package,
                    migration.file,
                    migration.sha256,
                )
            get_logger().info("db.migrated", service=service, package=package, file=migration.file)
        elif known != migration.sha256:
            msg = f"migration {package}/{migration.file} has changed since it was applied: restore it, add a new one"
            raise MigrationError(msg)
