"""What is refused, what waits and why, and that neither blocks what comes behind."""

import json
from typing import Any

import pytest

from contracts import registry
from contracts.base import ReasonCode
from contracts.jobs import JobHold, JobRelease, JobSpec
from contracts.requests import JobQuery, JobsQuery, ProblemCode
from contracts.transfers import TransferCompleted
from libs.bus import Problem
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from tests.scheduler.harness import PATIENCE_S, Stage, spec
from tests.waiting import until

HOUR_MS = 3_600_000


async def send_raw(stage: Stage, key: str, data: bytes, **headers: str) -> str:
    """Publish a submission as an outsider without Farside's code would; returns its id."""
    id_ = new_id()
    attributes = {
        "ce-specversion": "1.0",
        "ce-id": id_,
        "ce-source": "/outsider",
        "ce-type": registry.JOBS_SUBMIT.type,
        "content-type": "application/json",
    } | headers
    await stage.client.js.publish(registry.JOBS_SUBMIT.subject(key), data, stream="JOBS_CMD", headers=attributes)
    return id_


def body(**changes: Any) -> bytes:
    return json.dumps(json.loads(spec().model_dump_json()) | changes).encode()


@pytest.mark.parametrize(
    ("key", "changes", "code", "said"),
    [
        ("acme", {"resources": {"cards": -1}}, ReasonCode.INVALID, "resources.cards"),
        ("acme", {"members": 10**9}, ReasonCode.INVALID, "members"),
        ("acme", {"kind": "mining"}, ReasonCode.INVALID, "kind"),
        ("beta", {}, ReasonCode.TENANT_MISMATCH, "acme"),
        ("nobody", {"tenant": "nobody"}, ReasonCode.UNKNOWN_TENANT, "nobody"),
        ("acme", {"resources": {"cards": 3}}, ReasonCode.NO_SUCH_NODE_TYPE, "has 2"),
        ("acme", {"max_runtime_s": 7200}, ReasonCode.CHECKPOINT_REQUIRED, "7200"),
        ("acme", {"members": 9}, ReasonCode.QUOTA_EXCEEDED, "18 cards"),
        ("acme", {"env": {f"V{n}": "x" * 4000 for n in range(20)}}, ReasonCode.INVALID, "65536"),
    ],
    ids=["negative", "absurd", "kind", "other tenant", "unknown", "no node", "checkpoint", "cards", "too large"],
)
async def test_a_bad_submission_is_refused_with_its_reason(
    stage: Stage, key: str, changes: dict[str, Any], code: ReasonCode, said: str
) -> None:
    await stage.ready("central-1")
    id_ = await send_raw(stage, key, body(**changes))
    good = await stage.submit(spec())
    rejected = await stage.refused(id_)
    assert rejected.reason.code is code
    assert said in rejected.reason.message
    assert rejected.tenant == key
    await stage.told(good, "placed")


async def test_what_is_no_json_at_all_is_refused_too(stage: Stage) -> None:
    id_ = await send_raw(stage, "acme", b"{")
    assert (await stage.refused(id_)).reason.code is ReasonCode.INVALID


async def test_over_quota_tells_used_asked_and_allowed_and_unspent_hours_come_back(stage: Stage) -> None:
    await stage.ready("remote-1")
    changes: dict[str, Any] = {"tenant": "beta", "kind": "batch", "resources": {"cards": 1}}
    first = await stage.submit(spec(**changes, max_runtime_s=3000))
    await stage.told(first, "accepted")
    await stage.submit(spec(**changes, max_runtime_s=1800), id="second")
    reason = (await stage.refused("second")).reason
    assert (reason.code, reason.resource) == (ReasonCode.QUOTA_EXCEEDED, "gpu_ms")
    assert (reason.used, reason.asked, reason.allowed) == (3_000_000, 1_800_000, HOUR_MS)
    assert reason.message.startswith("tenant beta asks 0.5 GPU-hours, 0.1666 left of 1 this month")
    node = stage.node("remote-1")
    await node.exited(await node.runs_it(first.job_id))
    await stage.told(first, "finished")
    third = await stage.submit(spec(**changes, max_runtime_s=1800))
    await stage.told(third, "accepted")


async def test_cards_wait_for_quota_and_one_reason_is_told_once(stage: Stage) -> None:
    await stage.ready("remote-1")
    changes: dict[str, Any] = {"tenant": "beta", "kind": "batch", "resources": {"cards": 1}, "max_runtime_s": 60}
    first = await stage.submit(spec(**changes))
    await stage.told(first, "placed")
    second = await stage.submit(spec(**changes))
    waiting = await stage.told(second, "waiting")
    assert waiting.reason is not None
    assert (waiting.reason.code, waiting.reason.resource) == (ReasonCode.WAITING_FOR_QUOTA, "jobs")
    await stage.ready("central-1", "central-2")
    await stage.told(await stage.submit(spec()), "placed")
    assert stage.story(second) == ["accepted", "waiting"]
    await stage.cancel(first)
    await stage.told(second, "placed")


