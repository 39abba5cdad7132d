"""docs/publish.md holds what it says: each of its blocks, run as written by a tenant against a stack."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from contracts import registry
from contracts.jobs import JobPhase, Outcome
from contracts.requests import JobQuery, JobReply, JobsPage, JobsQuery
from deploy.local.stack import Stack
from libs.bus import Client

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "publish.md"
TENANT = "acme"
NODE = "remote-1"
PARTS = ("postgres", "nats", "leaf", "seaweed", "provision", "inventory", "scheduler", "checkpoint", NODE)
LIMIT_S = 120
BEFORE = "Before you begin"
LANGUAGES = ("Python", "JavaScript", "Any other language")

pytestmark = pytest.mark.timeout(300)
on_the_stack = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Block:
    """One fenced block: a file to write where it has a name, else commands to run."""

    section: str
    language: str
    name: str
    text: str


def blocks() -> Iterator[Block]:
    """Every fenced block of the page."""
    for part in PAGE.read_text().split("\n## "):
        for language, name, text in re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL):
            yield Block(part.partition("\n")[0], language, name, text)


BLOCKS = list(blocks())


@dataclass(frozen=True)
class Stand:
    """Where a reader stands: `folder` holds `var` and `contracts`; beside it the operator's connection."""

    folder: Path
    client: Client

    async def ran_once(self, job_id: str) -> None:
        """The scheduler accepted the job once, and it has run once."""
        reply: JobReply = await self.client.request(registry.QUERY_JOB, JobQuery(job=job_id), key=TENANT, timeout_s=20)
        assert [step.state for step in reply.transitions].count(JobPhase.ACCEPTED) == 1
        assert (reply.job.outcome, reply.job.attempts) == (Outcome.SUCCEEDED, 1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stand]:
    """A stack that can run a batch job."""
    folder = tmp_path_factory.mktemp("publish")
    (folder / "contracts").symlink_to(ROOT / "contracts")
    async with (
        Stack(folder / "var", parts=PARTS) as stack,
        await Client.connect(stack.config.nats_url, name="test") as client,
    ):
        yield Stand(folder, client)


async def follow_the_page(folder: Path, language: str) -> tuple[str, str]:
    """Do as the page says in one language; what was printed, and the id of the job."""
    script = ["set -euo pipefail"]
    for block in BLOCKS:
        if block.section in {BEFORE, language}:
            if block.name:
                (folder / block.name).write_text(block.text)
            else:
                script.append(block.text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", "\n".join([*script, 'echo "$JOB_ID" > job_id'])],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout, (folder / "job_id").read_text().strip()


def test_every_block_is_run() -> None:
    assert {block.section for block in BLOCKS} == {BEFORE, *LANGUAGES}
    assert {block.language for block in BLOCKS if not block.name} == {"sh"}
    assert PAGE.read_text().count("\n```") == 2 * len(BLOCKS)


def test_the_page_shows_the_example_as_it_is() -> None:
    [shown] = [block.text for block in BLOCKS if block.name == "publish.py"]
    assert shown == (ROOT / "examples" / "publish.py").read_text()


@on_the_stack
async def test_python(stand: Stand) -> None:
    said, job_id = await follow_the_page(stand.folder, "Python")
    states = ["accepted", "placed", "starting", "running", "finished"]
    assert [line.split()[0] for line in said.splitlines() if job_id in line] == states
    assert f"finished {job_id} succeeded completed" in said
    asked = [line.split()[:2] for line in said.splitlines() if job_id not in line]
    assert asked == [[str(version), state] for version, state in enumerate(states, start=1)]
    await stand.ran_once(job_id)


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm: install Node.js and npm to run this")
@on_the_stack
async def test_javascript(stand: Stand) -> None:
    said, job_id = await follow_the_page(stand.folder, "JavaScript")
    assert "stored: JOBS_CMD " in said
    assert f"finished {job_id} succeeded completed" in said
    await stand.ran_once(job_id)


@on_the_stack
async def test_the_protocol_by_hand(stand: Stand) -> None:
    said, job_id = await follow_the_page(stand.folder, "Any other language")
    assert said.startswith('stored: {"stream":"JOBS_CMD"')
    assert re.search(rf'^finished {{"job_id":"{job_id}".*"outcome":"succeeded"', said, re.MULTILINE)
    await stand.ran_once(job_id)
    refused = said.splitlines()[-1]
    assert refused.startswith("rejected ")
    assert "kind is 'mining'" in refused
    for word in ("training", "fine_tuning", "inference", "preprocessing", "batch"):
        assert f"'{word}'" in refused
    page: JobsPage = await stand.client.request(registry.QUERY_JOBS, JobsQuery(), key=TENANT, timeout_s=20)
    assert page.jobs[0].job_id == job_id, "the wrong one became a job"
