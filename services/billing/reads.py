"""What billing answers when asked: pages of invoices, and the lines of one."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from contracts.base import MAX_REPLY_BYTES, PAGE_LIMIT, Model
from contracts.invoices import Invoice, InvoiceHeld, InvoiceLine, InvoicesPage, InvoicesQuery, LinesPage, LinesQuery
from contracts.registry import NO_KEY
from contracts.requests import ProblemCode
from contracts.usage import UsagePeriodClosed
from libs.bus import Problem
from libs.db import Connection, Row
from services.billing.store import INVOICE_COLUMNS, LINE_COLUMNS

M = TypeVar("M", bound=Model)

REPLY_BUDGET_BYTES = MAX_REPLY_BYTES - 64 * 1024
HELD_BUDGET_BYTES = 128 * 1024
LINES_LIMIT = 2_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_PAGE = """
    SELECT * FROM invoices
    WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR close_id = $2)
      AND ($3::timestamptz IS NULL OR (issued_at, invoice_id) < ($3, $4))
    ORDER BY issued_at DESC, invoice_id DESC LIMIT $5
"""
_HELD = """
    SELECT body, message FROM closings
    WHERE state = 'held' AND ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR close_id = $2)
    ORDER BY cutoff DESC LIMIT $3
"""
_INVOICE = """
    SELECT content FROM invoices i JOIN rate_cards c
      ON c.rate_card = i.rate_card AND c.card_version = i.rate_card_version
    WHERE invoice_id = $1 AND ($2::text IS NULL OR tenant = $2)
"""
_LINES = "SELECT * FROM lines WHERE invoice_id = $1 AND line > $2 ORDER BY line LIMIT $3"


async def page_of_invoices(conn: Connection, key: str, query: InvoicesQuery) -> InvoicesPage:
    """Invoices of the tenant `key` (`_`: of all), newest first. Raises Problem for a cursor that is none of ours."""
    at, invoice_id = _parse_cursor(query.cursor)
    rows = await conn.fetch(_PAGE, _tenant(key), query.close_id, at, invoice_id, query.limit + 1)
    invoices = [_to_invoice(row) for row in rows[: query.limit]]
    held = [] if query.cursor else await _held(conn, key, query.close_id)
    more = len(rows) > len(invoices)
    return InvoicesPage(invoices=invoices, held=held, cursor=_cursor(invoices[-1]) if more else None)


async def page_of_lines(conn: Connection, key: str, query: LinesQuery) -> LinesPage:
    """Lines of an invoice, and on the first page the rate card. Raises Problem when there is no such invoice."""
    card = await conn.fetchval(_INVOICE, query.invoice_id, _tenant(key))
    if card is None:
        msg = f"there is no invoice {query.invoice_id}: `farside bill list` shows those there are"
        raise Problem(ProblemCode.NOT_FOUND, msg)
    first = query.cursor is None
    rows = await conn.fetch(_LINES, query.invoice_id, _parse_line(query.cursor), LINES_LIMIT + 1)
    lines = [_to_line(row) for row in rows[:LINES_LIMIT]]
    fitting = _fit(lines, REPLY_BUDGET_BYTES - (len(card.encode()) if first else 0))
    more = len(rows) > len(fitting)
    return LinesPage(
        lines=fitting, rate_card_text=card if first else None, cursor=str(fitting[-1].line) if more else None
    )


async def _held(conn: Connection, key: str, close_id: str | None) -> list[InvoiceHeld]:
    rows = await conn.fetch(_HELD, _tenant(key), close_id, PAGE_LIMIT)
    return _fit([_to_held(row) for row in rows], HELD_BUDGET_BYTES)


def _fit(items: Sequence[M], budget_bytes: int) -> list[M]:
    """The first of `items` whose JSON fits the budget together."""
    taken: list[M] = []
    for item in items:
        budget_bytes -= len(item.model_dump_json().encode()) + 1
        if budget_bytes < 0:
            break
        taken.append(item)
    return taken


def _to_invoice(row: Row) -> Invoice:
    return Invoice(**{name: row[name] for name in INVOICE_COLUMNS})


def _to_line(row: Row) -> InvoiceLine:
    return InvoiceLine(**{name: row[name] for name in LINE_COLUMNS})


def _to_held(row: Row) -> InvoiceHeld:
    closing = UsagePeriodClosed.model_validate_json(row["body"])
    return InvoiceHeld(
        close_id=closing.close_id,
        tenant=closing.tenant,
        period_start=closing.period_start,
        period_end=closing.period_end,
        message=row["message"],
    )


def _tenant(key: str) -> str | None:
    return None if key == NO_KEY else key


def _cursor(invoice: Invoice) -> str:
    return f"{(invoice.issued_at - _EPOCH) // timedelta(microseconds=1)}:{invoice.invoice_id}"


def _parse_cursor(cursor: str | None) -> tuple[datetime | None, str | None]:
    if cursor is None:
        return None, None
    micros, _, invoice_id = cursor.partition(":")
    try:
        return _EPOCH + timedelta(microseconds=int(micros)), invoice_id
    except (ValueError, OverflowError) as error:
        raise _bad_cursor(cursor) from error


def _parse_line(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > len(str(10**15)):
        raise _bad_cursor(cursor)
    return int(cursor)


def _bad_cursor(cursor: str) -> Problem:
    msg = f"cursor {cursor!r} is not one this service gave out: send the cursor of the last page, or none"
    return Problem(ProblemCode.INVALID, msg)
