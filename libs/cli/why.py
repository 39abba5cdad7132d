"""`farside why`: the state of a job, its one reason with amounts, and the way it came."""

from datetime import UTC, datetime
from pathlib import Path

import click

from contracts import registry
from contracts.jobs import JobPhase, JobRejected, JobState
from contracts.queue import ExplainQuery, ExplainReply
from contracts.registry import NO_KEY
from contracts.requests import JobReply, Transition
from libs.cli import explain, options, output, words
from libs.cli.errors import CliError, UnreachableError
from libs.cli.manual import Manual
from libs.cli.session import Session, connected, run

SHORTEST_PREFIX = 4
WAITING = frozenset({JobPhase.ACCEPTED, JobPhase.HELD, JobPhase.WAITING})


@click.command(cls=Manual)
@click.argument("job")
@options.seen_tenant
@options.common
def why(job: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """Say why JOB waits, runs where it runs, was refused, or ended.

    JOB is an id, the beginning of one that no other job shares, or a name (the newest job of that name that is not
    over, else the newest; the newest refusal where there is no such job). Shown are the state, the reason code with its
    amounts (used, asked, allowed), and every transition so far; of a job that waits also what binds, how much is short,
    what would free it, its turn, the expected start and what that rests on, and who holds what is short.
    docs/reasons.md explains the codes.

    Examples:
      farside why digits-train
      farside why 0190f3 --json

    """
    run(_why(job, tenant, stack, as_json=as_json))


async def _why(name: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        reply = await _job_or_refusal(session, name, tenant)
        said = None if isinstance(reply, JobRejected) else await _explained(session, reply.job)
    if isinstance(reply, JobRejected):
        _tell_refusal(reply, as_json=as_json)
        return
    if as_json:
        output.as_json(explained(reply, said))
        return
    job = reply.job if said is None else reply.job.model_copy(update={"reason": said.reason})
    asks = ("asks", words.asked(job.spec.members, job.spec.resources))
    rest = [("priority", job.spec.effective_priority)] if said is None else explain.lines(said)
    output.record([*summary(job, datetime.now(UTC)), asks, *rest])
    explain.show_leaving([] if said is None else said.leaving)
    output.note("")
    output.table(("AT", "STATE", "ATTEMPT", "REASON"), [history_row(item) for item in reply.transitions], empty="")


async def _explained(session: Session, job: JobState) -> ExplainReply | None:
    """What the scheduler knows of a job that waits; None for any other, and for one that no plan has seen yet."""
    if job.state not in WAITING - {JobPhase.ACCEPTED}:
        return None
    try:
        said = await session.ask(registry.QUERY_EXPLAIN, ExplainQuery(job=job.job_id), key=job.tenant)
    except UnreachableError as error:
        output.note(f"what follows is of the job's last event: {error.message}")
        return None
    return said if said.waits else None


async def _job_or_refusal(session: Session, job: str, tenant: str) -> JobReply | JobRejected:
    """The job, else the newest refusal of that id, beginning of an id, or name: a refused job is none."""
    try:
        return await session.job(job, tenant)
    except UnreachableError:
        raise
    except CliError:
        for refusal in await _refusals(session, tenant):
            if refusal_of(refusal, job):
                return refusal
        raise


async def _refusals(session: Session, tenant: str) -> list[JobRejected]:
    """The refusals of a tenant or of all, newest first; a tenant itself reads the newest alone."""
    if session.tenant is not None:
        newest = await session.client.last(registry.JOBS_REJECTED, key=session.tenant)
        return [] if newest is None else [newest.body]
    key = "*" if tenant == NO_KEY else tenant
    return [event.body for event in reversed(await session.client.history([registry.JOBS_REJECTED], key=key))]


def refusal_of(body: JobRejected, job: str) -> bool:
    """Whether `job` means what was refused here: its name, its id, or enough of the id's beginning."""
    job_id = body.job_id or ""
    return job in {body.name, body.submission_id} or (len(job) >= SHORTEST_PREFIX and job_id.startswith(job))


def _tell_refusal(body: JobRejected, *, as_json: bool) -> None:
    reason = body.reason
    if as_json:
        figures = {"resource": reason.resource, "used": reason.used, "asked": reason.asked, "allowed": reason.allowed}
        about = {"job_id": body.job_id, "tenant": body.tenant, "name": body.name, "state": None, "outcome": "rejected"}
        output.as_json({**about, "reason": reason.code, "message": reason.message, **figures, "transitions": []})
        return
    output.record(
        [
            ("job", f"{body.name or '?'} ({body.job_id or body.submission_id})"),
            ("tenant", body.tenant),
            ("state", f"refused, {words.age(body.rejected_at, datetime.now(UTC))} ago"),
            ("reason", f"{reason.code}: {reason.message}"),
            ("amounts", words.figures(reason)),
        ]
    )


def explained(reply: JobReply, said: ExplainReply | None) -> dict[str, object]:
    """What `--json` prints; of a job that waits, the scheduler's word of now is newer than that of its last event."""
    job, reason = reply.job, reply.job.reason if said is None else said.reason
    return {
        "job_id": job.job_id,
        "tenant": job.tenant,
        "name": job.spec.name,
        "state": job.state,
        "outcome": job.outcome,
        "reason": reason.code if reason is not None else None,
        "message": reason.message if reason is not None else None,
        "resource": reason.resource if reason is not None else None,
        "used": reason.used if reason is not None else None,
        "asked": reason.asked if reason is not None else None,
        "allowed": reason.allowed if reason is not None else None,
        "held": job.held,
        "priority": job.spec.effective_priority,
        "members": job.spec.members,
        **job.spec.resources.model_dump(include={"cards", "share_milli", "share_memory_bytes"}),
        **({} if said is None else explain.as_json(said)),
        "transitions": [transition.model_dump(mode="json") for transition in reply.transitions],
    }


def counts(job: JobState) -> str:
    """`1 attempt, 0 lost nodes, 0 failures of its own`."""
    lost, failed = words.count(job.losses, "lost node"), words.count(job.failures, "failure")
    return f"{words.count(job.attempts, 'attempt')}, {lost}, {failed} of its own"


def state_words(job: JobState) -> str:
    """`running`, or `finished: succeeded`."""
    return f"{job.state}: {job.outcome}" if job.outcome is not None else str(job.state)


def summary(job: JobState, now: datetime) -> list[tuple[str, str]]:
    """Names with values of a job, the reason among them."""
    reason, attempt = job.reason, job.attempt
    where = ", ".join(f"{member.node} ({member.tier})" for member in attempt.members) if attempt is not None else ""
    return [
        ("job", f"{job.spec.name} ({job.job_id})"),
        ("tenant", job.tenant),
        ("state", f"{state_words(job)}, for {words.age(job.updated_at, now)}"),
        ("reason", f"{reason.code}: {reason.message}" if reason is not None else ""),
        ("amounts", words.figures(reason) if reason is not None else ""),
        ("attempt", f"{attempt.number} on {where}" if attempt is not None else ""),
        ("counts", counts(job)),
        ("held", "not placed again until `farside job release`" if is_held_alive(job) else ""),
        ("cancel", "asked for" if job.cancel_requested and job.outcome is None else ""),
    ]


def is_held_alive(job: JobState) -> bool:
    """Whether the job is held while its attempt goes on."""
    return job.held and job.state not in WAITING and job.outcome is None


def history_row(item: Transition) -> tuple[str, ...]:
    """One line of the history."""
    reason = f"{item.reason.code}: {item.reason.message}" if item.reason is not None else ""
    attempt = str(item.attempt) if item.attempt is not None else ""
    return (words.moment(item.at, "milliseconds"), str(item.state), attempt, reason)
