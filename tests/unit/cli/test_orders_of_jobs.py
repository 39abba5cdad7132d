"""Orders about jobs that are over, by names that several live jobs bear, and where other commands are."""

import asyncio
from dataclasses import dataclass
from typing import cast

import pytest
from click.testing import CliRunner

from contracts.jobs import JobPhase, JobState, Outcome
from contracts.requests import JobReply
from libs.cli import follow, main, queue
from libs.cli.errors import FAILED, USAGE, CliError
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


def test_a_command_that_is_not_a_job_s_is_pointed_to() -> None:
    result = CliRunner().invoke(main.cli, ["job", "why", "digits-train"])
    assert result.exit_code == USAGE
    assert "no command 'why' here: it is `farside why digits-train`" in result.output


def test_a_queue_without_jobs_says_whose() -> None:
    assert (queue.empty("_"), queue.empty("acme")) == ("no job waits", "no job of acme waits")
