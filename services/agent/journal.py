"""The journal at work: one event, one transaction, one decision.

In: events about attempts, from handlers (inside the bus's transaction) and from the shell. Out: the row after it, its
messages in the outbox, all in one commit.
"""

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar, assert_never

from libs.bus import Tx
from libs.kit.clock import Clock
from libs.telemetry import context
from services.agent import store
from services.agent.core import decide
from services.agent.core.model import Attempt, AttemptKey, Emit, Event, Record, Speaker
from services.agent.meter import Meter
from services.agent.store import Transaction

T = TypeVar("T")


class Journal:
    """Reads and writes attempts; the only caller of `decide`. The meter follows what it writes."""

    def __init__(self, transaction: Transaction, me: Speaker, clock: Clock, meter: Meter) -> None:
        self._transaction = transaction
        self._me = me
        self._clock = clock
        self._meter = meter

    @property
    def me(self) -> Speaker:
        """The node, and this start of its agent."""
        return self._me

    @property
    def clock(self) -> Clock:
        """The agent's clock."""
        return self._clock

    async def apply(self, key: AttemptKey, *events: Event) -> Attempt | None:
        """Decide on the events one after another in a transaction of their own; the row after them."""
        async with self._transaction() as tx:
            return self.apply_in(tx, key, *events)

    def apply_in(self, tx: Tx[sqlite3.Connection], key: AttemptKey, *events: Event) -> Attempt | None:
        """The same inside `tx`."""
        for event in events:
            self._apply_one(tx, key, event)
        return store.load(tx.conn, key)

    def _apply_one(self, tx: Tx[sqlite3.Connection], key: AttemptKey, event: Event) -> None:
        before = after = store.load(tx.conn, key)
        for effect in decide.decide(before, event, self._me, self._clock.now()):
            match effect:
                case Record(row):
                    store.record(tx.conn, row)
                    if after is None:
                        store.keep_trace(tx.conn, key, context.current())
                    after = row
                case Emit():
                    self._emit(tx, key, effect)
                case _:
                    assert_never(effect)
        self._meter.follow(tx, before, after)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run statements of `store` in a transaction of their own."""
        async with self._transaction() as tx:
            return query(tx.conn)

    def transaction(self) -> AbstractAsyncContextManager[Tx[sqlite3.Connection]]:
        """One transaction."""
        return self._transaction()

    def _emit(self, tx: Tx[sqlite3.Connection], key: AttemptKey, effect: Emit) -> None:
        with context.use(context.current() or store.trace_of(tx.conn, key)):
            tx.emit(
                effect.message,
                effect.body,
                key=self._me.node,
                subject=f"{key.job_id}/{key.attempt}/{key.member}",
                sequence=effect.sequence,
                actor=f"agent/{self._me.node}",
                incarnation=self._me.incarnation,
            )
