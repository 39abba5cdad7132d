"""PostgreSQL: one schema and one role per service, migrations that only go forward."""

from libs.db.errors import ConstraintError, DbError, is_transient
from libs.db.migrate import migrate
from libs.db.pool import connect, connect_once
from libs.db.prepare import prepare_database, service_dsn
from libs.db.types import Connection, Pool, Row

__all__ = [
    "Connection",
    "ConstraintError",
    "DbError",
    "Pool",
    "Row",
    "connect",
    "connect_once",
    "is_transient",
    "migrate",
    "prepare_database",
    "service_dsn",
]
