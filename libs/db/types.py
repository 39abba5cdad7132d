"""The part of asyncpg that Farside uses, with its types; asyncpg's own annotations stop short of them."""

# ruff: noqa: ASYNC109 - asyncpg's own parameter names

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

Row = Any
"""One row: `row["column"]`; the types of columns are the schema's."""


class Connection(Protocol):
    """One session. `args` stand for $1, $2, ... in the query; `timeout` is in seconds."""

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Run a statement; returns its command tag, such as `UPDATE 3`."""
        ...

    async def executemany(self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None) -> None:
        """Run a statement once for each row of `args`."""
        ...

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Row]:
        """All rows."""
        ...

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Row | None:
        """The first row, or None."""
        ...

    async def fetchval(self, query: str, *args: Any, column: int = 0, timeout: float | None = None) -> Any:
        """One value of the first row, or None."""
        ...

    async def copy_records_to_table(
        self,
        table_name: str,
        *,
        records: Iterable[Sequence[Any]],
        columns: Sequence[str] | None = None,
        schema_name: str | None = None,
        timeout: float | None = None,
        where: str | None = None,
    ) -> str:
        """COPY rows into a table."""
        ...

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False, deferrable: bool = False
    ) -> AbstractAsyncContextManager[None]:
        """A transaction, or a savepoint inside one."""
        ...

    def is_closed(self) -> bool:
        """Whether the session is gone."""
        ...

    def terminate(self) -> None:
        """Drop the session without a word to the server."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:
        """End the session."""
        ...


class Pool(Protocol):
    """Sessions kept open between uses."""

    def acquire(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[Connection]:
        """Borrow a session."""
        ...

    async def close(self) -> None:
        """Wait for the borrowed sessions and end them all."""
        ...

    def terminate(self) -> None:
        """End all sessions at once."""
        ...
