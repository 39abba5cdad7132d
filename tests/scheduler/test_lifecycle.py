"""A job's way over the real bus and database: from its submission to its end, by every road."""

import pytest

from contracts.attempts import ExitCause
from contracts.base import ReasonCode
from contracts.jobs import Outcome
from contracts.nodes import LiveAttempt
from contracts.requests import ProblemCode
from libs.bus import Problem
from libs.kit.ids import new_id
from tests.scheduler.harness import PATIENCE_S, Stage, spec
from tests.waiting import until


async def test_from_submission_to_success(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    node = stage.node("central-1")
    run = await node.runs_it(job.job_id)
    assert [(m.node, m.cards, m.accelerator) for m in run.members] == [("central-1", [0, 1], "h100")]
    assert [m.card_memory_bytes for m in run.members] == [80 * 2**30]
    running = await stage.told(job, "running")
    assert running.attempt is not None
    assert running.attempt.number == 1
    await node.exited(run)
    finished = await stage.told(job, "finished")
    assert finished.outcome is Outcome.SUCCEEDED
    assert stage.story(job) == ["accepted", "placed", "starting", "running", "finished"]
    reply = await stage.job(job.job_id[:23])
    assert [t.state for t in reply.transitions] == stage.story(job)
    assert await stage.db.fetchval("SELECT count(*) FROM scheduler.allocated_cards") == 0
    assert await stage.db.fetchval("SELECT count(*) FROM scheduler.holdings WHERE held_to IS NULL") == 0


async def test_the_same_submission_again_makes_no_second_job_and_another_body_is_refused(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    await stage.submit(job)
    await stage.submit(job.model_copy(update={"name": "other"}), id="0190-other")
    rejected = await stage.refused("0190-other")
    assert (rejected.reason.code, rejected.job_id) == (ReasonCode.JOB_ID_REUSED, job.job_id)
    await stage.told(job, "placed")
    assert stage.story(job) == ["accepted", "placed"]
    assert len(stage.node("central-1").runs) <= 1


async def test_a_cancel_that_comes_before_its_job(stage: Stage) -> None:
    job = spec()
    await stage.cancel(job)

    async def kept() -> bool:
        return await stage.db.fetchval("SELECT count(*) FROM scheduler.intents") == 1

    await until(kept, PATIENCE_S, "the cancel to be kept")
    await stage.submit(job)
    finished = await stage.told(job, "finished")
    assert finished.outcome is Outcome.CANCELLED
    assert stage.story(job) == ["accepted", "finished"]
    assert await stage.db.fetchval("SELECT count(*) FROM scheduler.intents") == 0


async def test_a_cancel_of_a_running_job_stops_it(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    node = stage.node("central-1")
    run = await node.runs_it(job.job_id)
    await stage.told(job, "running")
    await stage.cancel(job)
    await node.stop_order(job.job_id)
    await node.exited(run, ExitCause.STOPPED, 143)
    finished = await stage.told(job, "finished")
    assert finished.outcome is Outcome.CANCELLED


async def test_a_lost_node_requeues_its_job_and_a_late_claim_is_refused(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    first, second = stage.node("central-1"), stage.node("central-2")
    run = await first.runs_it(job.job_id)
    await stage.told(job, "running")
    await stage.ready("central-2")
    await first.is_("lost")
    waiting = await stage.told(job, "waiting")
    assert (waiting.losses, waiting.attempt) == (1, None)
    assert waiting.reason is not None
    assert waiting.reason.code is ReasonCode.NODE_LOST
    assert not (await first.claim(run)).granted
    again = await second.runs_it(job.job_id, attempt=2)
    assert (again.attempt, again.generation) == (2, 2)
    await first.started(run)
    assert (await first.stop_order(job.job_id)).attempt == 1
    await second.exited(again)
    assert (await stage.told(job, "finished")).outcome is Outcome.SUCCEEDED


async def test_a_phase_of_a_later_inventory_keeps_what_runs_and_takes_no_more(stage: Stage) -> None:
    await stage.ready("central-1")
    first, second = stage.node("central-1"), stage.node("central-2")
    job = await stage.submit(spec())
    run = await first.runs_it(job.job_id)
    await stage.told(job, "running")
    await first.is_("graded", state="hibernating")
    waits = await stage.submit(spec())
    waiting = await stage.told(waits, "waiting")
    assert waiting.reason is not None
    assert waiting.reason.code is ReasonCode.WAITING_FOR_NODES
    await first.exited(run)
    assert (await stage.told(job, "finished")).losses == 0
    await stage.ready("central-2")
    await second.exited(await second.runs_it(waits.job_id))
    assert (await stage.told(waits, "finished")).outcome is Outcome.SUCCEEDED


async def test_a_suspect_node_is_granted_nothing_until_it_is_ready(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    node = stage.node("central-1")
    run = await node.offer(job.job_id)
    await node.is_("suspect")

    async def known() -> bool:
        return bool(await stage.db.fetchval("SELECT state = 'suspect' FROM scheduler.nodes WHERE node = 'central-1'"))

    await until(known, what="the scheduler to know")
    with pytest.raises(Problem, match="central-1 is suspect") as caught:
        await node.claim(run, patience_s=0.2)
    assert caught.value.code is ProblemCode.UNAVAILABLE
    await node.is_("returned")
    assert (await node.claim(run)).go


async def test_one_failed_member_of_a_gang_stops_both_and_both_run_again(stage: Stage) -> None:
    await stage.ready("central-1", "central-2")
    job = await stage.submit(spec(members=2, retries=1))
    first, second = stage.node("central-1"), stage.node("central-2")
    runs = [await first.offer(job.job_id), await second.offer(job.job_id)]
    reply = await second.claim(runs[1])
    assert (reply.granted, reply.go) == (True, False)
    reply = await first.claim(runs[0])
    assert (reply.go, reply.rendezvous) == (True, "central-1:4000")
    assert await second.claim(runs[1]) == reply
    await first.started(runs[0])
    await second.started(runs[1])
    await stage.told(job, "running")
    await second.exited(runs[1], ExitCause.FAILED, 7)
    await first.stop_order(job.job_id)
    await first.exited(runs[0], ExitCause.STOPPED, 143)
    waiting = await stage.told(job, "waiting")
    assert (waiting.failures, waiting.losses) == (1, 0)
    assert (await first.offer(job.job_id, 2)).generation == 2
    assert (await second.offer(job.job_id, 2)).generation == 2


async def test_inference_tells_its_endpoint_and_survives_a_partition(stage: Stage) -> None:
    await stage.ready("remote-1")
    changes = {"kind": "inference", "resources": {"cards": 1}, "max_runtime_s": None, "on_partition": "keep"}
    job = await stage.submit(spec(**changes))
    node = stage.node("remote-1")
    run = await node.runs_it(job.job_id)
    await node.ready(run, "http://remote-1:8000")
    told = await until(
        lambda: next((e.body for e in stage.heard if e.body.attempt and e.body.attempt.endpoint), None), PATIENCE_S
    )
    assert told is not None
    await node.is_("lost")
    await stage.told(job, "unreachable", attempts=1)
    live = LiveAttempt(job_id=job.job_id, attempt=1, member=0)
    await node.is_("returned", attempts=[live])
    await until(lambda: stage.story(job)[-1] == "running", PATIENCE_S, "the job to be reachable again")
    assert stage.story(job).count("placed") == 1


async def test_an_attempt_that_a_node_started_anew_does_not_hold_is_lost_after_its_grace(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    node = stage.node("central-1")
    await node.runs_it(job.job_id)
    await stage.told(job, "running")
    node.incarnation = new_id()
    await node.is_("returned")
    waiting = await stage.told(job, "waiting")
    assert waiting.losses == 1
    assert (await node.offer(job.job_id, 2)).attempt == 2


async def test_an_offer_nobody_takes_up_is_offered_again_under_a_new_number(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec(start_deadline_s=1))
    node = stage.node("central-1")
    await node.offer(job.job_id)
    again = await node.offer(job.job_id, 2)
    await node.stop_order(job.job_id, 1)
    assert (await node.claim(again)).granted
    assert not (await node.claim(node.runs[0])).granted


async def test_a_scheduler_that_dies_is_followed_by_the_one_that_stands_by(stage: Stage) -> None:
    await stage.ready("central-1")
    stage.standby.start()
    job = await stage.submit(spec())
    node = stage.node("central-1")
    run = await node.runs_it(job.job_id)
    await stage.told(job, "running")
    assert stage.standby.said("app.leading") == 0
    stage.scheduler.close()
    await node.exited(run)
    assert (await stage.told(job, "finished")).outcome is Outcome.SUCCEEDED
    assert stage.standby.said("app.leading") == 1
    other = await stage.submit(spec())
    await node.runs_it(other.job_id)
    await stage.told(other, "running")
