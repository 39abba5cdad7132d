"""Ask for a change of a job's state and wait until it shows."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.base import UUID_PATTERN, Model
from contracts.jobs import JobPhase, JobState
from contracts.registry import NO_KEY, Message
from libs.cli import output, words
from libs.cli.errors import CliError, UnreachableError
from libs.cli.session import Session, connected
from libs.cli.why import state_words
from libs.kit.ids import new_id

POLL_S = 0.25
WAIT_S = 10.0
STOP_MARGIN_S = 60.0
ACTOR = "cli"


class OverError(CliError):
    """The job has ended: nothing can be asked of it any more."""


@dataclass(frozen=True)
class Change:
    """A command about one job: how to build it, when (if at all) its effect shows in the job, and how to tell it."""

    message: Message[Any]
    body: Callable[[str], Model]
    done: Callable[[JobState], bool] | None
    may_come_first: bool = False
    told: Callable[[JobState], str] = state_words
    over: str = "there is nothing left to change"


def ended(job: JobState) -> bool:
    """Whether the job is over."""
    return job.state is JobPhase.FINISHED


async def live(session: Session, name: str, tenant: str, over: str) -> JobState:
    """The job `name`. OverError, in whose words `over` is what follows, where it is over."""
    found = await session.job(name, tenant)
    if found.others:
        verb = "is" if found.others == 1 else "are"
        more = words.count(found.others, "more job")
        output.note(f"{more} of the name {name} {verb} not over; the newest, {found.job.job_id}, is meant")
    if ended(found.job):
        msg = f"job {found.job.spec.name} ({found.job.job_id}) is over ({state_words(found.job)}): {over}"
        raise OverError(msg)
    return found.job


async def ask_for(change: Change, name: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """Send the command about the job `name`, wait for its effect, print the job."""
    async with connected(stack) as session:
        try:
            job = await live(session, name, tenant, change.over)
        except (UnreachableError, OverError):
            raise
        except CliError:
            if not change.may_come_first or tenant == NO_KEY or not re.match(UUID_PATTERN, name):
                raise
            await send(session, change, name, tenant)
            output.note(f"no job {name} yet: the command is kept for when it comes")
            return
        await send(session, change, job.job_id, job.tenant)
        if change.done is not None:
            job = await wait_for(session, job, change.done)
    if as_json:
        output.as_json(job)
    else:
        output.note(f"{job.spec.name} ({job.job_id}) is {change.told(job)}")


async def send(session: Session, change: Change, job_id: str, tenant: str) -> None:
    """Publish the command; UnreachableError when the bus does not take it."""
    await session.publish(change.message, change.body(job_id), key=tenant, subject=job_id, actor=ACTOR, id=new_id())


async def wait_for(session: Session, job: JobState, done: Callable[[JobState], bool]) -> JobState:
    """Poll until `done`; a job that is being stopped gets its grace and some more."""
    loop = asyncio.get_running_loop()
    grace_s = job.spec.stop_grace_s + STOP_MARGIN_S if done is ended else WAIT_S
    deadline = loop.time() + grace_s
    while not done(job):
        if loop.time() > deadline:
            msg = (
                f"the command was sent, but after {grace_s:.0f} s job {job.spec.name} is still {state_words(job)}: "
                f"`farside why {job.job_id}` shows the way it takes"
            )
            raise UnreachableError(msg)
        await asyncio.sleep(POLL_S)
        job = await session.job_state(job.job_id, job.tenant)
    return job
