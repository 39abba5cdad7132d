"""The roles of PostgreSQL against one another: one schema each, and nothing of the others'."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from contracts.registry import SERVICES
from libs.db import Connection, connect_once, prepare_database, service_dsn
from tests.servers import PostgresServer
from tests.waiting import until

PASSWORDS = {service: f"p-{service}" for service in SERVICES}
PAIRS = list(itertools.permutations(SERVICES, 2))
REFUSED = asyncpg.InsufficientPrivilegeError

# What one role would do to the table, the function and the schema of another.
AGAINST = [
    "SELECT * FROM {0}.secrets",
    "SELECT count(*) FROM {0}.secrets",
    "INSERT INTO {0}.secrets VALUES ('forged')",
    "UPDATE {0}.secrets SET word = 'forged'",
    "DELETE FROM {0}.secrets",
    "TRUNCATE {0}.secrets",
    "DO $$ BEGIN LOCK TABLE {0}.secrets IN ACCESS SHARE MODE; END $$",
    "ALTER TABLE {0}.secrets OWNER TO CURRENT_USER",
    "DROP TABLE {0}.secrets",
    "COPY {0}.secrets TO STDOUT",
    "CREATE TABLE mine (word text REFERENCES {0}.secrets (word))",
    "CREATE VIEW mine AS SELECT * FROM {0}.secrets",
    "CREATE TRIGGER mine BEFORE INSERT ON {0}.secrets EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "SELECT {0}.word()",
    "SELECT nextval('{0}.numbers')",
    "CREATE TABLE {0}.mine (word text)",
    "CREATE FUNCTION {0}.now() RETURNS timestamptz RETURN '-infinity'",
    "ALTER SCHEMA {0} RENAME TO mine",
    "DROP SCHEMA {0} CASCADE",
    "GRANT USAGE ON SCHEMA {0} TO CURRENT_USER",
    "SET ROLE {0}",
    "SET SESSION AUTHORIZATION {0}",
    "GRANT {0} TO CURRENT_USER",
    "ALTER ROLE {0} PASSWORD 'stolen'",
    "ALTER ROLE {0} SET search_path = 'mine'",
    "REASSIGN OWNED BY {0} TO CURRENT_USER",
    "DROP ROLE {0}",
]

# What no service may do at all.
ALONE = [
    "CREATE TABLE public.mine (word text)",
    "CREATE FUNCTION public.mine() RETURNS int RETURN 1",
    "CREATE TEMPORARY TABLE mine (word text)",
    "CREATE TABLE pg_catalog.mine (word text)",
    "CREATE SCHEMA mine",
    "CREATE DATABASE mine",
    "CREATE ROLE mine",
    "CREATE EXTENSION file_fdw",
    "CREATE TABLESPACE mine LOCATION '/tmp'",
    "CREATE EVENT TRIGGER mine ON ddl_command_start EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE PUBLICATION mine FOR ALL TABLES",
    "SELECT * FROM pg_authid",
    "SELECT * FROM pg_shadow",
    "SELECT * FROM pg_statistic",
    "SELECT * FROM pg_hba_file_rules",
    "SELECT * FROM pg_subscription",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_file('postgresql.conf')",
    "SELECT pg_ls_dir('.')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT pg_reload_conf()",
    "SELECT pg_switch_wal()",
    "SELECT pg_create_physical_replication_slot('mine')",
    "COPY word FROM '/etc/passwd'",
    "COPY word TO '/tmp/mine'",
    "COPY word FROM PROGRAM 'id'",
    "ALTER SYSTEM SET log_statement = 'all'",
    "SET log_statement = 'all'",
    "SET session_preload_libraries = 'mine'",
    "SET session_replication_role = 'replica'",
    "LOAD 'mine'",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "ALTER ROLE CURRENT_USER CREATEROLE",
    "ALTER ROLE CURRENT_USER CREATEDB",
    "ALTER ROLE CURRENT_USER BYPASSRLS",
    "ALTER ROLE CURRENT_USER REPLICATION",
    "GRANT pg_read_all_data TO CURRENT_USER",
    "GRANT pg_monitor TO CURRENT_USER",
    "SET ROLE postgres",
    "SET ROLE pg_read_all_data",
]


@pytest.fixture(scope="module")
def walled_database(postgres: PostgresServer) -> str:
    """A database as it is deployed; returns the superuser's DSN."""
    dsn = postgres.create_database()
    asyncio.run(_furnish(dsn))
    return dsn


