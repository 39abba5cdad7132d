"""Databases: each service alone in its schema, migrations once and forward only."""

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from libs.db import connect, connect_once, migrate, prepare_database, service_dsn
from libs.db.errors import is_transient
from libs.kit.migrations import MigrationError, read_migrations
from tests.servers import PostgresServer
from tests.waiting import until

PACKAGE = "migrated_service"


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """An importable package with a folder of migrations."""
    folder = tmp_path / PACKAGE / "migrations"
    folder.mkdir(parents=True)
    (tmp_path / PACKAGE / "__init__.py").touch()
    (folder / "0001_pre_things.sql").write_text("CREATE TABLE things (id bigint PRIMARY KEY);")
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(tmp_path))
    sys.modules.pop(PACKAGE, None)


async def _tables(dsn: str, schema: str) -> set[str]:
    connection = await connect_once(dsn)
    rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    await connection.close()
    return {str(row["tablename"]) for row in rows}


async def test_no_service_reads_another(database: str, package: Path) -> None:
    del package
    await prepare_database(database, {"one": "secret-1", "two": "secret-2"})
    await prepare_database(database, {"one": "secret-1", "two": "secret-3"})  # again, with a new password
    pools = {name: await connect(service_dsn(database, name, "x"), name) for name in ("one", "two")}
    for name, pool in pools.items():
        await migrate(pool, name, PACKAGE)
        assert {"inbox", "outbox", "things"} <= await _tables(database, name)
    async with pools["one"].acquire() as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT * FROM two.things")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("CREATE TABLE public.leak (id int)")
    for pool in pools.values():
        await pool.close()


async def test_migrations_run_once_from_many_processes_at_once(database: str, package: Path) -> None:
    await prepare_database(database, {"one": "x"})
    pool = await connect(service_dsn(database, "one", "x"), "one")
    await asyncio.gather(*(migrate(pool, "one", PACKAGE) for _ in range(4)))
    (package / "0002_post_more.sql").write_text("ALTER TABLE things ADD COLUMN name text;")
    await migrate(pool, "one", PACKAGE)
    async with pool.acquire() as connection:
        files = await connection.fetch("SELECT file FROM schema_migrations WHERE package = $1 ORDER BY file", PACKAGE)
        await connection.execute("INSERT INTO things (id, name) VALUES (1, 'x')")
    assert [row["file"] for row in files] == ["0001_pre_things.sql", "0002_post_more.sql"]
    await pool.close()


async def test_an_applied_file_must_not_change(database: str, package: Path) -> None:
    await prepare_database(database, {"one": "x"})
    pool = await connect(service_dsn(database, "one", "x"), "one")
    await migrate(pool, "one", PACKAGE)
    (package / "0001_pre_things.sql").write_text("CREATE TABLE others (id bigint);")
    with pytest.raises(MigrationError, match=r"0001_pre_things\.sql has changed since it was applied"):
        await migrate(pool, "one", PACKAGE)
    await pool.close()


async def test_a_migration_that_fails_leaves_nothing_of_itself(database: str, package: Path) -> None:
    (package / "0002_pre_broken.sql").write_text("CREATE TABLE half (id bigint); CREATE TABLE things (id bigint);")
    await prepare_database(database, {"one": "x"})
    pool = await connect(service_dsn(database, "one", "x"), "one")
    with pytest.raises(asyncpg.DuplicateTableError):
        await migrate(pool, "one", PACKAGE)
    assert "half" not in await _tables(database, "one")
    assert "things" in await _tables(database, "one")
    await pool.close()


@pytest.mark.parametrize(
    ("name", "fault"), [("1_pre_x.sql", "name it"), ("0001_post_y.sql", "share number 0001"), ("0002_x.sql", "name it")]
)
def test_misnamed_migrations_are_refused(package: Path, name: str, fault: str) -> None:
    (package / name).write_text("SELECT 1;")
    with pytest.raises(MigrationError, match=fault):
        read_migrations(PACKAGE)


async def test_connecting_waits_for_a_server_that_is_not_there_yet() -> None:
    with PostgresServer() as server:
        dsn = server.create_database()
        server.stop()
        connecting = asyncio.create_task(connect(dsn, "one"))
        await until(lambda: not connecting.done())
        server.start()
        pool = await asyncio.wait_for(connecting, 10)
        await pool.close()


async def test_a_wrong_database_is_told_at_once(postgres: PostgresServer) -> None:
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await connect(postgres.dsn.replace("/postgres?", "/nowhere?"), "one")


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionRefusedError(), True),
        (asyncpg.ConnectionDoesNotExistError(), True),
        (asyncpg.InternalClientError(), True),
        (asyncpg.DeadlockDetectedError(), True),
        (asyncpg.UniqueViolationError(), False),
        (asyncpg.UndefinedTableError(), False),
        (ValueError(), False),
    ],
)
def test_what_passes_by_itself(error: Exception, *, passes: bool) -> None:
    assert is_transient(error) is passes
