"""`farside quota`: what a tenant may use, has used and has asked for."""

from pathlib import Path

import click
from click.core import ParameterSource

from contracts import registry
from contracts.queue import QuotaLine, QuotaPage, QuotaQuery, QuotaResource, TenantQuota
from libs.cli import options, output, words
from libs.cli.manual import Manual
from libs.cli.session import Session, connected, every, run

COUNTED = {
    QuotaResource.GPU_MS: "GPU-hours a month",
    QuotaResource.CARD_MILLI: "cards at a time",
    QuotaResource.JOBS: "jobs at a time",
}
HEADERS = ("TENANT", "TOP", "COHORT", "RESOURCE", "USED", "COMMITTED", "LIMIT", "LEFT", "GUARANTEED", "BORROWED")


@click.command(cls=Manual)
@click.argument("name", metavar="[TENANT]", required=False)
@options.seen_tenant
@options.common
@click.pass_context
def quota(ctx: click.Context, name: str | None, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """Show the quotas of TENANT, else of the tenant you act for, else of every tenant.

    GPU-hours count for a UTC month: USED is what ran, COMMITTED what waiting and running jobs may still use by their
    max_runtime_s. Cards and jobs count at one time: USED is what runs, COMMITTED what waits. GPU-hours must be left for
    a job to be taken; cards and jobs for it to be placed. GUARANTEED is the tenant's at any time; BORROWED is what it
    uses above that, of what others in its COHORT leave. TOP is the highest class that its jobs may have.

    Examples:
      farside quota acme
      farside quota --json

    """
    stated = ctx.get_parameter_source("tenant") is ParameterSource.COMMANDLINE
    if stated and name not in {None, tenant}:
        msg = f"TENANT is {name!r} and --tenant {tenant!r}: name one"
        raise click.UsageError(msg)
    run(_quota(name or tenant, stack, as_json=as_json))


async def _quota(tenant: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        page = await _pages(session, tenant)
    if as_json:
        output.as_json({"tenants": page.tenants, "as_of": page.as_of.isoformat()})
        return
    output.table(HEADERS, [row(one, line) for one in page.tenants for line in one.lines], empty="no tenant has a file")
    for one in page.tenants:
        for remark in remarks(one):
            output.note(remark)


async def _pages(session: Session, tenant: str) -> QuotaPage:
    """All tenants in one page."""
    found = await every(
        lambda cursor: session.ask(registry.QUERY_QUOTA, QuotaQuery(cursor=cursor), key=tenant), lambda page: [page]
    )
    return found[-1].model_copy(update={"tenants": [one for page in found for one in page.tenants]})


def row(one: TenantQuota, line: QuotaLine) -> tuple[str, ...]:
    """One resource of one tenant. What waits takes GPU-hours from what is left, and no cards."""
    promised = line.committed if line.resource == QuotaResource.GPU_MS else 0
    left = line.limit - line.used - promised
    over = f"over by {amount(-left, line)}" if left < 0 else amount(left, line)
    guaranteed = "" if line.guaranteed is None else amount(line.guaranteed, line)
    return (
        one.tenant,
        one.top_priority,
        one.cohort or "",
        COUNTED.get(line.resource, line.resource) if isinstance(line.resource, QuotaResource) else line.resource,
        amount(line.used, line),
        amount(line.committed, line) if line.committed else "",
        amount(line.limit, line),
        over,
        guaranteed,
        amount(line.borrowed, line) if line.borrowed else "",
    )


def amount(value: int, line: QuotaLine) -> str:
    """Hours to the hundredth, cards and jobs as they are."""
    return words.hours(value) if line.resource == QuotaResource.GPU_MS else words.amount(value, line.resource)


def remarks(one: TenantQuota) -> list[str]:
    """What no column holds."""
    noun = "pool" if len(one.pools) == 1 else "pools"
    pools = [f"{one.tenant} may also use {noun} {', '.join(one.pools)}"] if one.pools else []
    return [*pools, *([f"{one.tenant} is suspended: none of its jobs is placed"] if one.suspended else [])]
