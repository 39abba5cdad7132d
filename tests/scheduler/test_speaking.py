"""A node cannot speak for another: what it claims or reports of a member that another one holds changes nothing."""

from typing import Any

import pytest

from contracts import registry
from contracts.attempts import AttemptHung, AttemptProgressed, ExitCause, ProgressPoint
from contracts.jobs import JobPhase, Outcome
from contracts.requests import ProblemCode
from libs.bus import Problem
from libs.kit.clock import SystemClock
from tests.scheduler.harness import FakeNode, Stage, spec
from tests.waiting import until

ATTEMPTS = (
    registry.ATTEMPTS_STARTED,
    registry.ATTEMPTS_PROGRESSED,
    registry.ATTEMPTS_READY,
    registry.ATTEMPTS_HUNG,
    registry.ATTEMPTS_EXITED,
)


async def all_read(stage: Stage) -> None:
    """Wait until the scheduler has handled every report of nodes."""

    async def read() -> bool:
        for message in ATTEMPTS:
            durable = registry.durable(message, message.consumers[0])
            info = await stage.client.js.consumer_info(message.stream.name, durable)
            if info.num_pending or info.num_ack_pending:
                return False
        return True

    await until(read, 30, "the reports to be handled")


async def report(node: FakeNode, message: registry.Message[Any], body: Any) -> None:
    await node.client.publish(message, body, key=node.name, subject=body.job_id, actor=f"agent/{node.name}", sequence=1)


async def test_a_node_cannot_take_up_what_was_offered_to_another(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    run = await stage.node("central-1").offer(job.job_id)
    await stage.ready("central-2")
    liar = stage.node("central-2")
    reply = await liar.claim(run)
    assert not reply.granted
    assert "member 0 of attempt 1 was not offered to node central-2" in reply.message
    with pytest.raises(Problem, match="the subject names 'central-2' but the body names 'central-1'") as problem:
        await liar.claim(run, node="central-1")
    assert problem.value.code is ProblemCode.INVALID
    assert await stage.db.fetchval("SELECT count(*) FROM scheduler.holdings WHERE job_id = $1", job.job_id) == 0
    assert (await stage.node("central-1").claim(run)).granted


async def test_what_a_node_reports_of_anothers_attempt_changes_nothing(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    node, liar = stage.node("central-1"), stage.node("central-2")
    run = await node.runs_it(job.job_id)
    before = await stage.told(job, "running")
    await stage.ready("central-2")
    now, said = SystemClock().now(), liar.ref(run)
    points = [ProgressPoint(step=1_000_000)]
    await report(liar, registry.ATTEMPTS_PROGRESSED, AttemptProgressed(**said, points=points, reported_at=now))
    await liar.ready(run, "http://elsewhere")
    await report(liar, registry.ATTEMPTS_HUNG, AttemptHung(**said, silent_s=60, hung_at=now))
    await liar.exited(run, ExitCause.FAILED, 1)
    await liar.exited(run)
    await liar.started(run)
    await all_read(stage)
    state = (await stage.job(job.job_id)).job
    assert (state.state, state.version, state.failures, state.losses) == (JobPhase.RUNNING, before.version, 0, 0)
    assert state.attempt is not None
    assert (state.attempt.endpoint, state.attempt.progress_step) == (None, None)
    assert (await liar.stop_order(job.job_id)).attempt == 1, "what it says it has started is stopped, on its own node"
    assert node.stops == []
    await node.exited(run)
    assert (await stage.told(job, "finished")).outcome is Outcome.SUCCEEDED
