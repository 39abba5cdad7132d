"""A node cannot speak for another: what comes from one that does not hold the member changes nothing of the job."""

import pytest

from contracts import registry
from contracts.base import Name
from contracts.checkpoints import CheckpointFailure
from contracts.deadletters import DeadLetter, DeadReason
from contracts.requests import CheckpointsQuery, ProblemCode
from libs.bus import Problem
from tests.checkpoint.stage import NODE, TENANT, Job, Stage
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIAR = "remote-9"


async def buried(job: Job) -> list[DeadLetter]:
    """The dead letters of messages about this job, once there is one."""

    async def found() -> list[DeadLetter]:
        letters = await job.stage.client.history([registry.DEADLETTERED])
        return [letter.body for letter in letters if job.job_id.encode() in letter.body.data]

    return await until(found, 20, "a dead letter")


async def test_a_node_that_holds_nothing_fails_no_save_of_another(stage: Stage) -> None:
    job = stage.job(members=2)
    await job.report(1, 10, 0)
    await job.report(1, 10, 1, node=LIAR, shard=job.shard(1, 10, 1, sha256="0" * 64))
    [letter] = await buried(job)
    assert (letter.reason, letter.consumer) == (DeadReason.REFUSED, "checkpoint-attempts-saved")
    assert f"member 1 of attempt 1 of job {job.job_id} is held by node {NODE}" in letter.message
    assert f"node {LIAR} may not speak for it" in letter.message
    await job.commit(1, 10)
    assert await job.events(registry.CHECKPOINTS_FAILED) == []


async def test_a_node_that_holds_nothing_tells_no_trouble_of_another(stage: Stage) -> None:
    job = stage.job()
    await job.report_unsaved(1, 10, node=LIAR)
    [letter] = await buried(job)
    assert (letter.reason, letter.consumer) == (DeadReason.REFUSED, "checkpoint-attempts-unsaved")
    assert await job.events(registry.CHECKPOINTS_FAILED) == []


@pytest.mark.parametrize(
    ("node", "member", "words"), [(LIAR, 0, f"is held by node {NODE}"), (NODE, 1, "does not exist")]
)
async def test_a_restore_by_another_node_is_refused_before_the_fence_is_raised(
    stage: Stage, node: Name, member: int, words: str
) -> None:
    job = stage.job()
    await job.commit(1, 10)
    with pytest.raises(Problem, match=words) as problem:
        await job.restore(2, member, node=node)
    assert problem.value.code is ProblemCode.INVALID
    assert (await job.listed()).fence == 1
    await job.commit(1, 20)
    assert (await job.restore(2)).step == 20


async def test_the_node_of_an_older_attempt_gets_nothing_of_the_newer_one(stage: Stage) -> None:
    job = stage.job()
    await job.commit(1, 10)
    job.placed.add(2)
    await stage.place(job.job_id, 2, [LIAR])
    with pytest.raises(Problem, match=f"is held by node {LIAR}"):
        await job.restore(2)
    assert (await job.restore(2, node=LIAR)).step == 10
    reply = await job.restore(1)
    assert not reply.granted
    assert "attempt 1 is fenced off" in reply.message
    await job.save(1, 20)
    [failed] = await job.until_events(registry.CHECKPOINTS_FAILED)
    assert failed.cause is CheckpointFailure.FENCED


async def test_an_attempt_that_nobody_placed_raises_no_fence(stage: Stage) -> None:
    job = stage.job()
    await job.commit(1, 10)
    job.placed.add(1_000_000)
    with pytest.raises(Problem, match="was not placed, as far as is known") as problem:
        await job.ask(1_000_000, timeout_s=1)
    assert problem.value.code is ProblemCode.UNAVAILABLE
    assert (await job.listed()).fence == 1


async def test_a_job_that_a_node_made_up_is_nobodys_until_it_is_placed(stage: Stage) -> None:
    job = stage.job()
    job.placed.add(1)
    for tenant in ("intruder", TENANT):
        with pytest.raises(Problem) as problem:
            await job.ask(1, tenant=tenant, timeout_s=1)
        assert problem.value.code is ProblemCode.UNAVAILABLE
    query = CheckpointsQuery(job_id=job.job_id)
    with pytest.raises(Problem) as problem:
        await stage.client.request(registry.QUERY_CHECKPOINTS, query, key="_")
    assert problem.value.code is ProblemCode.NOT_FOUND
    job.placed.clear()
    await job.commit(1, 10)


async def test_what_comes_before_its_placement_waits_for_it(stage: Stage) -> None:
    job = stage.job()
    job.placed.add(1)
    await job.save(1, 10)

    async def put_off() -> bool:
        info = await stage.client.js.consumer_info(registry.ATTEMPTS.name, "checkpoint-attempts-saved")
        return (info.num_redelivered or 0) > 0

    await until(put_off, 20, "the report to be put off")
    assert await job.events(registry.CHECKPOINTS_COMMITTED) == []
    job.placed.clear()
    await job.place(1)
    await job.until_committed(1, 10)
    letters = await stage.client.history([registry.DEADLETTERED])
    assert not [letter for letter in letters if job.job_id.encode() in letter.body.data]
