"""`farside why`: the state of a job, its one reason with amounts, and the way it came."""

from datetime import UTC, datetime
from pathlib import Path

import click

from contracts.jobs import JobState
from contracts.requests import JobReply, Transition
from libs.cli import options, output, words
from libs.cli.manual import Manual
from libs.cli.session import connected, run


@click.command(cls=Manual)
@click.argument("job")
@options.seen_tenant
@options.common
def why(job: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """Say why JOB waits, runs where it runs, or ended.

    JOB is an id, the beginning of one that no other job shares, or a name (the newest job of that name). Shown are the
    state, the reason code with its amounts (used, asked, allowed), and every transition so far. docs/reasons.md
    explains the codes and what frees a job.

    Examples:
      farside why digits-train
      farside why 0190f3 --json

    """
    run(_why(job, tenant, stack, as_json=as_json))


async def _why(job: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        reply = await session.job(job, tenant)
    if as_json:
        output.as_json(explained(reply))
        return
    output.record(summary(reply.job, datetime.now(UTC)))
    output.note("")
    output.table(("AT", "STATE", "ATTEMPT", "REASON"), [history_row(item) for item in reply.transitions], empty="")


def explained(reply: JobReply) -> dict[str, object]:
    """What `--json` prints."""
    job, reason = reply.job, reply.job.reason
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
        "transitions": [transition.model_dump(mode="json") for transition in reply.transitions],
    }


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
        ("counts", f"{job.attempts} attempts, {job.losses} nodes lost, {job.failures} failures of its own"),
        ("cancel", "asked for" if job.cancel_requested and job.outcome is None else ""),
    ]


def history_row(item: Transition) -> tuple[str, ...]:
    """One line of the history."""
    reason = f"{item.reason.code}: {item.reason.message}" if item.reason is not None else ""
    attempt = str(item.attempt) if item.attempt is not None else ""
    return (item.at.isoformat(sep=" ", timespec="milliseconds")[:23], str(item.state), attempt, reason)
