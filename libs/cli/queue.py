"""`farside queue`: whose turn it is, why each waits, and when it may expect to start."""

from datetime import UTC, datetime
from pathlib import Path

import click

from contracts import registry
from contracts.base import PAGE_LIMIT
from contracts.queue import QueuedJob, QueuePage, QueueQuery
from contracts.registry import NO_KEY
from libs.cli import options, output, words
from libs.cli.explain import soon
from libs.cli.manual import Manual
from libs.cli.session import Session, connected, pages, run

SHOWN = 50
ID_CHARS = 18
HEADERS = ("TURN", "JOB", "NAME", "TENANT", "PRIORITY", "SHARE", "ASKS", "WAITS", "REASON", "EXPECTED")


@click.command(cls=Manual)
@click.option("--limit", type=click.IntRange(1, 10_000), default=SHOWN, show_default=True, help="At most so many.")
@options.seen_tenant
@options.common
def queue(limit: int, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """List waiting jobs in the order of their turns, as of the last plan.

    JOB is the beginning of its id, by which all commands know it. TURN counts over the jobs of all tenants. SHARE is
    what the tenant used of late and holds, by its weight, of what all tenants did: within a class the least goes first.
    ASKS is the number of members and what each takes of cards. REASON is explained in docs/reasons.md; `farside why
    JOB` tells more of one, with what EXPECTED rests on.

    Examples:
      farside queue
      farside queue --tenant acme --json

    """
    run(_queue(limit, tenant, stack, as_json=as_json))


async def _queue(limit: int, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        page = await _pages(session, tenant, limit)
    if as_json:
        output.as_json({"jobs": page.jobs, "waiting": page.waiting, "as_of": page.as_of.isoformat()})
        return
    now = datetime.now(UTC)
    output.table(HEADERS, [row(job, now) for job in page.jobs], empty=empty(tenant))
    if page.jobs:
        output.note(f"{len(page.jobs)} of {words.count(page.waiting, 'waiting job')}, as of {words.moment(page.as_of)}")


def empty(tenant: str) -> str:
    """What is said where nothing waits: others' jobs may, where one tenant is asked about."""
    return "no job waits" if tenant == NO_KEY else f"no job of {tenant} waits"


async def _pages(session: Session, tenant: str, limit: int) -> QueuePage:
    """The first `limit` jobs in one page."""
    found: list[QueuePage] = []
    jobs: list[QueuedJob] = []

    async def ask(cursor: str | None) -> QueuePage:
        asked = QueueQuery(cursor=cursor, limit=min(limit - len(jobs), PAGE_LIMIT))
        return await session.ask(registry.QUERY_QUEUE, asked, key=tenant)

    async for page in pages(ask):
        found.append(page)
        jobs += page.jobs
        if len(jobs) >= limit:
            break
    return found[-1].model_copy(update={"jobs": jobs})


def short_id(job_id: str) -> str:
    """The beginning of an id, long enough for all commands to know the job by."""
    return job_id[:ID_CHARS]


def row(job: QueuedJob, now: datetime) -> tuple[str, ...]:
    """One line of the table."""
    return (
        str(job.position),
        short_id(job.job_id),
        job.name,
        job.tenant,
        job.priority,
        words.percent(job.tenant_share_milli),
        f"{job.members} x {words.cards(job.cards, job.share_milli, job.share_memory_bytes)}",
        words.age(job.waits_since or job.submitted_at, now),
        job.reason.code if job.reason is not None else "",
        soon(job.forecast, now),
    )
