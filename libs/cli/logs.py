"""`farside job logs`: what a job wrote, from object storage, so that it outlives the node."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import click

from contracts.jobs import JobState
from libs.cli import options, output
from libs.cli.errors import CliError
from libs.cli.follow import ended
from libs.cli.manual import Manual
from libs.cli.session import Session, connected, run
from libs.objects import AsyncStore

POLL_S = 0.5
LOG_PREFIX = "logs/{tenant}/{job_id}/"


@dataclass(frozen=True, order=True)
class Chunk:
    """One piece of one member's log; the order is the order of reading."""

    attempt: int
    member: int
    number: int
    key: str


@dataclass(frozen=True)
class Wanted:
    """Which logs of a job to read; None means every one."""

    attempt: int | None
    member: int | None

    def takes(self, chunk: Chunk) -> bool:
        """Whether the chunk belongs to what is wanted."""
        return self.attempt in {None, chunk.attempt} and self.member in {None, chunk.member}


@click.command(cls=Manual)
@click.argument("name", metavar="JOB")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt.")
@click.option("--member", type=click.IntRange(0), help="Only this member of the gang.")
@options.seen_tenant
@options.common
def logs(
    name: str,
    attempt: int | None,
    member: int | None,
    tenant: str,
    stack: Path | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Print what JOB wrote to standard output and standard error, attempt by attempt.

    The log is kept in object storage while the job runs, some seconds behind it, and can be read when the node that
    wrote it is gone. A line on standard error says whose log follows. With --json, each line is an object with attempt,
    member, chunk and text.

    Examples:
      farside job logs digits-train
      farside job logs digits-train --attempt 1
      farside job logs -f digits-serve

    """
    run(_logs(name, Wanted(attempt, member), tenant, stack, follow=follow, as_json=as_json))


async def _logs(name: str, wanted: Wanted, tenant: str, stack: Path | None, *, follow: bool, as_json: bool) -> None:
    async with connected(stack) as session, session.store() as store:
        job = await session.job_state(name, tenant)
        found = False
        previous: tuple[int, int] | None = None
        async for chunk in _chunks(session, store, job, wanted, follow=follow):
            found, owner = True, (chunk.attempt, chunk.member)
            if owner != previous and not as_json:
                output.note(f"--- attempt {chunk.attempt}, member {chunk.member}")
            previous = owner
            _print(chunk, await store.get(chunk.key), as_json=as_json)
        if not found:
            msg = f"job {job.spec.name} has no log yet (state {job.state}): `farside why {job.job_id}` tells more"
            raise CliError(msg)


async def _chunks(
    session: Session, store: AsyncStore, job: JobState, wanted: Wanted, *, follow: bool
) -> AsyncIterator[Chunk]:
    """Chunks as they appear; without `follow`, those that are there."""
    seen: set[str] = set()
    prefix = LOG_PREFIX.format(tenant=job.tenant, job_id=job.job_id)
    while True:
        # An agent ships its last lines before it says that the attempt has ended: a look after the end finds them all.
        last_look = not follow or ended(job)
        for chunk in sorted(map(parse_key, [head.key for head in await store.list(prefix)])):
            if chunk.key not in seen and wanted.takes(chunk):
                seen.add(chunk.key)
                yield chunk
        if last_look:
            return
        await asyncio.sleep(POLL_S)
        job = await session.job_state(job.job_id, job.tenant)


def parse_key(key: str) -> Chunk:
    """`logs/acme/<job>/2/0/00000003.log` names attempt 2, member 0, chunk 3."""
    attempt, member, name = key.split("/")[-3:]
    return Chunk(int(attempt), int(member), int(name.partition(".")[0]), key)


def _print(chunk: Chunk, data: bytes, *, as_json: bool) -> None:
    if not as_json:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    text = data.decode(errors="replace")
    output.as_json_line({"attempt": chunk.attempt, "member": chunk.member, "chunk": chunk.number, "text": text})
