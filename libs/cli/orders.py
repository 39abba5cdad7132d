"""`farside job hold`, `release` and `reprioritize`: orders about a job's turn, and what became of them."""

from pathlib import Path

import click

from contracts import registry
from contracts.base import Priority
from contracts.jobs import JobHold, JobPhase, JobRelease, JobReprioritize, JobState
from libs.bus.events import Event
from libs.cli import options, output
from libs.cli.errors import CliError, UnreachableError
from libs.cli.follow import ACTOR, WAIT_S, Change, ask_for, live
from libs.cli.manual import Manual
from libs.cli.session import Session, connected, run
from libs.cli.why import WAITING, state_words
from libs.kit.ids import new_id

EVENTS = (
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


@click.command(cls=Manual)
@click.argument("name", metavar="JOB")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the event.")
@options.seen_tenant
@options.common
def hold(name: str, reason: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """Keep JOB from being placed until it is released.

    What runs already is left alone: the attempt goes on, and should it end without success, the job is not placed
    again while it is held. `farside job cancel` ends what runs.

    Example:
      farside job hold digits-train --reason "dataset is being repaired"

    """
    change = Change(
        registry.JOBS_HOLD,
        lambda job_id: JobHold(job_id=job_id, reason=reason),
        is_held,
        told=held_words,
        over="it is not placed again",
    )
    run(ask_for(change, name, tenant, stack, as_json=as_json))


@click.command(cls=Manual)
@click.argument("name", metavar="JOB")
@options.seen_tenant
@options.common
def release(name: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """End the hold of JOB.

    Example:
      farside job release digits-train

    """
    change = Change(
        registry.JOBS_RELEASE, lambda job_id: JobRelease(job_id=job_id), is_released, over="no hold is left"
    )
    run(ask_for(change, name, tenant, stack, as_json=as_json))


def is_held(job: JobState) -> bool:
    """Whether the job is kept from being placed, or over, so that nothing is left to hold."""
    return job.held or job.state in {JobPhase.HELD, JobPhase.FINISHED}


def is_released(job: JobState) -> bool:
    """Whether nothing keeps the job from being placed any more, or it is over, so that nothing is left to release."""
    return job.state is JobPhase.FINISHED or not is_held(job)


def held_words(job: JobState) -> str:
    """What a hold means for the job as it is."""
    if job.state in WAITING or job.outcome is not None or job.attempt is None:
        return state_words(job)
    goes_on = f"{state_words(job)} and held: attempt {job.attempt.number} goes on"
    return f"{goes_on}, and the job is not placed again until `farside job release {job.job_id}`"


@click.command(cls=Manual)
@click.argument("name", metavar="JOB")
@click.argument("priority", type=click.Choice([priority.value for priority in Priority]))
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the event.")
@options.seen_tenant
@options.common
def reprioritize(name: str, priority: str, reason: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """Change the priority class of JOB, which may wait or run.

    A class above the tenant's highest is refused, and nothing changes. Of a job that runs, the class decides who may
    preempt it.

    Examples:
      farside job reprioritize digits-train batch
      farside job reprioritize 0190f3 online --reason "release on Friday"

    """
    run(_reprioritize(name, Priority(priority), reason, tenant, stack, as_json=as_json))


async def _reprioritize(
    name: str, priority: Priority, reason: str, tenant: str, stack: Path | None, *, as_json: bool
) -> None:
    async with connected(stack) as session:
        job = await live(session, name, tenant, "its class can no longer change")
        if job.spec.effective_priority is not priority:
            job = await _changed(session, job, JobReprioritize(job_id=job.job_id, priority=priority, reason=reason))
    if job.refused is not None:
        msg = f"job {job.spec.name} stays {job.spec.effective_priority}, {job.refused.code}: {job.refused.message}"
        raise CliError(msg)
    if as_json:
        output.as_json(job)
    else:
        output.note(f"{job.spec.name} ({job.job_id}) is {priority}, and {state_words(job)}")


async def _changed(session: Session, job: JobState, order: JobReprioritize) -> JobState:
    """Send the order; returns the job as the event tells that answers it."""
    since = await session.next_sequence(registry.JOBS_WAITING)
    await session.publish(
        registry.JOBS_REPRIORITIZE, order, key=job.tenant, subject=job.job_id, actor=ACTOR, id=new_id()
    )

    def answers(event: Event[JobState]) -> bool:
        return answers_order(event.body, order, job.version)

    found = await session.first(EVENTS, job.tenant, since, answers, WAIT_S)
    if found is None:
        msg = (
            f"the command was sent, but after {WAIT_S:.0f} s job {job.spec.name} is still "
            f"{job.spec.effective_priority}: `farside why {job.job_id}` shows the way it takes"
        )
        raise UnreachableError(msg)
    return found.body


def answers_order(body: JobState, order: JobReprioritize, version: int) -> bool:
    """Whether an event tells what became of the order, given after `version` of the job."""
    if body.job_id != order.job_id or body.version <= version:
        return False
    return body.refused is not None or body.spec.effective_priority is order.priority or body.outcome is not None
