"""The checkpoint service against real servers: commits, restores, fence, damage, retention."""

import asyncio

import pytest

from contracts import registry
from contracts.attempts import Binding
from contracts.checkpoints import CheckpointFailure
from contracts.jobs import DatasetRef
from contracts.requests import CheckpointsQuery, ProblemCode
from libs.bus import Problem
from libs.kit.ids import new_id
from libs.objects import shard_key
from services.checkpoint.core.marker import Marker
from tests.checkpoint.stage import BINDING, TENANT, Stage
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_save_is_committed_when_every_member_has_reported(stage: Stage) -> None:
    job = stage.job(members=2)
    job.upload(1, 10, 0)
    await job.report(1, 10, 0)
    job.upload(1, 10, 1)
    assert job.marker(10) not in job.objects()
    await job.report(1, 10, 1)
    event = await job.until_committed(1, 10)
    marker = Marker.model_validate_json(stage.store.get(job.marker(10)))
    assert marker.writer == f"{job.job_id}/1/10"
    assert marker.shards == event.shards == [job.shard(1, 10, 0), job.shard(1, 10, 1)]
    assert event.marker == stage.store.uri(job.marker(10))
    assert event.size_bytes == sum(shard.size_bytes for shard in event.shards)
    assert (await job.listed()).checkpoints == [event]


async def test_a_report_that_comes_twice_commits_once(stage: Stage) -> None:
    job = stage.job()
    job.upload(1, 5)
    for _ in range(3):
        await job.report(1, 5)
    await job.until_committed(1, 5)
    await job.report(1, 5)
    await job.commit(1, 6)
    assert [body.step for body in await job.events(registry.CHECKPOINTS_COMMITTED)] == [5, 6]
    assert await job.events(registry.CHECKPOINTS_FAILED) == []


async def test_nothing_to_restore_still_raises_the_fence(stage: Stage) -> None:
    job = stage.job()
    reply = await job.restore(2)
    assert (reply.granted, reply.step, reply.shards) == (True, None, [])
    await job.save(1, 10)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED)
    assert [(body.cause, body.attempt, body.step) for body in failed] == [(CheckpointFailure.FENCED, 1, 10)]
    assert "attempt 2 has taken the job over" in failed[0].message
    assert job.marker(10) not in job.objects()
    assert (await job.listed()).fence == 2


async def test_tc21_a_commit_of_an_older_attempt_is_refused_also_halfway(stage: Stage) -> None:
    job = stage.job(members=2)
    await job.commit(1, 10)
    job.upload(1, 20, 0)
    await job.report(1, 20, 0)
    await job.commit(1, 15)  # the report above was handled before this
    reply = await job.restore(2)
    assert (reply.granted, reply.step, reply.from_attempt) == (True, 15, 1)
    job.upload(1, 20, 1)
    await job.report(1, 20, 1)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED)
    assert [(body.cause, body.step) for body in failed] == [(CheckpointFailure.FENCED, 20)]
    await job.commit(2, 20)
    assert [one.attempt for one in (await job.listed()).checkpoints] == [2, 1, 1]


async def test_an_older_attempt_gets_no_restore(stage: Stage) -> None:
    job = stage.job()
    await job.restore(3)
    reply = await job.restore(2)
    assert not reply.granted
    assert "attempt 2 is fenced off: attempt 3 has taken the job over" in reply.message


async def test_every_member_gets_the_same_grant(stage: Stage) -> None:
    job = stage.job(members=3)
    await job.commit(1, 10)
    replies = await asyncio.gather(*(job.restore(2, member) for member in range(3)))
    await job.commit(2, 20)
    late = await job.restore(2, 1)
    assert {(reply.granted, reply.step, reply.from_attempt) for reply in [*replies, late]} == {(True, 10, 1)}
    assert all(reply.shards == replies[0].shards for reply in replies)
    restored = await job.events(registry.CHECKPOINTS_RESTORED)
    assert [(body.attempt, body.step, body.from_attempt) for body in restored] == [(2, 10, 1)]


async def test_tc19_a_damaged_shard_is_told_and_the_next_older_one_taken(stage: Stage) -> None:
    job = stage.job(members=2)
    await job.commit(1, 10)
    await job.commit(1, 20)
    data = job.data(1, 20, 1)
    stage.store.put(shard_key(TENANT, job.job_id, 20, 1, 1), bytes([data[0] ^ 1]) + data[1:])
    reply = await job.restore(2)
    assert (reply.granted, reply.step) == (True, 10)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED)
    assert [(body.cause, body.step) for body in failed] == [(CheckpointFailure.DIGEST_MISMATCH, 20)]
    assert "shard-00001" in failed[0].message
    assert [one.step for one in (await job.listed()).checkpoints] == [10]
    await job.commit(2, 20)  # the place of the damaged marker is free again
    assert [(one.attempt, one.step) for one in (await job.listed()).checkpoints] == [(2, 20), (1, 10)]


