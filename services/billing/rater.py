"""The background loop: rates what is complete, one transaction for each closing, and tries again what is held."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import assert_never

from contracts import registry
from libs.bus import Tx
from libs.db import Connection
from libs.kit.bell import Bell
from libs.kit.clock import Clock
from libs.kit.ids import new_id
from libs.kit.logs import get_logger
from libs.telemetry import context
from libs.telemetry.spans import annotate, span
from services.billing import store
from services.billing.core.rating import Hold, Nothing, Outcome, Rated, make_invoice, rate
from services.billing.meters import Meters
from services.billing.rates import RateBook
from services.billing.store import State, Work

MAX_MESSAGE_CHARS = 4_000


class Rater:
    """Woken by what comes in, and every `poll_s`: to look at the rate cards and for what was woken too early."""

    def __init__(
        self,
        transaction: Callable[[], AbstractAsyncContextManager[Tx[Connection]]],
        book: RateBook,
        clock: Clock,
        poll_s: float,
    ) -> None:
        """Nothing runs before `run`."""
        self._transaction = transaction
        self._book = book
        self._clock = clock
        self._poll_s = poll_s
        self._bell = Bell()
        self._meters = Meters()

    def wake(self) -> None:
        """There may be a complete closing."""
        self._bell.ring()

    async def run(self) -> None:
        """Work for ever. What is held is tried at the start, since the cards may have changed, and when they change."""
        await self._rate_all(await self._find(store.held))
        while True:
            self._bell.quiet()
            if self._book.refresh():
                await self._rate_all(await self._find(store.held))
            found = await self._find(store.due)
            if found:
                await self._rate_all(found)
            else:
                await self._bell.wait(self._poll_s)

    async def _find(self, which: store.Finder) -> list[str]:
        async with self._transaction() as tx:
            return await which(tx.conn)

    async def _rate_all(self, close_ids: list[str]) -> None:
        for close_id in close_ids:
            async with self._transaction() as tx:
                work = await store.load(tx.conn, close_id)
                if work is None:
                    continue
                with span("rate usage", root=True, links=work.traces):
                    annotate(tenant=work.closing.tenant)
                    tell, trace = await self._rate(tx, work), context.current()
            with context.use(trace):
                tell()
        self._meters.held = len(await self._find(store.held))

    async def _rate(self, tx: Tx[Connection], work: Work) -> Callable[[], None]:
        """Do what the core decides, and return what is to be said once it is committed."""
        card = self._book.card_for(work.closing.tenant)
        outcome: Outcome = rate(work.closing, work.rollups, card)
        if isinstance(outcome, Rated):
            used = await store.keep_card(tx.conn, outcome.card, self._clock.now())
            if used != outcome.card.sha256:
                outcome = Hold(
                    f"rate card {outcome.card.name} version {outcome.card.version} was used before with another "
                    "content: raise its version"
                )
        match outcome:
            case Rated():
                return await self._issue(tx, work, outcome)
            case Hold(message):
                return await self._hold(tx, work, message)
            case Nothing():
                return await self._leave(tx, work)
            case _:
                assert_never(outcome)

    async def _issue(self, tx: Tx[Connection], work: Work, rated: Rated) -> Callable[[], None]:
        number = await store.next_number(tx.conn, work.closing.tenant)
        now = self._clock.now()
        invoice = make_invoice(work.closing, rated, invoice_id=new_id(), number=number, issued_at=now)
        await store.add_invoice(tx.conn, invoice, rated.lines)
        await store.settle(tx.conn, invoice.close_id, State.INVOICED)
        tx.emit(
            registry.INVOICES_ISSUED,
            invoice,
            key=invoice.tenant,
            subject=invoice.invoice_id,
            sequence=1,
            actor=work.actor,
        )

        def tell() -> None:
            self._meters.issued(invoice)
            get_logger().info(
                "invoice.issued",
                tenant=invoice.tenant,
                invoice=invoice.invoice_id,
                number=number,
                total_micro=invoice.total_micro,
                currency=invoice.currency,
                samples=invoice.samples,
            )

        return tell

    async def _hold(self, tx: Tx[Connection], work: Work, message: str) -> Callable[[], None]:
        closing, message = work.closing, message[:MAX_MESSAGE_CHARS]
        await store.settle(tx.conn, closing.close_id, State.HELD, message)

        def tell() -> None:
            if message != work.message:
                get_logger().warning(
                    "closing.held", tenant=closing.tenant, close=closing.close_id, number=closing.number, why=message
                )

        return tell

    async def _leave(self, tx: Tx[Connection], work: Work) -> Callable[[], None]:
        closing = work.closing
        await store.settle(tx.conn, closing.close_id, State.EMPTY)

        def tell() -> None:
            get_logger().info("closing.empty", tenant=closing.tenant, close=closing.close_id, number=closing.number)

        return tell
