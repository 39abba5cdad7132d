"""`farside job watch`: every transition of a job as it happens, and its progress, until it ends."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from contracts import registry
from contracts.attempts import AttemptProgressed
from contracts.jobs import JobState, Outcome
from contracts.registry import Message
from contracts.requests import Transition
from libs.cli import options, output, words
from libs.cli.errors import FAILED
from libs.cli.follow import POLL_S, ended
from libs.cli.manual import Manual
from libs.cli.session import Session, connected, run
from libs.cli.why import history_row, state_words
from libs.kit.tasks import reap

JOB_EVENTS = (
    registry.JOBS_ACCEPTED,
    registry.JOBS_HELD,
    registry.JOBS_WAITING,
    registry.JOBS_PLACED,
    registry.JOBS_STARTING,
    registry.JOBS_RUNNING,
    registry.JOBS_STOPPING,
    registry.JOBS_UNREACHABLE,
    registry.JOBS_FINISHED,
)
PROGRESS = (registry.ATTEMPTS_PROGRESSED,)
QUEUE = 1024


@dataclass(frozen=True)
class Source:
    """Where to listen: messages of one stream, from a sequence on."""

    messages: Sequence[Message[Any]]
    key: str
    since: int


@click.command(cls=Manual)
@click.argument("name", metavar="JOB")
@options.seen_tenant
@options.common
def watch(name: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """Follow JOB until it ends: each change of state with its reason, and its progress.

    What happened so far is told first. With --json, each line is the job's full state after a transition, or
    {"step", "metrics"} for progress.

    Example:
      farside job watch digits-train

    Exit status: 0 the job succeeded; 1 it failed or was cancelled.

    """
    job = run(_watch(name, tenant, stack, as_json=as_json))
    if job.outcome is not Outcome.SUCCEEDED:
        raise SystemExit(FAILED)


async def _watch(name: str, tenant: str, stack: Path | None, *, as_json: bool) -> JobState:
    async with connected(stack) as session:
        events_from = await session.next_sequence(registry.JOBS_ACCEPTED)
        progress_from = await session.next_sequence(registry.ATTEMPTS_PROGRESSED)
        reply = await session.job(name, tenant)
        job = reply.job
        _begin(job, reply.transitions, as_json=as_json)
        if ended(job):
            return job
        if session.tenant is not None:
            return await _poll(session, job, as_json=as_json)
        sources = (Source(JOB_EVENTS, job.tenant, events_from), Source(PROGRESS, "*", progress_from))
        return await _follow(session, job, sources, as_json=as_json)


async def _follow(session: Session, job: JobState, sources: Sequence[Source], *, as_json: bool) -> JobState:
    queue: asyncio.Queue[Any] = asyncio.Queue(QUEUE)
    tasks = [asyncio.create_task(_listen(session, source, job.job_id, queue.put)) for source in sources]
    try:
        while not ended(job):
            body = await queue.get()
            if isinstance(body, JobState) and body.version > job.version:
                job = body
                _tell_state(job, as_json=as_json)
            elif isinstance(body, AttemptProgressed):
                _tell_progress(body, as_json=as_json)
    finally:
        await reap(tasks)
    return job


async def _poll(session: Session, job: JobState, *, as_json: bool) -> JobState:
    """The states of a job for a tenant, who reads no stream: as often as it is asked for, and without the steps."""
    while not ended(job):
        await asyncio.sleep(POLL_S)
        found = await session.job_state(job.job_id, job.tenant)
        if found.version > job.version:
            _tell_state(found, as_json=as_json)
        job = found
    return job


async def _listen(session: Session, source: Source, job_id: str, put: Callable[[Any], Any]) -> None:
    async with aclosing(session.client.events(source.messages, key=source.key, since=source.since)) as events:
        async for event in events:
            if event.body.job_id == job_id:
                await put(event.body)


def _begin(job: JobState, transitions: list[Transition], *, as_json: bool) -> None:
    """Tell what was: every transition but the last in brief, then the state of now in full."""
    if not as_json:
        for transition in transitions[:-1]:
            at, state, attempt, reason = history_row(transition)
            cells = (at, state, f"attempt {attempt}" if attempt else "", reason)
            click.echo("  ".join(cell for cell in cells if cell))
    _tell_state(job, as_json=as_json)


def _tell_state(job: JobState, *, as_json: bool) -> None:
    if as_json:
        output.as_json_line(job)
        return
    attempt, reason = job.attempt, job.reason
    where = ", ".join(member.node for member in attempt.members) if attempt is not None else ""
    parts = [
        words.moment(job.updated_at, "milliseconds"),
        state_words(job),
        f"attempt {attempt.number} on {where}" if attempt is not None else "",
        f"{reason.code}: {reason.message}" if reason is not None else "",
        words.figures(reason) if reason is not None else "",
    ]
    click.echo("  ".join(part for part in parts if part))


def _tell_progress(body: AttemptProgressed, *, as_json: bool) -> None:
    last = body.points[-1]
    if as_json:
        output.as_json_line({"attempt": body.attempt, "step": last.step, "metrics": dict(last.metrics)})
        return
    figures = ", ".join(f"{name} {value:.6g}" for name, value in last.metrics.items())
    click.echo(f"    step {last.step}  {figures}")