@pytest.mark.parametrize("how", ["truncated", "missing", "empty", "marker"])
async def test_tc19_a_partial_checkpoint_is_not_restored(stage: Stage, how: str) -> None:
    job = stage.job()
    await job.commit(1, 10)
    await job.commit(1, 20)
    key = shard_key(TENANT, job.job_id, 20, 1, 0)
    match how:
        case "truncated":
            stage.store.put(key, job.data(1, 20, 0)[:-1])
        case "empty":
            stage.store.put(key, b"")
        case "missing":
            stage.store.delete([key])
        case _:
            stage.store.delete([job.marker(20)])
    reply = await job.restore(2)
    assert (reply.granted, reply.step) == (True, 10)
    assert [body.step for body in await job.until_events(registry.CHECKPOINTS_FAILED)] == [20]


async def test_tc20_shards_without_a_marker_are_no_checkpoint(stage: Stage) -> None:
    job = stage.job()
    job.upload(1, 10)
    reply = await job.restore(2)
    assert (reply.granted, reply.step) == (True, None)


async def test_a_shard_that_is_not_there_in_full_makes_no_checkpoint(stage: Stage) -> None:
    job = stage.job()
    await job.report(1, 10)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED)
    assert failed[0].cause is CheckpointFailure.MISSING_SHARD
    assert "is not there" in failed[0].message
    assert job.objects() == []


@pytest.mark.parametrize(
    ("binding", "words"),
    [
        (
            BINDING.model_copy(update={"dataset": DatasetRef(name="digits", version="v2")}),
            "dataset version was digits:v1, is now digits:v2",
        ),
        (BINDING.model_copy(update={"code_version": "b" * 64}), f"code version was {'a' * 64}, is now {'b' * 64}"),
        (BINDING.model_copy(update={"seed": 8}), "seed was 7, is now 8"),
        (Binding(), "dataset version was digits:v1, is now none"),
    ],
)
async def test_a_restore_under_another_binding_is_refused_in_words(stage: Stage, binding: Binding, words: str) -> None:
    job = stage.job()
    await job.commit(1, 10)
    reply = await job.restore(2, binding=binding)
    assert not reply.granted
    assert words in reply.message
    assert (await job.restore(2)).granted


async def test_tc22_rotation_keeps_the_newest_and_comes_after_the_commit(stage: Stage) -> None:
    job = stage.job(keep_last=2)
    for step in (10, 20, 30, 40):
        await job.commit(1, step)
    expired = await job.until_events(registry.CHECKPOINTS_EXPIRED, 2)
    assert [body.step for body in expired] == [10, 20]
    assert [one.step for one in (await job.listed()).checkpoints] == [40, 30]
    await until(lambda: len(job.objects()) == 4, 20)
    sequence = await stage.client.history([registry.CHECKPOINTS_COMMITTED, registry.CHECKPOINTS_EXPIRED], key=TENANT)
    own = [event for event in sequence if event.subject == job.job_id]
    assert [event.sequence for event in own] == list(range(1, 7))


async def test_a_shard_outside_its_attempts_prefix_is_refused(stage: Stage) -> None:
    job = stage.job()
    other = stage.job()
    other.upload(1, 10)
    await job.report(1, 10, shard=other.shard(1, 10))
    letters = await until(lambda: _letters(stage, job.job_id), 20)
    assert letters == ["refused"]
    assert await job.events(registry.CHECKPOINTS_COMMITTED) == []


async def _letters(stage: Stage, job_id: str) -> list[str]:
    letters = await stage.client.history([registry.DEADLETTERED])
    return [letter.body.reason.value for letter in letters if job_id.encode() in letter.body.data]


async def test_members_that_contradict_each_other_make_no_checkpoint(stage: Stage) -> None:
    job = stage.job(members=2)
    await job.report(1, 10, 0)
    await job.report(1, 10, 1, binding=BINDING.model_copy(update={"seed": 9}))
    failed = await job.until_events(registry.CHECKPOINTS_FAILED)
    assert failed[0].cause is CheckpointFailure.CONFLICT


async def test_a_job_of_another_tenant_is_not_restored_nor_listed(stage: Stage) -> None:
    job = stage.job()
    await job.commit(1, 10)
    with pytest.raises(Problem, match="belongs to tenant acme"):
        await job.restore(2, tenant="intruder")
    query = CheckpointsQuery(job_id=job.job_id)
    with pytest.raises(Problem) as problem:
        await stage.client.request(registry.QUERY_CHECKPOINTS, query, key="intruder")
    assert problem.value.code is ProblemCode.NOT_FOUND
    assert (await job.listed()).fence == 1


async def test_an_unknown_job_has_no_checkpoints(stage: Stage) -> None:
    with pytest.raises(Problem) as problem:
        await stage.client.request(registry.QUERY_CHECKPOINTS, CheckpointsQuery(job_id=new_id()), key=TENANT)
    assert problem.value.code is ProblemCode.NOT_FOUND


async def test_a_foreign_marker_in_the_place_stands_and_is_told(stage: Stage) -> None:
    job = stage.job()
    await job.commit(1, 10)
    await job.restore(2)
    await job.save(2, 10)
    failed = await job.until_events(registry.CHECKPOINTS_FAILED)
    assert [(body.cause, body.attempt) for body in failed] == [(CheckpointFailure.CONFLICT, 2)]
    assert Marker.model_validate_json(stage.store.get(job.marker(10))).attempt == 1
