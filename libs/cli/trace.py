"""`farside trace`: a job's journey through the services, from the files of its spans."""

import os
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from contracts.base import UUID_PATTERN
from libs.cli import options, output, picture, words
from libs.cli.errors import CliError, UnreachableError
from libs.cli.manual import Manual
from libs.cli.place import DEFAULT_DIRECTORY
from libs.cli.session import connected, run
from libs.cli.why import SHORTEST_PREFIX
from libs.journey import Journey, NoJourneyError, Process, Row, Span, follow, jobs, rows, waterfall

TRACES = "traces"
FOLDER_VARIABLE = "FARSIDE_TRACE_DIR"
MAX_LISTED = 20


@click.command(cls=Manual)
@click.argument("job")
@click.option(
    "--all", "everything", is_flag=True, help="A row for each span, under its own name where it has no words."
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    callback=picture.checked,
    metavar="FILE.png",
    help="Draw the waterfall as a picture too.",
)
@options.seen_tenant
@options.common
def trace(job: str, tenant: str, stack: Path | None, plot: Path | None, *, everything: bool, as_json: bool) -> None:
    """Show the journey of JOB as a waterfall: what each service did for it, when, and for how long.

    JOB is an id, the beginning of one, or a name; an id and its beginning work while the stack is down too. The spans
    are read from the folder `traces` of the stack in --stack (or --dir) if one is given, else from FARSIDE_TRACE_DIR,
    else from `traces` of the stack in FARSIDE_DIR or `var`. A `~` marks what belongs to a trace of its own that is
    linked to the job's: windows of usage, the roll-up, the invoice, the loss of a node. docs/tracing.md tells how a
    journey is followed and what an orphan is.

    Examples:
      farside trace digits-train
      farside trace 0190f3 --json
      farside trace digits-train --all --plot journey.png

    """
    folder = folder_of(stack)
    try:
        journey = follow(folder, _job_id(job, tenant, stack, folder))
    except NoJourneyError as error:
        raise CliError(str(error)) from None
    shown = rows(journey, everything=everything)
    if plot is not None:
        _draw(journey, shown, plot)
    if as_json:
        output.as_json(as_data(journey, shown))
        return
    _tell(journey, shown)


def folder_of(stack: Path | None) -> Path:
    """Where the spans are: the stack of `--stack`, else FARSIDE_TRACE_DIR, else the stack in FARSIDE_DIR or `var`."""
    named = os.environ.get(FOLDER_VARIABLE) if stack is None else None
    folder = Path(named) if named else (stack or Path(os.environ.get("FARSIDE_DIR", DEFAULT_DIRECTORY))) / TRACES
    if not folder.is_dir():
        source = f", which {FOLDER_VARIABLE} names" if named else ""
        msg = (
            f"no folder {folder} of spans{source}: name the stack's directory with --stack, "
            f"or without it the folder of spans with {FOLDER_VARIABLE}"
        )
        raise CliError(msg)
    return folder


def _job_id(job: str, tenant: str, stack: Path | None, folder: Path) -> str:
    if re.fullmatch(UUID_PATTERN, job):
        return job
    try:
        return run(_ask(job, tenant, stack))
    except UnreachableError:
        found = jobs(folder, job) if len(job) >= SHORTEST_PREFIX else set[str]()
        if len(found) == 1:
            return found.pop()
        raise


async def _ask(job: str, tenant: str, stack: Path | None) -> str:
    async with connected(stack) as session:
        return (await session.job_state(job, tenant)).job_id


def as_data(journey: Journey, shown: list[Row]) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "trace_id": journey.trace_id,
        "job_id": journey.job_id,
        "services": list(journey.services),
        "spans": len(journey.spans),
        "orphans": [_span_data(span) for span in journey.orphans],
        "parent_killed": [_killed_data(journey, span) for span in journey.parent_killed],
        "open": [_span_data(span) for span in journey.open],
        "redeliveries": journey.redeliveries,
        "damaged_lines": journey.damaged_lines,
        "left_out": journey.left_out,
        "rows": [_row_data(row) for row in shown],
    }


def _span_data(span: Span) -> dict[str, Any]:
    return {
        "trace_id": span.ref.trace_id,
        "span_id": span.ref.span_id,
        "parent_span_id": span.parent,
        "name": span.name,
        "service": span.origin.service,
        "node": span.origin.node,
        "start": _time(span.started_at),
    }


def _killed_data(journey: Journey, span: Span) -> dict[str, Any]:
    process = journey.killed[span.ref]
    origin = process.origin
    who = {"service": origin.service, "node": origin.node, "pid": origin.pid}
    return {**_span_data(span), "died_with": {**who, "last_active": _time(process.last_at)}}


def _row_data(row: Row) -> dict[str, Any]:
    return {
        "start": _time(row.started_at),
        "duration_ms": round(row.duration_ms, 3),
        "service": row.service,
        "node": row.node,
        "member": row.member,
        "name": row.name,
        "words": row.words,
        "services": list(row.services),
        "deliveries": row.deliveries,
        "count": row.count,
        "spans": row.spans,
        "linked": row.linked,
        "error": row.error,
        "state": row.state,
        "trace_id": row.trace_id,
        "span_id": row.span_id,
        "links": [{"trace_id": link.trace_id, "span_id": link.span_id} for link in row.links],
    }


def _time(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _tell(journey: Journey, shown: list[Row]) -> None:
    output.note(f"job {journey.job_id}, trace {journey.trace_id}")
    for line in waterfall.lines(shown, shutil.get_terminal_size().columns):
        click.echo(line)
    output.note(summary(journey))
    first = waterfall.span_of(shown)[0] if shown else 0
    killed = [f"{_about(span)}: {_died_with(journey.killed[span.ref], first)}" for span in journey.parent_killed]
    for title, lines in (("orphan", [_about(span) for span in journey.orphans]), ("parent killed", killed)):
        for line in lines[:MAX_LISTED]:
            output.note(f"{title}: {line}")
        if len(lines) > MAX_LISTED:
            output.note(f"{title}: {len(lines) - MAX_LISTED} more, see --json")


def _about(span: Span) -> str:
    return f"{span.name} ({waterfall.place(span.origin.service, span.origin.node)})"


def _died_with(process: Process, first_ns: int) -> str:
    origin = process.origin
    who = f"{waterfall.place(origin.service, origin.node)}, pid {origin.pid}"
    return f"died with {who}, last active at {waterfall.offset(process.last_ns - first_ns)}"


def summary(journey: Journey) -> str:
    """One line of figures; those that are zero as they should be, but for orphans, are left out."""
    figures = (
        ("parent killed", len(journey.parent_killed)),
        ("parent still open", len(journey.open)),
        ("redeliveries", journey.redeliveries),
        ("damaged lines", journey.damaged_lines),
        ("left out", journey.left_out),
    )
    spans, services = words.count(len(journey.spans), "span"), words.count(len(journey.services), "service")
    shown = [f"{name} {count}" for name, count in figures if count]
    return "; ".join(
        [f"{spans} of {services} ({', '.join(journey.services)})", f"orphans {len(journey.orphans)}", *shown]
    )


def _draw(journey: Journey, shown: list[Row], file: Path) -> None:
    from libs.cli import trace_plot

    trace_plot.draw(journey.job_id, shown, file)
    output.note(f"drawn: {file}")