async def _furnish(dsn: str) -> None:
    """Each role has a table, a sequence and a function, made by itself after the preparation."""
    await prepare_database(dsn, PASSWORDS)
    for name in SERVICES:
        async with role(dsn, name) as own:
            await own.execute("CREATE TABLE secrets (word text PRIMARY KEY)")
            await own.execute("CREATE TABLE word (word text)")
            await own.execute("CREATE SEQUENCE numbers")
            await own.execute("CREATE FUNCTION word() RETURNS text RETURN 'secret'")
            await own.execute("INSERT INTO secrets VALUES ('secret')")


@asynccontextmanager
async def role(admin_dsn: str, name: str) -> AsyncGenerator[Connection]:
    """A session of a service."""
    session = await connect_once(service_dsn(admin_dsn, name, PASSWORDS[name]), name)
    try:
        yield session
    finally:
        await session.close()


async def refused(session: Connection, statement: str) -> bool:
    """Whether the server says that the right is missing, and not something else."""
    try:
        await session.execute(statement)
    except REFUSED:
        return True
    except asyncpg.PostgresError as error:
        error.add_note(statement)
        raise
    return False


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_a_role_touches_nothing_of_anothers_schema(walled_database: str, one: str, other: str) -> None:
    async with role(walled_database, one) as intruder:
        assert [statement for statement in AGAINST if not await refused(intruder, statement.format(other))] == []
    async with role(walled_database, other) as victim:
        assert await victim.fetchval("SELECT word || word() FROM secrets") == "secretsecret"


@pytest.mark.parametrize("service", SERVICES)
async def test_a_role_is_no_more_than_its_schema(walled_database: str, service: str) -> None:
    async with role(walled_database, service) as session:
        assert [statement for statement in ALONE if not await refused(session, statement)] == []
        await session.execute("CREATE TABLE mine (word text)")
        await session.execute("DROP TABLE mine")


async def test_a_search_path_opens_no_schema(walled_database: str) -> None:
    """Names are looked up in the schemas that the role may use, in whatever order it says."""
    async with role(walled_database, "billing") as session:
        await session.execute("SET search_path = scheduler, public, pg_temp, billing")
        schema = "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'secrets'::regclass"
        assert await session.fetchval(schema) == "billing"
        await session.execute("SET search_path = scheduler")
        with pytest.raises(asyncpg.UndefinedTableError):
            await session.execute("SELECT * FROM secrets")


async def test_what_others_ask_is_hidden(walled_database: str) -> None:
    async with role(walled_database, "scheduler") as victim, role(walled_database, "billing") as intruder:
        await victim.execute("SELECT 'a secret of the scheduler'")
        query = "SELECT query, client_addr, state FROM pg_stat_activity WHERE usename = 'scheduler'"
        seen = await until(lambda: intruder.fetch(query))
        assert {(row["query"], row["client_addr"], row["state"]) for row in seen} == {
            ("<insufficient privilege>", None, None)
        }
        own = await intruder.fetch("SELECT query FROM pg_stat_activity WHERE usename = 'billing'")
        assert any("pg_stat_activity" in row["query"] for row in own)


async def test_no_session_of_another_is_ended(walled_database: str) -> None:
    async with role(walled_database, "scheduler") as victim, role(walled_database, "billing") as intruder:
        pid = await victim.fetchval("SELECT pg_backend_pid()")
        for word in ("pg_terminate_backend", "pg_cancel_backend"):
            assert await refused(intruder, f"SELECT {word}({pid})")
        assert await victim.fetchval("SELECT 1") == 1
        again = await victim.fetchval("SELECT pg_cancel_backend(0)")
        assert again is False


async def test_preparing_again_takes_back_what_was_given(walled_database: str) -> None:
    admin = await connect_once(walled_database)
    try:
        await admin.execute("ALTER ROLE billing SUPERUSER CREATEDB CREATEROLE REPLICATION BYPASSRLS")
        await admin.execute("GRANT ALL ON SCHEMA scheduler TO PUBLIC")
        await prepare_database(walled_database, PASSWORDS)
        row = await admin.fetchrow("SELECT * FROM pg_roles WHERE rolname = 'billing'")
        powers = ("rolsuper", "rolcreatedb", "rolcreaterole", "rolreplication", "rolbypassrls")
        assert row is not None
        assert [power for power in powers if row[power]] == []
        assert row["rolcanlogin"]
    finally:
        await admin.close()
    async with role(walled_database, "billing") as session:
        assert await refused(session, "SELECT * FROM scheduler.secrets")
