"""`farside checkpoint list`: what a job could be restored from."""

from datetime import UTC, datetime
from pathlib import Path

import click

from contracts import registry
from contracts.requests import CheckpointsQuery
from libs.cli import options, output, words
from libs.cli.manual import ManualGroup
from libs.cli.session import connected, run


@click.group(cls=ManualGroup)
def checkpoint() -> None:
    """Look at the checkpoints of jobs."""


@checkpoint.command("list")
@click.argument("job")
@options.seen_tenant
@options.common
def list_(job: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """List the committed checkpoints of JOB, newest first.

    The fence is the lowest attempt whose saves are still taken: saves of earlier attempts are refused.

    Example:
      farside checkpoint list digits-train

    """
    run(_list(job, tenant, stack, as_json=as_json))


async def _list(job: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await session.job_state(job, tenant)
        query = CheckpointsQuery(job_id=found.job_id)
        reply = await session.ask(registry.QUERY_CHECKPOINTS, query, key=found.tenant)
    if as_json:
        output.as_json(reply)
        return
    now = datetime.now(UTC)
    rows = [
        (
            str(item.step),
            str(item.attempt),
            str(len(item.shards)),
            words.size(item.size_bytes),
            words.age(item.committed_at, now),
        )
        for item in reply.checkpoints
    ]
    output.table(("STEP", "ATTEMPT", "SHARDS", "SIZE", "AGE"), rows, empty=f"job {found.spec.name} has no checkpoint")
    output.note(f"fence: attempt {reply.fence}")
