"""What is to be done once a transaction has committed: a log line inside it would tell what may be rolled back."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from libs.bus import PgLedger, Tx
from libs.db import Connection

_calls: ContextVar[list[Callable[[], None]]] = ContextVar("after_commit")


def after_commit(call: Callable[[], None]) -> None:
    """Have `call` made when the transaction around has committed, in its trace; never when it is rolled back."""
    _calls.get().append(call)


class AlertingLedger(PgLedger):
    """The ledger whose transactions know `after_commit`."""

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Tx[Connection], None]:
        """One transaction, then what it has left to be done."""
        calls: list[Callable[[], None]] = []
        token = _calls.set(calls)
        try:
            async with super().transaction() as tx:
                yield tx
        finally:
            _calls.reset(token)
        for call in calls:
            call()
