"""`farside job`: the group, and the commands that read one or many jobs or ask for a change of their state."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from typing_extensions import override

from contracts import registry
from contracts.jobs import JobCancel, JobPhase, JobState
from contracts.requests import JobsPage, JobsQuery
from libs.cli import options, output, words
from libs.cli.follow import Change, ask_for, ended
from libs.cli.logs import logs
from libs.cli.manual import ManualGroup
from libs.cli.orders import hold, release, reprioritize
from libs.cli.queue import short_id
from libs.cli.session import Session, connected, pages, run
from libs.cli.submit import submit
from libs.cli.watch import watch
from libs.cli.why import history_row, state_words, summary

LIST_LIMIT = 50


class JobGroup(ManualGroup):
    """Points to the command where one of `farside` is looked for here, as in `farside job why`."""

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from libs.cli.main import COMMANDS

        if args and args[0] in COMMANDS and args[0] not in self.commands:
            ctx.fail(f"no command {args[0]!r} here: it is `farside {' '.join(args)}`")
        return super().resolve_command(ctx, args)


@click.group(cls=JobGroup)
def job() -> None:
    """Submit jobs, follow them, end them.

    JOB is an id, the beginning of one that no other job shares, or a name: the newest job of that name that is
    not over, else the newest. What is over cannot be cancelled, held, released or reprioritized (exit status 1).

    Exit status: 0 done; 1 refused, failed or not found; 2 wrong usage or a mistake
    in the job file; 3 the stack does not answer.
    """


job.add_command(submit)
job.add_command(watch)
job.add_command(logs)
job.add_command(hold)
job.add_command(release)
job.add_command(reprioritize)


@job.command("list")
@click.option("--state", type=click.Choice([phase.value for phase in JobPhase]), help="Only jobs in this state.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=LIST_LIMIT, show_default=True, help="At most so many.")
@options.seen_tenant
@options.common
def list_(state: str | None, limit: int, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """List jobs, newest first.

    JOB is the beginning of its id, by which all commands know it. Of several NODES the first is shown, and how many
    more there are.

    Examples:
      farside job list
      farside job list --state waiting --tenant acme
      farside job list --json

    """
    run(_list(JobPhase(state) if state else None, limit, tenant, stack, as_json=as_json))


async def _list(phase: JobPhase | None, limit: int, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await _jobs(session, phase, limit, tenant)
    if as_json:
        output.as_json({"jobs": found})
        return
    now = datetime.now(UTC)
    headers = ("JOB", "NAME", "TENANT", "KIND", "STATE", "ATTEMPT", "NODES", "STEP", "AGE", "REASON")
    output.table(headers, [_row(state, now) for state in found], empty="no job; `farside job submit --help`")


async def _jobs(session: Session, phase: JobPhase | None, limit: int, tenant: str) -> list[JobState]:
    found: list[JobState] = []

    async def ask(cursor: str | None) -> JobsPage:
        asked = JobsQuery(state=phase, cursor=cursor, limit=min(limit - len(found), LIST_LIMIT))
        return await session.ask(registry.QUERY_JOBS, asked, key=tenant)

    async for page in pages(ask):
        found += page.jobs
        if len(found) >= limit:
            break
    return found


def first_of(nodes: Sequence[str]) -> str:
    """`central-1 +3`: the first of several nodes, and how many more there are."""
    apart = list(dict.fromkeys(nodes))
    return f"{apart[0]} +{len(apart) - 1}" if len(apart) > 1 else "".join(apart)


def _row(state: JobState, now: datetime) -> tuple[str, ...]:
    attempt = state.attempt
    step = attempt.progress_step if attempt is not None else None
    return (
        short_id(state.job_id),
        state.spec.name,
        state.tenant,
        state.spec.kind,
        state_words(state),
        str(attempt.number) if attempt is not None else "",
        first_of([member.node for member in attempt.members]) if attempt is not None else "",
        str(step) if step is not None else "",
        words.age(state.submitted_at, now),
        state.reason.code if state.reason is not None else "",
    )


@job.command()
@click.argument("name", metavar="JOB")
@options.seen_tenant
@options.common
def show(name: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """Show JOB: its state, what it asked for and every transition.

    Example:
      farside job show digits-train --json

    """
    run(_show(name, tenant, stack, as_json=as_json))


async def _show(name: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        reply = await session.job(name, tenant)
    if as_json:
        output.as_json(reply)
        return
    output.record([*summary(reply.job, datetime.now(UTC)), *_asked_for(reply.job)])
    output.note("")
    output.table(("AT", "STATE", "ATTEMPT", "REASON"), [history_row(item) for item in reply.transitions], empty="")


def _asked_for(state: JobState) -> list[tuple[str, str]]:
    spec, attempt = state.spec, state.attempt
    policy, topology = spec.checkpoint, spec.topology
    near = ""
    if topology is not None and topology.level is not None:
        near = f"within one {topology.level}, {'required' if topology.required else 'preferred'}"
    return [
        ("kind", f"{spec.kind}, priority {spec.effective_priority}"),
        ("command", " ".join(spec.command)),
        ("asks", words.asked(spec.members, spec.resources)),
        ("near", near),
        ("window", spec.window or ""),
        ("dataset", f"{spec.dataset.name} {spec.dataset.version}" if spec.dataset is not None else ""),
        ("code", spec.artefact.sha256 if spec.artefact is not None else ""),
        ("checkpoints", f"every {policy.interval_steps} steps, {policy.keep_last} kept" if policy is not None else ""),
        ("endpoint", attempt.endpoint or "" if attempt is not None else ""),
    ]


@job.command()
@click.argument("name", metavar="JOB")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the event.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the job has ended.")
@options.seen_tenant
@options.common
def cancel(name: str, reason: str, tenant: str, stack: Path | None, *, no_wait: bool, as_json: bool) -> None:
    """Cancel JOB and wait until it has ended.

    A cancel is a wish for the end state: a job that is running gets its grace to save, one that waits ends at once, and
    a cancel that arrives before its job (by full id, with --tenant) ends the job when it comes.

    Examples:
      farside job cancel digits-serve
      farside job cancel 0190f3 --reason "wrong dataset" --no-wait

    """
    done = None if no_wait else ended
    change = Change(
        registry.JOBS_CANCEL,
        lambda job_id: JobCancel(job_id=job_id, reason=reason),
        done,
        may_come_first=True,
        over="there is nothing left to cancel",
    )
    run(ask_for(change, name, tenant, stack, as_json=as_json))
