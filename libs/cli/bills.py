"""`farside bill`: close a tenant's usage, look at invoices, prove one."""

import asyncio
from datetime import datetime
from fractions import Fraction
from pathlib import Path

import click

from contracts import registry
from contracts.invoices import Invoice, InvoiceLine, InvoicesQuery
from contracts.usage import CloseReply, CloseRequest, UsageItem
from libs.audit import Findings, reference
from libs.cli import options, output, words
from libs.cli.errors import FAILED, CliError
from libs.cli.manual import ManualGroup
from libs.cli.session import Session, connected, every, run
from libs.cli.verify import card_in, find_invoice, invoice_lines, verify
from libs.kit.ids import new_id

LOOK_EVERY_S = 0.3
MICRO_DIGITS = 6
HOUR_MS = 3_600_000
IN_A_UNIT: dict[str, int] = {UsageItem.GPU_MS: HOUR_MS, UsageItem.GPU_MEMORY_MIB_MS: 1024 * HOUR_MS}
SHOWN_DIGEST = 12
SHORT_ID = 8


@click.group(cls=ManualGroup)
def bill() -> None:
    """Close a tenant's usage, look at its invoices, and prove one."""


def _which(name: str | None, *, last: bool) -> str | None:
    """What INVOICE and --last say together."""
    if last == (name is not None):
        msg = "name an INVOICE (acme-0001, its id or the beginning of it), or give --last"
        raise click.UsageError(msg)
    return name


@bill.command("close")
@click.option("--wait", "wait_s", type=click.FloatRange(0, 3600), default=60.0, show_default=True, metavar="SECONDS")
@options.acting_tenant
@options.common
def close_command(tenant: str, wait_s: float, stack: Path | None, *, as_json: bool) -> None:
    """Close a tenant's usage now, wait for the invoice, and print it.

    Everything billable that is stored and in no earlier closing is rolled up and rated. What comes later goes into the
    next closing. A closing without usage makes no invoice. With --wait 0 the closing alone is printed.

    Example:
      farside bill close --tenant acme

    """
    run(_close(tenant, wait_s, stack, as_json=as_json))


