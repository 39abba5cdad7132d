"""Orders about jobs that are over, and by names that several live jobs bear."""

import asyncio
from dataclasses import dataclass
from typing import cast

import pytest

from contracts.jobs import JobPhase, JobState, Outcome
from contracts.requests import JobReply
from libs.cli import follow
from libs.cli.errors import FAILED, CliError
from libs.cli.session import Session
from tests.unit.cli.test_turns import job


@dataclass
class Known:
    """What the scheduler answers about a name."""

    reply: JobReply

    async def job(self, name: str, tenant: str) -> JobReply:
        del name, tenant
        return self.reply


def meant(reply: JobReply) -> JobState:
    return asyncio.run(follow.live(cast("Session", Known(reply)), "digits-gang", "acme", "nothing is left"))


def test_an_order_about_a_job_that_is_over_is_refused() -> None:
    over = job(state=JobPhase.FINISHED, outcome=Outcome.SUCCEEDED)
    with pytest.raises(
        CliError, match=r"^job digits-gang \(.*\) is over \(finished: succeeded\): nothing is left$"
    ) as no:
        meant(JobReply(job=over, transitions=[]))
    assert no.value.exit_code == FAILED


def test_an_order_by_a_name_says_whether_more_live_jobs_bear_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert meant(JobReply(job=job(), transitions=[])) == job()
    assert capsys.readouterr().err == ""
    assert meant(JobReply(job=job(), transitions=[], others=2)) == job()
    assert capsys.readouterr().err.startswith("2 more jobs of the name digits-gang are not over; the newest, ")