async def test_a_job_waits_for_its_dataset_and_runs_when_it_is_staged(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec(dataset={"name": "digits", "version": "v1"}))
    waiting = await stage.told(job, "waiting")
    assert waiting.reason is not None
    assert waiting.reason.code is ReasonCode.WAITING_FOR_DATASET
    done = TransferCompleted.model_validate(
        {
            "transfer_id": new_id(),
            "tenant": "acme",
            "dataset": {"name": "digits", "version": "v1"},
            "prefix": "s3://farside/datasets/acme/digits/v1/files",
            "manifest": "s3://farside/datasets/acme/digits/v1/MANIFEST.json",
            "manifest_sha256": "0" * 64,
            "objects": 1,
            "size_bytes": 1,
            "completed_at": SystemClock().now(),
        }
    )
    await stage.client.publish(
        registry.TRANSFERS_COMPLETED, done, key="acme", subject=done.transfer_id, actor="transfer"
    )
    await stage.told(job, "placed")


async def test_before_any_node_is_known_jobs_wait_for_nodes(stage: Stage) -> None:
    job = await stage.submit(spec())
    waiting = await stage.told(job, "waiting")
    assert waiting.reason is not None
    assert waiting.reason.code is ReasonCode.WAITING_FOR_NODES
    await stage.ready("central-1")
    await stage.told(job, "placed")


async def test_a_held_job_is_not_placed_until_it_is_released(stage: Stage) -> None:
    job = await stage.submit(spec())
    await stage.told(job, "waiting")
    hold = JobHold(job_id=job.job_id, reason="window")
    await stage.client.publish(registry.JOBS_HOLD, hold, key="acme", subject=job.job_id, actor="user/ada")
    await stage.told(job, "held")
    await stage.ready("central-1")
    other = await stage.submit(spec())
    await stage.told(other, "placed")
    assert stage.story(job)[-1] == "held"
    await stage.cancel(other)
    release = JobRelease(job_id=job.job_id)
    await stage.client.publish(registry.JOBS_RELEASE, release, key="acme", subject=job.job_id, actor="user/ada")
    await stage.told(job, "placed")


async def test_another_tenant_cannot_cancel_or_see_a_job(stage: Stage) -> None:
    job = await stage.submit(spec())
    await stage.told(job, "waiting")
    foreign = job.model_copy(update={"tenant": "beta"})
    await stage.cancel(foreign)
    with pytest.raises(Problem) as caught:
        await stage.job(job.job_id, tenant="beta")
    assert caught.value.code is ProblemCode.NOT_FOUND
    assert not (await stage.job(job.job_id)).job.cancel_requested
    await stage.submit(foreign, id="stolen")
    assert (await stage.refused("stolen")).reason.code is ReasonCode.JOB_ID_REUSED


async def test_pages_of_jobs_and_jobs_by_name_or_prefix(stage: Stage) -> None:
    jobs: list[JobSpec] = []
    for index in range(5):
        jobs.append(await stage.submit(spec(name=f"job-{index % 2}", tenant="acme")))
        await stage.told(jobs[-1], "accepted")
    await until(lambda: all(stage.story(job)[-1] == "waiting" for job in jobs), PATIENCE_S, "all to wait")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = JobsQuery(limit=2, cursor=cursor, state=None)
        page = await stage.client.request(registry.QUERY_JOBS, query, key="_", timeout_s=PATIENCE_S)
        seen += [job.job_id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [job.job_id for job in reversed(jobs)]
    found = await stage.job("job-1")
    assert (found.job.job_id, found.others) == (jobs[3].job_id, 1)
    assert (await stage.job(jobs[1].job_id)).others == 0, "an id means one job"
    for index, meant in ((3, 1), (1, 3)):
        await stage.cancel(jobs[index])
        await stage.told(jobs[index], "finished")
        found = await stage.job("job-1")
        assert (found.job.job_id, found.others) == (jobs[meant].job_id, 0), "the newest live one, else the newest"
    for wanted, code in (("01", ProblemCode.INVALID), ("nothing", ProblemCode.NOT_FOUND)):
        with pytest.raises(Problem) as caught:
            await stage.client.request(registry.QUERY_JOB, JobQuery(job=wanted), key="_", timeout_s=PATIENCE_S)
        assert caught.value.code is code
    with pytest.raises(Problem, match="cursor"):
        await stage.client.request(registry.QUERY_JOBS, JobsQuery(cursor="x"), key="acme", timeout_s=PATIENCE_S)
