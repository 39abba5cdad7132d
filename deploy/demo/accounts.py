"""The demo's second part: what the jobs used, what it costs, which alarms were raised, and the one trace of it all."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from contracts import registry
from contracts.invoices import Invoice
from contracts.jobs import JobState
from contracts.requests import Holding, HoldingsPage, HoldingsQuery
from contracts.usage import AttemptUsage, CloseRequest, UsagePage, UsageQuery
from deploy.demo import finders
from deploy.demo.bodies import TENANT
from deploy.demo.findings import AttemptBalance, Findings
from deploy.demo.watcher import Seen
from libs import journey
from libs.cli.session import Session
from libs.cli.verify import verify
from libs.kit.ids import new_id

T = TypeVar("T")

PERIOD_S = 2
HEARTBEAT_S = 0.5
SETTLE_S = 30.0
POLL_S = 0.25
MICRO = 1_000_000


async def balance(session: Session, seen: Seen, jobs: Iterable[str], died_at: datetime) -> list[AttemptBalance]:
    """Measured beside held time for every attempt of the jobs, once they agree within a window (or SETTLE_S is over).

    A killed attempt held its cards until it was killed; the scheduler's ledger only knows when its node was given up.
    """
    states = [seen.jobs[job_id] for job_id in jobs]

    async def look() -> list[AttemptBalance]:
        used = await _used(session, states)
        return [_balance(holdings, used, seen, died_at) for holdings in await _held(session, states)]

    return await _settled(look, lambda found: bool(found) and all(item.holds for item in found))


async def _used(session: Session, states: Iterable[JobState]) -> dict[tuple[str, int], AttemptUsage]:
    found: dict[tuple[str, int], AttemptUsage] = {}
    for state in states:
        page: UsagePage = await session.ask(registry.QUERY_USAGE, UsageQuery(job_id=state.job_id), key=TENANT)
        found |= {(item.job_id, item.attempt): item for item in page.attempts}
    return found


async def _held(session: Session, states: Iterable[JobState]) -> list[list[Holding]]:
    """The holdings of each attempt that held cards."""
    query = HoldingsQuery(job_ids=[state.job_id for state in states])
    page: HoldingsPage = await session.ask(registry.QUERY_HOLDINGS, query, key=TENANT)
    attempts: dict[tuple[str, int], list[Holding]] = {}
    for holding in page.holdings:
        attempts.setdefault((holding.job_id, holding.attempt), []).append(holding)
    return [held for _, held in sorted(attempts.items()) if sum(each.cards for each in held) > 0]


def _balance(
    held: list[Holding], used: dict[tuple[str, int], AttemptUsage], seen: Seen, died_at: datetime
) -> AttemptBalance:
    first = held[0]
    job = seen.jobs[first.job_id]
    killed = first.attempt < job.attempts
    usage = used.get((first.job_id, first.attempt))
    ends = [died_at if killed else each.held_to for each in held]
    cards = sum(each.cards for each in held)
    return AttemptBalance(
        job=job.spec.name,
        attempt=first.attempt,
        killed=killed,
        windows=usage.windows if usage is not None else 0,
        gpu_ms=usage.gpu_ms if usage is not None else 0,
        held_ms_x_cards=sum(
            round((end - each.held_from).total_seconds() * 1000) * each.cards
            for each, end in zip(held, ends, strict=True)
            if end is not None
        ),
        tolerance_ms=round((PERIOD_S + HEARTBEAT_S) * 1000) * cards,
        over=None not in ends,
    )


async def bill(session: Session, wait: Callable[..., Awaitable[Invoice]], say: Callable[[str], None]) -> Invoice:
    """Close the tenant's usage now; the invoice that comes of it."""
    close_id = new_id()
    reply = await session.ask(registry.CALL_CLOSE, CloseRequest(close_id=close_id), key=TENANT)
    say(f"the usage of {TENANT} is closed at {reply.cutoff:%H:%M:%S}: {reply.samples} samples")
    invoice = await wait("the invoice", finders.invoice(close_id), SETTLE_S)
    amount = money(invoice.total_micro, invoice)
    say(f"invoice {invoice.tenant}-{invoice.number:04d}: {invoice.lines} lines, {invoice.samples} samples, {amount}")
    return invoice


async def prove(session: Session, invoice: Invoice, found: Findings, say: Callable[[str], None]) -> None:
    """Compute the invoice anew from what was measured, by other code than billing's."""
    proof = await verify(session, invoice, say=say)
    found.invoice_total_micro = invoice.total_micro
    found.recomputed_total_micro = proof.recomputed_total_micro
    found.bill_differences = [str(difference) for difference in proof.differences]
    again = money(proof.recomputed_total_micro, invoice)
    say(f"computed anew by other code from {proof.measured} measured samples: {again}")


def money(micro: int, invoice: Invoice) -> str:
    """An amount in the invoice's currency."""
    return f"{micro / MICRO:.6f} {invoice.currency}"


async def trace(folder: Path, job_id: str, found: Findings, say: Callable[[str], None]) -> None:
    """Follow the job through every process that wrote spans into the folder."""

    async def look() -> journey.Journey:
        return await asyncio.to_thread(journey.follow, folder, job_id)

    seen = await _settled(look, lambda one: not one.orphans and not one.open)
    found.trace = seen
    say(f"trace {seen.trace_id}: {len(seen.spans)} spans of {', '.join(seen.services)}; {len(seen.orphans)} orphans")


async def _settled(look: Callable[[], Awaitable[T]], settled: Callable[[T], bool]) -> T:
    """What is seen once it has settled, or after SETTLE_S."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while True:
        seen = await look()
        if settled(seen) or loop.time() > deadline:
            return seen
        await asyncio.sleep(POLL_S)
