"""Who gets what, over the real bus and database: shares, preemption, guarantees, classes, drains."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from contracts import registry
from contracts.attempts import ExitCause
from contracts.base import Priority, ReasonCode
from contracts.checkpoints import CheckpointCommitted
from contracts.jobs import JobHold, JobReprioritize, JobSpec, Outcome
from contracts.queue import Constraint
from contracts.requests import HoldingsQuery
from tests.scheduler.harness import PATIENCE_S, Stage, spec
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)
COMMITTED = next((Path(__file__).parents[2] / "contracts/examples/checkpoints.committed.v1").glob("good-*.json"))
BATCH = {"kind": "batch", "resources": {"cards": 2}}
SERVE = {"kind": "inference", "resources": {"cards": 2}, "max_runtime_s": None}


async def reprioritize(stage: Stage, job: JobSpec, priority: Priority) -> None:
    body = JobReprioritize(job_id=job.job_id, priority=priority)
    key, actor = job.tenant, "user/ada"
    await stage.client.publish(registry.JOBS_REPRIORITIZE, body, key=key, subject=job.job_id, actor=actor)


async def test_sixteen_halves_at_once_are_two_a_card_and_the_next_waits(stage: Stage) -> None:
    """SC9."""
    node = stage.node("central-1")
    node.cards = 8
    await stage.ready("central-1")
    half = {"resources": {"cards": 1, "share_milli": 500}}
    jobs = [await stage.submit(spec(**half)) for _ in range(16)]
    for job in jobs:
        await stage.told(job, "placed")
    rows = await stage.db.fetch("SELECT card, array_agg(share) AS shares FROM scheduler.held_cards GROUP BY card")
    assert {row["card"]: row["shares"] for row in rows} == {card: [500_000, 500_000] for card in range(8)}
    more = await stage.submit(spec(**half))
    waiting = await stage.told(more, "waiting")
    assert waiting.reason is not None
    assert waiting.reason.code is ReasonCode.WAITING_FOR_CARDS
    run = await node.runs_it(jobs[0].job_id)
    assert [(m.share_milli, m.share_millionths, len(m.cards)) for m in run.members] == [(500, 500_000, 1)]
    query = HoldingsQuery(job_ids=[jobs[0].job_id])
    page = await stage.client.request(registry.QUERY_HOLDINGS, query, key="acme", timeout_s=PATIENCE_S)
    assert [(held.cards, held.share_milli) for held in page.holdings] == [(1, 500)]
    await node.exited(run)
    placed = await stage.told(more, "placed")
    assert placed.attempt is not None
    assert placed.attempt.members[0].cards == run.members[0].cards


async def test_a_higher_class_has_preemptible_work_leave_with_its_grace_and_it_comes_back(stage: Stage) -> None:
    await stage.ready("remote-1")
    node = stage.node("remote-1")
    batch, run = await stage.running("remote-1", **BATCH, stop_grace_s=7)
    serve = await stage.submit(spec(**SERVE))
    stop = await node.stop_order(batch.job_id)
    assert stop.grace_s == 7
    stopping = await stage.told(batch, "stopping")
    assert stopping.reason is not None
    assert stopping.reason.code is ReasonCode.PREEMPTED
    waiting = await stage.told(serve, "waiting")
    assert waiting.reason is not None
    why = await stage.explain(serve.job_id)
    assert why.reason is not None
    assert why.reason.code is ReasonCode.WAITING_FOR_PREEMPTION
    assert [(one.node, one.card_milli, one.stopping, one.job_id) for one in why.leaving] == [
        ("remote-1", 2000, True, batch.job_id)
    ]
    await node.exited(run, ExitCause.STOPPED, 143)
    back = await stage.told(batch, "waiting")
    assert (back.failures, back.losses, back.attempt) == (0, 0, None)
    served = await node.runs_it(serve.job_id)
    await node.exited(served)
    assert (await stage.told(serve, "finished")).outcome is Outcome.SUCCEEDED
    await node.exited(await node.runs_it(batch.job_id, attempt=2))
    assert (await stage.told(batch, "finished")).outcome is Outcome.SUCCEEDED


async def test_a_tenant_gets_its_guarantee_back_from_whom_it_lent_to(stage: Stage) -> None:
    """SC6: over what the borrower's class says."""
    stage.tenant("beta", quotas={"guarantee_cards": 2, "gpu_hours_month": 50})
    await stage.read("tenants")
    await stage.ready("central-1")
    lent, run = await stage.running("central-1")
    own = await stage.submit(spec(tenant="beta"))
    node = stage.node("central-1")
    await node.stop_order(lent.job_id)
    await node.exited(run, ExitCause.STOPPED, 143)
    await stage.told(own, "placed")
    assert stage.story(lent)[-1] == "waiting"


async def test_the_class_of_waiting_and_running_work_changes_and_one_above_the_top_does_not(stage: Stage) -> None:
    await stage.ready("central-1")
    first, run = await stage.running("central-1")
    waits = [await stage.submit(spec(name=name)) for name in ("earlier", "later")]
    for job in waits:
        await stage.told(job, "waiting")
    await reprioritize(stage, first, Priority.BATCH)
    running = await stage.told(first, "running", version=5)
    assert (running.spec.priority, running.refused) == (Priority.BATCH, None)
    await reprioritize(stage, waits[1], Priority.ONLINE)
    node = stage.node("central-1")
    assert (await node.stop_order(first.job_id)).reason, "what became batch work leaves for what became urgent"
    await node.exited(run, ExitCause.STOPPED, 143)
    await stage.told(waits[1], "placed")
    own = await stage.submit(spec(tenant="beta", resources={"cards": 1}))
    await stage.told(own, "waiting")
    await reprioritize(stage, own, Priority.ONLINE)
    refused = await stage.told(own, "waiting", version=3)
    assert refused.refused is not None
    assert refused.refused.code is ReasonCode.PRIORITY_NOT_ALLOWED
    assert refused.spec.priority is None


