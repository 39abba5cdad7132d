"""A service's ledger in memory, with the rules of the real ones.

One transaction takes a message: its id enters the inbox, rows are written, messages enter the outbox. All of that
stands, or none of it. What is in the outbox is published after the commit, in order.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from tests.sim.bus import Bus, Mail

K = TypeVar("K")
V = TypeVar("V")
RELAY_MS = 5
RETRY_MS = 1000


class GivenUpError(Exception):
    """The transaction is given up: what it wrote is taken back."""


class NotYetError(Exception):
    """The message cannot be handled yet: it is asked for again."""


class Tx:
    """One transaction: what it has written, and what it will say."""

    def __init__(self) -> None:
        self.outbox: list[Mail] = []
        self.afterwards: list[Callable[[], object]] = []
        self._undo: list[Callable[[], object]] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        """Write a row."""
        if key in table:
            old = table[key]
            self._undo.append(lambda: table.__setitem__(key, old))
        else:
            self._undo.append(lambda: table.pop(key, None))
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        """Remove a row, if it is there."""
        if key in table:
            old = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, old))

    def then(self, act: Callable[[], object]) -> None:
        """Do this once the transaction is committed."""
        self.afterwards.append(act)

    def roll_back(self) -> None:
        """Take back what was written."""
        for act in reversed(self._undo):
            act()


class Service:
    """What the services have in common: one ledger, an inbox, an outbox, and times at which they are away.

    Messages of `unboxed` topics rely on keys of their own instead of the inbox.
    """

    name = "service"
    unboxed: frozenset[str] = frozenset()

    def __init__(self, bus: Bus, *, inbox: bool = True) -> None:
        self.bus = bus
        self.loop = bus.loop
        self.inbox: dict[int, None] = {}
        self.commits = 0
        self._keeps_inbox = inbox
        self._handlers: dict[str, Callable[[Tx, Mail], None]] = {}
        self._away_until: int | None = None

    def on(self, topic: str, handler: Callable[[Tx, Mail], None]) -> None:
        """Listen to a topic with a handler of one message in one transaction."""
        self._handlers[topic] = handler
        self.bus.listen(topic, self)

    def back_ms(self) -> int | None:
        """When the service is there again, None when it is."""
        return self._away_until

    def go_away(self, until_ms: int) -> None:
        """The process ends; it is started again at `until_ms`."""
        self._away_until = until_ms
        self.loop.at(until_ms, self._come_back)

    def _come_back(self) -> None:
        self._away_until = None
        self.started()

    def started(self) -> None:
        """The process has started anew: what it kept in memory is gone."""

    def take(self, mail: Mail, attempt: str) -> bool:
        """Handle a message once, whatever is handed over twice. False: not handled, hand it over again."""
        if mail.id in self.inbox:
            return True
        try:
            with self.transaction() as tx:
                if self._keeps_inbox and mail.topic not in self.unboxed:
                    tx.put(self.inbox, mail.id, None)
                self._handlers[mail.topic](tx, mail)
                self.may_fail(attempt)
        except (GivenUpError, NotYetError):
            return False
        return True

    def may_fail(self, about: str) -> None:
        """Give the transaction up where the seed says so."""
        if self.bus.faults.hits("rolled back", self.bus.faults.rates.rollback, about):
            raise GivenUpError

    def forget(self, mail: Mail) -> None:
        """No copy will come any more: the inbox row has done its work."""
        self.inbox.pop(mail.id, None)

    def transaction(self) -> "Transaction":
        """Commit at the end, or take back everything when it is left by an error."""
        return Transaction(self)

    def commit(self, tx: Tx) -> None:
        """What was written stands; what is in the outbox is published."""
        self.commits += 1
        for act in tx.afterwards:
            act()
        for mail in tx.outbox:
            self.loop.after(RELAY_MS, self._relay, mail)

    def _relay(self, mail: Mail) -> None:
        """Publish what was committed; a service that is away does it when it is back."""
        if self._away_until is not None:
            self.loop.at(self._away_until + RELAY_MS, self._relay, mail)
        else:
            self.bus.publish(mail)

    def emit(self, tx: Tx, topic: str, body: Any, *, key: str, subject: str, sequence: int) -> None:
        """Put a message into the outbox."""
        tx.outbox.append(Mail(self.bus.next_id(), topic, key, subject, sequence, body))


class Transaction:
    """The span of one transaction."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tx = Tx()

    def __enter__(self) -> Tx:
        """Begin."""
        return self._tx

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """Commit, or roll back."""
        if kind is None:
            self._service.commit(self._tx)
        else:
            self._tx.roll_back()
