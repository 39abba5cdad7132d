"""Preparing a database: for each service a role and a schema that no other service can read."""

from collections.abc import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

from libs.db.errors import DbError
from libs.db.pool import connect_once
from libs.db.types import Connection

# Sessions for two replicas, and to spare.
_POWERS = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS CONNECTION LIMIT 60"


async def prepare_database(admin_dsn: str, passwords: Mapping[str, str]) -> None:
    """Create (or update) one login role and one schema for each service named in `passwords`.

    Runs as superuser. The public schema is closed, so that a service can reach its own tables only.
    """
    connection = await connect_once(admin_dsn)
    try:
        await connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        database = await connection.fetchval("SELECT quote_ident(current_database())")
        await connection.execute(f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")
        for service, password in passwords.items():
            await _prepare_service(connection, str(database), service, password)
    finally:
        await connection.close()


async def _prepare_service(connection: Connection, database: str, service: str, password: str) -> None:
    role = await connection.fetchval("SELECT quote_ident($1)", service)
    secret = await connection.fetchval("SELECT quote_literal($1)", password)
    known = await connection.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", service)
    verb = "ALTER" if known else "CREATE"
    await connection.execute(f"{verb} ROLE {role} {_POWERS} PASSWORD {secret}")
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {role} AUTHORIZATION {role}")
    await connection.execute(f"REVOKE ALL ON SCHEMA {role} FROM PUBLIC")
    await connection.execute(f"GRANT CONNECT ON DATABASE {database} TO {role}")


def service_dsn(admin_dsn: str, service: str, password: str) -> str:
    """The DSN by which `service` connects where `admin_dsn` connects as superuser."""
    parts = urlsplit(admin_dsn)
    if not parts.scheme.startswith("postgres"):
        msg = f"{admin_dsn!r} is no PostgreSQL address: write postgresql://user@host:port/database"
        raise DbError(msg)
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{quote(service, safe='')}:{quote(password, safe='')}@{host}"
    return urlunsplit((parts.scheme, netloc, parts.path, parts.query, parts.fragment))