async def test_a_drained_node_gives_its_work_to_others_with_grace(stage: Stage) -> None:
    await stage.ready("central-1")
    job, run = await stage.running("central-1")
    await stage.ready("central-2")
    node = stage.node("central-1")
    await node.is_("graded", state="draining", reason="a fan is to be changed")
    assert "a fan is to be changed" in (await node.stop_order(job.job_id)).reason
    stopping = await stage.told(job, "stopping")
    assert stopping.reason is not None
    assert stopping.reason.code is ReasonCode.NODE_DRAINING
    await node.exited(run, ExitCause.STOPPED, 143)
    other = stage.node("central-2")
    await other.exited(await other.runs_it(job.job_id, attempt=2))
    assert (await stage.told(job, "finished")).losses == 0


async def test_a_cordoned_node_keeps_what_runs_and_takes_no_more(stage: Stage) -> None:
    await stage.ready("central-1")
    job, run = await stage.running("central-1", resources={"cards": 1})
    await stage.node("central-1").is_("graded", cordoned=True)
    waits = await stage.submit(spec(resources={"cards": 1}))
    assert (await stage.told(waits, "waiting")).reason is not None
    await stage.node("central-1").exited(run)
    assert (await stage.told(job, "finished")).outcome is Outcome.SUCCEEDED
    assert stage.story(waits)[-1] == "waiting"
    await stage.node("central-1").is_("graded")
    await stage.told(waits, "placed")


async def test_a_pool_that_is_divided_anew_is_left_by_those_whose_it_is_no_more(stage: Stage) -> None:
    """S4."""
    stage.rules(pools={"vision": {"nodes": ["central-1"]}, "speech": {"nodes": ["central-2"]}})
    await stage.read("policy")
    stage.tenant("acme", pools=["vision"])
    await stage.read("tenants")
    await stage.ready("central-1", "central-2")
    job, run = await stage.running("central-1", preemptible=True)
    foreign = await stage.submit(spec())
    await stage.told(foreign, "waiting")
    await stage.cancel(foreign)
    stage.rules(version=2, pools={"vision": {"nodes": ["central-2"]}, "speech": {"nodes": ["central-1"]}})
    node, other = stage.node("central-1"), stage.node("central-2")
    await node.stop_order(job.job_id)
    await node.exited(run, ExitCause.STOPPED, 143)
    await other.exited(await other.runs_it(job.job_id, attempt=2))
    assert (await stage.told(job, "finished")).outcome is Outcome.SUCCEEDED


async def test_a_quota_lowered_below_what_runs_stops_preemptible_work_only(stage: Stage) -> None:
    """SC3."""
    await stage.ready("central-1", "central-2")
    kept, _ = await stage.running("central-1", preemptible=False)
    gone, run = await stage.running("central-2", preemptible=True)
    stage.tenant("acme", version=2, quotas={"cards": 2})
    node = stage.node("central-2")
    await node.stop_order(gone.job_id)
    await node.exited(run, ExitCause.STOPPED, 143)
    waiting = await stage.told(gone, "waiting", reason=(await stage.told(gone, "stopping")).reason)
    assert waiting.attempt is None

    async def short() -> bool:
        reason = (await stage.explain(gone.job_id)).reason
        return reason is not None and reason.code == ReasonCode.WAITING_FOR_QUOTA

    await until(short, PATIENCE_S, "the job to wait for its quota")
    assert stage.story(kept)[-1] == "running"


async def test_a_hold_of_running_work_says_that_it_goes_on_and_keeps_it_from_the_next_place(stage: Stage) -> None:
    await stage.ready("central-1")
    job, run = await stage.running("central-1", retries=1)
    hold = JobHold(job_id=job.job_id, reason="inspection")
    await stage.client.publish(registry.JOBS_HOLD, hold, key="acme", subject=job.job_id, actor="user/ada")
    held = await stage.told(job, "running", held=True)
    assert held.reason is not None
    assert held.reason.message == "held (inspection): attempt 1 goes on, and the job is not placed again"
    await stage.node("central-1").exited(run, ExitCause.FAILED, 1)
    await stage.told(job, "held")
    why = await stage.explain(job.job_id)
    assert (why.waits, why.constraint) == (True, Constraint.HOLD)


async def test_the_last_time_that_work_was_safe_is_kept_of_the_attempt_that_runs(stage: Stage) -> None:
    await stage.ready("central-1")
    job, run = await stage.running("central-1")
    example = json.loads(COMMITTED.read_text())["body"] | {"job_id": job.job_id, "tenant": "acme"}
    for attempt, day in ((1, 1), (1, 2), (2, 3), (1, 1)):
        body = CheckpointCommitted.model_validate(
            example | {"attempt": attempt, "committed_at": datetime(2026, 12, day, tzinfo=UTC)}
        )
        await stage.client.publish(
            registry.CHECKPOINTS_COMMITTED, body, key="acme", subject=job.job_id, sequence=1, actor="checkpoint"
        )

    async def safe_since() -> datetime | None:
        query = "SELECT saved_at FROM scheduler.jobs WHERE job_id = $1"
        return cast("datetime | None", await stage.db.fetchval(query, job.job_id))

    async def read() -> bool:
        return await safe_since() == datetime(2026, 12, 2, tzinfo=UTC)

    await until(read, PATIENCE_S, "the checkpoints to be heard of")
    await stage.node("central-1").exited(run, ExitCause.KILLED, 137)
    await stage.told(job, "waiting")
    await stage.node("central-1").offer(job.job_id, attempt=2)
    assert await safe_since() is None, "another attempt begins anew"
