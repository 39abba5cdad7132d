"""What the bus keeps in the service's own store: inbox, outbox, failure counts. PostgreSQL or SQLite underneath.

A `Tx` is one transaction of that store; everything a handler does and says happens in it or not at all.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from contracts.base import Model
from contracts.registry import Message
from libs.bus.codec import Envelope
from libs.bus.outbox import OutboxRow, make_row
from libs.kit.clock import Clock
from libs.kit.ids import new_id
from libs.telemetry import context

C = TypeVar("C")
M = TypeVar("M", bound=Model)


@dataclass
class Tx(Generic[C]):
    """One transaction: `conn` is the store's connection (asyncpg for services, sqlite3 for agents)."""

    conn: C
    source: str
    clock: Clock
    rows: list[OutboxRow] = field(default_factory=list[OutboxRow])
    calls: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def after_commit(self, call: Callable[[], None]) -> None:
        """Have `call` made once this transaction has committed; never when it is rolled back."""
        self.calls.append(call)

    def emit(
        self,
        message: Message[M],
        body: M,
        *,
        key: str,
        subject: str,
        sequence: int,
        actor: str,
        incarnation: str | None = None,
        id: str | None = None,  # noqa: A002 - the attribute's name in CloudEvents
    ) -> str:
        """Put a message into the outbox and return its id; it is published once the transaction has committed.

        `subject` is the aggregate and `sequence` its version. With an `id` of the caller's own the same message may
        be emitted again: an id that is already in the outbox is not sent twice. Raises TooLarge.
        """
        envelope = Envelope(
            id=id or new_id(),
            source=self.source,
            subject=subject,
            sequence=sequence,
            actor=actor,
            incarnation=incarnation,
            time=self.clock.now(),
        )
        self.rows.append(make_row(message, body, key, envelope, context.current()))
        return envelope.id


@dataclass(frozen=True)
class OutboxCounts:
    """Rows that wait for the relay, and rows that the bus refused for good."""

    waiting: int
    parked: int


class Ledger(Protocol[C]):
    """What App needs of a store. All methods may raise the store's errors; `is_transient` tells which will pass."""

    source: str
    on_commit: Callable[[], None]

    def transaction(self) -> AbstractAsyncContextManager[Tx[C]]:
        """One transaction; rows emitted in it enter the outbox as it commits. Raises NotLeader, Nested.

        Log lines written in it are held back until it has ended: see libs.kit.logs.
        """
        ...

    async def claim(self, tx: Tx[C], consumer: str, key: str, source: str, id: str) -> bool:  # noqa: A002
        """Enter a message into the inbox; False when it is there already."""
        ...

    async def count_failure(self, consumer: str, stream: str, sequence: int, message: str) -> int:
        """Count one more failure of a message, in a transaction of its own; returns the new count."""
        ...

    async def forget_failure(self, tx: Tx[C], consumer: str, stream: str, sequence: int) -> None:
        """Drop the count."""
        ...

    async def waiting(self, limit: int, skip: Collection[str]) -> Sequence[OutboxRow]:
        """The oldest rows to be published, without those of the aggregates in `skip`."""
        ...

    async def mark_published(self, numbers: Sequence[int]) -> None:
        """Mark rows whose PubAck has come."""
        ...

    async def park(self, number: int, reason: str) -> None:
        """Put a row aside that the bus refuses for good."""
        ...

    async def counts(self) -> OutboxCounts:
        """How many rows wait and how many are parked."""
        ...

    async def prune(self, outbox_keep_s: float, inbox_keep_s: float) -> None:
        """Remove published rows and inbox entries that are older."""
        ...

    async def ping(self) -> None:
        """Raise unless the store answers."""
        ...

    def is_transient(self, error: BaseException) -> bool:
        """Whether the same work may succeed later by itself."""
        ...

    def election(self) -> "Election":
        """A new candidacy for this service."""
        ...

    def lead(self, epoch: int | None) -> None:
        """From now on transactions commit only while `epoch` is the newest (None: no such check)."""
        ...


class Election(Protocol):
    """One process of several leads at a time."""

    async def win(self, wait_s: float) -> int:
        """Wait until this process leads, asking every `wait_s`; returns the epoch, larger at each change."""
        ...

    async def hold(self, check_s: float) -> None:
        """Return when leadership may have been lost, looking every `check_s`."""
        ...

    async def resign(self) -> None:
        """Let another one lead."""
        ...
