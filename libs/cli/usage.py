"""`farside usage`: what attempts held, as it was measured, beside the scheduler's ledger, and what is not billed."""

from datetime import datetime
from pathlib import Path

import click

from contracts import registry
from contracts.usage import AttemptUsage, RefusedQuery, RefusedRow, SamplesQuery, UsageQuery, UsageRow
from libs.cli import options, output
from libs.cli.manual import Manual
from libs.cli.session import Session, connected, every, run
from libs.cli.words import HOUR_MS

HOUR_DIGITS = 6
HEADERS = (
    "JOB",
    "ATTEMPT",
    "TENANT",
    "WINDOWS",
    "MEASURED GPU-HOURS",
    "HELD GPU-HOURS",
    "DIFFERENCE",
    "CLOSED SAMPLES",
    "UNBILLED SAMPLES",
)


@click.command(cls=Manual)
@click.argument("job", required=False)
@click.option("--samples", is_flag=True, help="Show the raw samples of JOB instead.")
@click.option("--refused", is_flag=True, help="Show the rows that are kept and not billed, and why, instead.")
@options.seen_tenant
@options.common
def usage(job: str | None, tenant: str, stack: Path | None, *, samples: bool, refused: bool, as_json: bool) -> None:
    """Show usage by attempt, newest first; of JOB alone if it is named.

    WINDOWS counts windows of the grid with a billable sample. MEASURED is what the node told, in GPU-hours of held
    cards; HELD is the scheduler's ledger of the same, for an attempt that still holds its cards as of when it was last
    asked; DIFFERENCE is the first less the second. The ledger of an attempt whose node was lost runs until the node was
    given up. CLOSED says how many of the attempt's billable samples are in a closing (`farside bill close`), and so on
    their way into an invoice, out of all. UNBILLED counts what is kept with a fault, such as rows of an attempt never
    heard of. JOB is an id, the beginning of one that no other job shares, or a name.

    Examples:
      farside usage
      farside usage digits-train --samples
      farside usage --refused --tenant acme

    """
    if samples and (job is None or refused):
        msg = "--samples shows the samples of one JOB: name it, without --refused"
        raise click.UsageError(msg)
    run(_usage(job, tenant, stack, samples=samples, refused=refused, as_json=as_json))


async def _usage(
    job: str | None, tenant: str, stack: Path | None, *, samples: bool, refused: bool, as_json: bool
) -> None:
    async with connected(stack) as session:
        job_id = None if job is None else (await session.job_state(job, tenant)).job_id
        if samples:
            assert job_id is not None, "checked before"
            _show_samples(await _samples(session, tenant, job_id), as_json=as_json)
        elif refused:
            _show_refused(await _refused(session, tenant, job_id), as_json=as_json)
        else:
            _show_attempts(await _attempts(session, tenant, job_id), as_json=as_json)


async def _attempts(session: Session, tenant: str, job_id: str | None) -> list[AttemptUsage]:
    return await every(
        lambda cursor: session.ask(registry.QUERY_USAGE, UsageQuery(job_id=job_id, cursor=cursor), key=tenant),
        lambda page: page.attempts,
    )


async def _samples(session: Session, tenant: str, job_id: str) -> list[UsageRow]:
    return await every(
        lambda cursor: session.ask(registry.QUERY_SAMPLES, SamplesQuery(job_id=job_id, cursor=cursor), key=tenant),
        lambda page: page.rows,
    )


async def _refused(session: Session, tenant: str, job_id: str | None) -> list[RefusedRow]:
    found = await every(
        lambda cursor: session.ask(registry.QUERY_REFUSED, RefusedQuery(cursor=cursor), key=tenant),
        lambda page: page.rows,
    )
    return [one for one in found if job_id in {None, one.row.job_id}]


def _show_attempts(found: list[AttemptUsage], *, as_json: bool) -> None:
    if as_json:
        output.as_json({"attempts": found})
        return
    output.table(
        HEADERS,
        [row(one) for one in found],
        empty="nothing was measured yet: usage comes a window after an attempt has its cards",
    )


def row(one: AttemptUsage) -> tuple[str, ...]:
    """One line of the table of attempts."""
    return (
        one.job_name or f"{one.job_id} (never heard of)",
        str(one.attempt),
        one.tenant,
        str(one.windows),
        _hours(one.gpu_ms),
        _held(one),
        _hours(one.difference_gpu_ms),
        f"{one.closed_samples}/{one.samples}",
        ", ".join(f"{each.samples} {each.fault}" for each in one.unbilled),
    )


def _show_samples(rows: list[UsageRow], *, as_json: bool) -> None:
    if as_json:
        output.as_json({"samples": rows})
        return
    headers = ("ATTEMPT", "MEMBER", "CARD", "ACCELERATOR", "FROM", "TO", "QUANTITY")
    cells = [
        (
            str(row.attempt),
            str(row.member),
            str(row.card),
            row.accelerator,
            _time(row.window_start),
            _time(row.window_end),
            f"{row.quantity} {row.item}",
        )
        for row in rows
    ]
    output.table(headers, cells, empty="the job has no samples: `farside usage JOB` shows what is known of it")


def _show_refused(found: list[RefusedRow], *, as_json: bool) -> None:
    if as_json:
        output.as_json({"refused": found})
        return
    headers = ("STORED", "NODE", "JOB", "ATTEMPT", "FAULT", "WHY")
    rows = [
        (_time(one.stored_at), one.node, one.row.job_id, str(one.row.attempt), str(one.fault), one.message)
        for one in found
    ]
    output.table(headers, rows, empty="every measured row is billable")


def _hours(gpu_ms: int | None) -> str:
    return "" if gpu_ms is None else f"{gpu_ms / HOUR_MS:.{HOUR_DIGITS}f}"


def _held(one: AttemptUsage) -> str:
    if not one.holding or one.held_as_of is None:
        return _hours(one.held_gpu_ms)
    return f"{_hours(one.held_gpu_ms)} as of {one.held_as_of:%H:%M:%S}Z"


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
