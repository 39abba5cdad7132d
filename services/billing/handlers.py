"""The shell: closings and roll-ups in, one transaction each, in whatever order; the rating is the rater's."""

from collections.abc import Callable

from contracts.invoices import InvoicesPage, InvoicesQuery, LinesPage, LinesQuery
from contracts.usage import UsagePeriodClosed, UsageRolledUp
from libs.bus import Call, Event, Refused, Tx, actor_of
from libs.db import Connection
from libs.kit.clock import Clock
from services.billing import reads, store
from services.billing.store import State


class Handlers:
    """What billing does with what comes in."""

    def __init__(self, wake: Callable[[], None], clock: Clock) -> None:
        """`wake` tells the rater that there may be work."""
        self._wake = wake
        self._clock = clock

    async def rolled_up(self, tx: Tx[Connection], event: Event[UsageRolledUp]) -> None:
        """Keep a roll-up. A known one changes nothing; one that differs, or comes after the invoice, is refused."""
        rollup = event.body
        known = await store.rollup(tx.conn, rollup.rollup_id)
        if known == rollup:
            return
        if known is not None:
            msg = f"roll-up {rollup.rollup_id} came before with another content: the first one is kept"
            raise Refused(msg)
        state = await store.lock_state(tx.conn, rollup.close_id)
        if state in {State.INVOICED, State.EMPTY}:
            msg = (
                f"roll-up {rollup.rollup_id} comes after close {rollup.close_id} was billed in full: an invoice never "
                "changes, late usage belongs into the next closing"
            )
            raise Refused(msg)
        await store.add_rollup(tx.conn, rollup, self._clock.now())
        self._wake()

    async def period_closed(self, tx: Tx[Connection], event: Event[UsagePeriodClosed]) -> None:
        """Keep a closing. One that is known changes nothing; another one under its id is refused."""
        closing = event.body
        if not await store.add_closing(tx.conn, closing, actor_of(event), self._clock.now()):
            known = await store.closing(tx.conn, closing.close_id)
            if known != closing:
                msg = f"close {closing.close_id} came before with another content: the first one is kept"
                raise Refused(msg)
        self._wake()

    async def invoices(self, tx: Tx[Connection], call: Call[InvoicesQuery]) -> InvoicesPage:
        """Invoices, newest first, and what is held."""
        return await reads.page_of_invoices(tx.conn, call.key, call.body)

    async def lines(self, tx: Tx[Connection], call: Call[LinesQuery]) -> LinesPage:
        """The lines of one invoice."""
        return await reads.page_of_lines(tx.conn, call.key, call.body)