async def _close(tenant: str, wait_s: float, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        closing, invoice = await close(session, tenant, wait_s)
    if as_json:
        output.as_json({"closing": closing, "invoice": invoice})
    elif invoice is not None:
        _print(invoice)


async def close(session: Session, tenant: str, wait_s: float) -> tuple[CloseReply, Invoice | None]:
    """Close and wait for the invoice; None when nothing was used or `wait_s` is 0. CliError when it does not come."""
    request = CloseRequest(close_id=new_id())
    closing = await session.ask(registry.CALL_CLOSE, request, key=tenant)
    samples = words.count(closing.samples, "sample")
    output.note(f"closing {closing.number} of {tenant}: {samples} up to {words.moment(closing.cutoff)}")
    if closing.samples == 0:
        output.note(f"{nothing(tenant, closing.number)}: no invoice is made")
        return closing, None
    return closing, await _await_invoice(session, tenant, closing, wait_s) if wait_s else None


def nothing(tenant: str, number: int) -> str:
    """Why a tenant's closing with that number is empty."""
    if number > 1:
        return "nothing was used since the last closing"
    return f"nothing billable was ever measured for tenant {tenant} (is that its name? `farside usage` shows tenants)"


async def _await_invoice(session: Session, tenant: str, closing: CloseReply, wait_s: float) -> Invoice:
    query, told = InvoicesQuery(close_id=closing.close_id), ""
    try:
        async with asyncio.timeout(wait_s):
            while True:
                page = await session.ask(registry.QUERY_INVOICES, query, key=tenant)
                if page.invoices:
                    return page.invoices[0]
                why = page.held[0].message if page.held else ""
                if why != told:
                    output.note(f"held: {why}")
                    told = why
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        reason = told or "it is still being rolled up or rated; `farside status` shows how the services are"
        msg = f"no invoice for close {closing.close_id} of {tenant} after {wait_s:g} s: {reason}"
        raise CliError(msg) from None


@bill.command("list")
@options.seen_tenant
@options.common
def list_(tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """List invoices, newest first, and closings that cannot be rated yet.

    Example:
      farside bill list --tenant acme

    """
    run(_list(tenant, stack, as_json=as_json))


async def _list(tenant: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        pages = await every(
            lambda cursor: session.ask(registry.QUERY_INVOICES, InvoicesQuery(cursor=cursor), key=tenant),
            lambda page: [page],
        )
    invoices = [invoice for page in pages for invoice in page.invoices]
    held = [each for page in pages for each in page.held]
    if as_json:
        output.as_json({"invoices": invoices, "held": held})
        return
    rows = [
        (
            reference(invoice),
            _period(invoice.period_start, invoice.period_end),
            money(invoice),
            str(invoice.samples),
            f"{invoice.rate_card} v{invoice.rate_card_version}",
            words.moment(invoice.issued_at),
        )
        for invoice in invoices
    ]
    headers = ("INVOICE", "PERIOD", "TOTAL", "SAMPLES", "RATE CARD", "ISSUED")
    output.table(headers, rows, empty="no invoice yet: `farside bill close` closes a tenant's usage")
    for each in held:
        output.note(f"held: close {each.close_id} of {each.tenant}: {each.message}")


@bill.command()
@click.argument("invoice", required=False)
@click.option("--last", is_flag=True, help="The newest invoice.")
@click.option("--lines", "with_lines", is_flag=True, help="Show the lines as well.")
@options.seen_tenant
@options.common
def show(invoice: str | None, tenant: str, stack: Path | None, *, last: bool, with_lines: bool, as_json: bool) -> None:
    """Show INVOICE: its number (acme-0001), its id, or the beginning of its id.

    ID is the beginning of the job's id. HOURS are the first and the last hour in the line, each by its beginning.
    UNROUNDED is the line's amount to a millionth, AMOUNT its part of the total in the currency's smallest coin; both
    add up.

    Examples:
      farside bill show acme-0001 --lines
      farside bill show --last --json

    """
    run(_show(_which(invoice, last=last), tenant, stack, with_lines=with_lines, as_json=as_json))


async def _show(name: str | None, tenant: str, stack: Path | None, *, with_lines: bool, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await find_invoice(session, name, tenant)
        lines = (await invoice_lines(session, found))[0] if with_lines else []
    if as_json:
        data = {"reference": reference(found), **found.model_dump(mode="json")}
        output.as_json({**data, "lines": lines} if with_lines else data)
        return
    _print(found)
    if with_lines:
        _print_lines(found, lines)
    else:
        output.note(f"{words.count(found.lines, 'line')}: --lines shows more")


@bill.command("verify")
@click.argument("invoice", required=False)
@click.option("--last", is_flag=True, help="The newest invoice.")
@click.option(
    "--rates",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Take the rate card from this folder [default: billing's copy, proven by its digest].",
)
@options.seen_tenant
@options.common
def verify_command(
    invoice: str | None, tenant: str, rates: Path | None, stack: Path | None, *, last: bool, as_json: bool
) -> None:
    """Prove INVOICE anew from what the nodes measured, by code that shares nothing with metering and billing.

    Replays the measured messages, fetches the extracts, compares them with metering's samples as they stand now, and
    computes every amount from the rate card. The exit status is 1 when anything differs, 3 when a service, the stream
    or the object store does not answer.

    Examples:
      farside bill verify --last
      farside bill verify acme-0001 --rates deploy/local/rates --json

    """
    findings = run(_verify(_which(invoice, last=last), tenant, rates, stack))
    if as_json:
        output.as_json(findings)
    else:
        _print_findings(findings)
    if not findings.ok:
        raise SystemExit(FAILED)


async def _verify(name: str | None, tenant: str, rates: Path | None, stack: Path | None) -> Findings:
    async with connected(stack) as session:
        found = await find_invoice(session, name, tenant)
        text = None if rates is None else card_in(rates, found)
        return await verify(session, found, card_text=text)


def _print_findings(findings: Findings) -> None:
    output.record(
        [
            ("invoice", f"{findings.invoice} ({findings.invoice_id})"),
            ("samples", str(findings.samples)),
            ("measured", str(findings.measured)),
            ("invoiced", _decimal(findings.invoice_total_micro, MICRO_DIGITS)),
            ("recomputed", _decimal(findings.recomputed_total_micro, MICRO_DIGITS)),
            (
                "later",
                f"{words.count(findings.later, 'row')} measured in time, heard of late, not billed yet"
                if findings.later
                else "",
            ),
            (
                "billed later",
                f"{words.count(findings.billed_later, 'row')} measured in time, heard of late, in a later closing"
                if findings.billed_later
                else "",
            ),
            ("verdict", "ok" if findings.ok else words.count(findings.differing, "difference")),
        ]
    )
    for each in findings.differences:
        click.echo(f"{each.what}: {each.where}\n  expected {each.expected}\n  found    {each.found}")
    if findings.unreplayed:
        windows = words.count(len(findings.unreplayed), "window")
        output.note(f"{windows} could not be replayed, being older than the stream:")
        for window in findings.unreplayed:
            output.note(f"  {window}")
    for each in findings.unchecked:
        output.note(f"could not be checked: {each}")


def money(invoice: Invoice) -> str:
    """The total with its currency: `12.34 USD`."""
    return f"{_decimal(invoice.total_minor, invoice.exponent)} {invoice.currency}"


def _print(invoice: Invoice) -> None:
    before = _decimal(invoice.total_micro, MICRO_DIGITS)
    card = f"{invoice.rate_card} version {invoice.rate_card_version} (sha256 {invoice.rate_card_sha256[:SHOWN_DIGEST]})"
    usage = f"{words.count(invoice.samples, 'sample')} in {words.count(invoice.rollups, 'roll-up')}"
    digest = f"(sha256 {invoice.sha256[:SHOWN_DIGEST]})"
    output.record(
        [
            ("invoice", f"{reference(invoice)} ({invoice.invoice_id})"),
            ("tenant", invoice.tenant),
            ("period", _period(invoice.period_start, invoice.period_end)),
            ("usage", f"{usage} {digest}, stored up to {words.moment(invoice.cutoff)}"),
            ("rate card", card),
            ("issued", words.moment(invoice.issued_at)),
            ("total", f"{money(invoice)} ({before} before rounding)"),
        ]
    )


def _print_lines(invoice: Invoice, lines: list[InvoiceLine]) -> None:
    rows = [line_row(line, invoice.exponent) for line in lines]
    micro, minor = sum(line.amount_micro for line in lines), sum(line.amount_minor for line in lines)
    total = ("", "total", *[" "] * 8, _decimal(micro, MICRO_DIGITS), _decimal(minor, invoice.exponent))
    headers = ("LINE", "JOB", "ID", "TEAM", "HOURS", "CARD", "TIER", "QUANTITY", "UNIT", "PRICE", "UNROUNDED", "AMOUNT")
    output.table(headers, [*rows, total], empty="no lines")


def line_row(line: InvoiceLine, exponent: int) -> tuple[str, ...]:
    """One line of the table of an invoice's lines."""
    quantity = round(Fraction(line.quantity * 10**MICRO_DIGITS, IN_A_UNIT.get(line.item, 1)))
    return (
        str(line.line),
        line.job_name or "",
        (line.job_id or "")[:SHORT_ID],
        line.team or "",
        _hours(line.first_hour, line.last_hour),
        line.accelerator or "",
        line.tier or "",
        _decimal(quantity, MICRO_DIGITS),
        line.unit,
        _decimal(line.unit_price_micro, MICRO_DIGITS),
        _decimal(line.amount_micro, MICRO_DIGITS),
        _decimal(line.amount_minor, exponent),
    )


def _hours(first: datetime, last: datetime) -> str:
    """`2026-11-30T08Z..2026-11-30T09Z`, or the one hour."""
    return "..".join(dict.fromkeys(f"{hour:%Y-%m-%dT%H}Z" for hour in (first, last)))


def _decimal(value: int, digits: int) -> str:
    """An integer of a small unit in the large one, by integers alone."""
    whole, rest = divmod(value, 10**digits)
    return f"{whole}.{rest:0{digits}d}" if digits else str(whole)


def _period(start: datetime, end: datetime) -> str:
    return f"{words.moment(start)} to {words.moment(end)}"
