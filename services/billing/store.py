"""All SQL of billing that writes, and what the rater reads. Functions take the caller's connection."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from contracts.invoices import Invoice, InvoiceLine
from contracts.usage import UsagePeriodClosed, UsageRolledUp
from libs.db import Connection
from libs.telemetry import context
from services.billing.core.cards import RateCard

Finder: TypeAlias = Callable[[Connection], Awaitable[list[str]]]
"""Finds ids of closings."""

DUE_LIMIT = 100
HELD_LIMIT = 1_000

INVOICE_COLUMNS = tuple(Invoice.model_fields)
LINE_COLUMNS = tuple(InvoiceLine.model_fields)

_ADD_ROLLUP = """
    INSERT INTO rollups (rollup_id, close_id, body, trace, stored_at) VALUES ($1, $2, $3, $4, $5)
"""
_ADD_CLOSING = """
    INSERT INTO closings (close_id, tenant, cutoff, rollups, body, state, actor, trace, stored_at)
    VALUES ($1, $2, $3, $4, $5, 'waiting', $6, $7, $8) ON CONFLICT DO NOTHING RETURNING true
"""
_DUE = """
    SELECT close_id FROM closings c
    WHERE state = 'waiting' AND (SELECT count(*) FROM rollups r WHERE r.close_id = c.close_id) >= c.rollups
    ORDER BY cutoff, close_id LIMIT $1
"""
_HELD = "SELECT close_id FROM closings WHERE state = 'held' ORDER BY cutoff, close_id LIMIT $1"
_LOAD = "SELECT body, state, message, actor, trace FROM closings WHERE close_id = $1 FOR UPDATE"
_ROLLUPS = "SELECT body, trace FROM rollups WHERE close_id = $1"
_SETTLE = "UPDATE closings SET state = $2, message = $3 WHERE close_id = $1"
_KEEP_CARD = """
    INSERT INTO rate_cards (rate_card, card_version, sha256, content, first_used_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT DO NOTHING
"""
_CARD = "SELECT sha256 FROM rate_cards WHERE rate_card = $1 AND card_version = $2"
_NEXT_NUMBER = """
    INSERT INTO numbers (tenant, last_number) VALUES ($1, 1)
    ON CONFLICT (tenant) DO UPDATE SET last_number = numbers.last_number + 1 RETURNING last_number
"""


class State(StrEnum):
    """Where a closing stands. `waiting`: for roll-ups; `held`: it cannot be rated yet; `empty`: nothing to bill."""

    WAITING = "waiting"
    HELD = "held"
    INVOICED = "invoiced"
    EMPTY = "empty"


@dataclass(frozen=True)
class Work:
    """A closing that is to be rated. `traces` are those of the messages that told it."""

    closing: UsagePeriodClosed
    rollups: list[UsageRolledUp]
    message: str | None
    actor: str
    traces: list[str]


async def rollup(conn: Connection, rollup_id: str) -> UsageRolledUp | None:
    """A roll-up as it is kept."""
    body = await conn.fetchval("SELECT body FROM rollups WHERE rollup_id = $1", rollup_id)
    return None if body is None else UsageRolledUp.model_validate_json(body)


async def add_rollup(conn: Connection, body: UsageRolledUp, now: datetime) -> None:
    """Keep a roll-up."""
    await conn.execute(_ADD_ROLLUP, body.rollup_id, body.close_id, body.model_dump_json(), _trace(), now)


async def closing(conn: Connection, close_id: str) -> UsagePeriodClosed | None:
    """A closing as it is kept."""
    body = await conn.fetchval("SELECT body FROM closings WHERE close_id = $1", close_id)
    return None if body is None else UsagePeriodClosed.model_validate_json(body)


async def add_closing(conn: Connection, body: UsagePeriodClosed, actor: str, now: datetime) -> bool:
    """Keep a closing; False when its id is known."""
    place = (body.close_id, body.tenant, body.cutoff, body.rollups)
    return await conn.fetchval(_ADD_CLOSING, *place, body.model_dump_json(), actor, _trace(), now) is not None


async def lock_state(conn: Connection, close_id: str) -> State | None:
    """Where a closing stands, locked until the transaction ends; None when it was not told yet."""
    state = await conn.fetchval("SELECT state FROM closings WHERE close_id = $1 FOR UPDATE", close_id)
    return None if state is None else State(state)


async def due(conn: Connection) -> list[str]:
    """Closings whose roll-ups are all there, the earliest cutoff first."""
    return [row["close_id"] for row in await conn.fetch(_DUE, DUE_LIMIT)]


async def held(conn: Connection) -> list[str]:
    """Closings that could not be rated, the earliest cutoff first."""
    return [row["close_id"] for row in await conn.fetch(_HELD, HELD_LIMIT)]


async def load(conn: Connection, close_id: str) -> Work | None:
    """A closing that is not settled with its roll-ups, locked until the transaction ends."""
    row = await conn.fetchrow(_LOAD, close_id)
    if row is None or State(row["state"]) not in {State.WAITING, State.HELD}:
        return None
    rows = await conn.fetch(_ROLLUPS, close_id)
    return Work(
        closing=UsagePeriodClosed.model_validate_json(row["body"]),
        rollups=[UsageRolledUp.model_validate_json(each["body"]) for each in rows],
        message=row["message"],
        actor=row["actor"],
        traces=[each["trace"] for each in (*rows, row) if each["trace"] is not None],
    )


async def settle(conn: Connection, close_id: str, state: State, message: str | None = None) -> None:
    """Say where a closing stands now."""
    await conn.execute(_SETTLE, close_id, state.value, message)


async def keep_card(conn: Connection, card: RateCard, now: datetime) -> str:
    """Keep the text of a rate card that is used; returns the digest of this version when it was first used."""
    await conn.execute(_KEEP_CARD, card.name, card.version, card.sha256, card.text, now)
    return str(await conn.fetchval(_CARD, card.name, card.version))


async def next_number(conn: Connection, tenant: str) -> int:
    """The next number of the tenant's invoices; it is free again when the transaction fails."""
    return int(await conn.fetchval(_NEXT_NUMBER, tenant))


async def add_invoice(conn: Connection, invoice: Invoice, lines: Sequence[InvoiceLine]) -> None:
    """Write an invoice with its lines, for good."""
    row = tuple(getattr(invoice, name) for name in INVOICE_COLUMNS)
    await conn.copy_records_to_table("invoices", records=[row], columns=INVOICE_COLUMNS)
    rows = [(invoice.invoice_id, *(getattr(line, name) for name in LINE_COLUMNS)) for line in lines]
    await conn.copy_records_to_table("lines", records=rows, columns=("invoice_id", *LINE_COLUMNS))


def _trace() -> str | None:
    trace = context.current()
    return None if trace is None else trace.hop
