"""Many jobs at once, with nodes that come and go: nothing is left over, no handler fails, no card is given twice."""

import asyncio

from contracts.attempts import ExitCause
from contracts.jobs import JobSpec, Outcome
from libs.kit.tasks import reap
from tests.bus.traced import named, spans_in
from tests.scheduler.harness import FakeNode, Stage, spec
from tests.waiting import until

JOBS = 24
STORM_S = 100.0


async def obey(node: FakeNode) -> None:
    """An agent that claims whatever is offered and ends it at once; what is refused it forgets."""
    done: set[tuple[str, int, int]] = set()
    while True:
        node.check()
        for run in list(node.runs):
            key = (run.job_id, run.attempt, run.member)
            if key not in done:
                done.add(key)
                reply = await node.claim(run)
                if reply.granted:
                    await node.started(run)
                    fails = run.attempt == 1 and run.spec.name.endswith("0")
                    await node.exited(run, ExitCause.FAILED if fails else ExitCause.COMPLETED, 1 if fails else 0)
        await asyncio.sleep(0.02)


async def test_a_storm_of_jobs_leaves_nothing_behind(stage: Stage) -> None:
    names = ("central-1", "central-2", "remote-1")
    await stage.ready(*names)
    agents = [asyncio.create_task(obey(stage.node(name))) for name in names]
    try:
        jobs: list[JobSpec] = []
        for index in range(JOBS):
            gang = index % 6 == 0
            changes = {"members": 2} if gang else {"resources": {"cards": 1 + index % 2}}
            jobs.append(await stage.submit(spec(name=f"job-{index}", retries=2, **changes)))
            if index % 8 == 7:
                await stage.cancel(jobs[-1])
        for version in range(3):
            await stage.node("central-2").is_("lost" if version % 2 == 0 else "returned")
        await stage.node("central-2").is_("returned")

        def over() -> bool:
            for agent in agents:
                if agent.done():
                    agent.result()
            return all(stage.story(job)[-1:] == ["finished"] for job in jobs)

        await until(over, STORM_S, "all jobs to finish")
    finally:
        await reap(agents)
    outcomes = {(await stage.told(job, "finished")).outcome for job in jobs}
    assert outcomes <= {Outcome.SUCCEEDED, Outcome.CANCELLED}
    for table in ("allocations", "allocated_cards", "intents"):
        assert await stage.db.fetchval(f"SELECT count(*) FROM scheduler.{table}") == 0  # noqa: S608 - a literal above
    assert await stage.db.fetchval("SELECT count(*) FROM scheduler.holdings WHERE held_to IS NULL") == 0
    for event in ("bus.handler_failed", "bus.dead_letter", "bus.call_failed", "app.task_waits"):
        assert stage.scheduler.said(event) == 0, stage.scheduler.log.read_text()[-4000:]


async def test_all_events_of_a_job_belong_to_the_trace_it_was_submitted_with(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    node = stage.node("central-1")
    run = await node.runs_it(job.job_id)
    await stage.told(job, "running")
    await node.is_("lost")
    await stage.told(job, "waiting")
    del run
    lost = await until(lambda: named(stage.scheduler.traces, "lose attempt"))
    traces = {event.traceparent.split("-")[1] for event in stage.heard if event.traceparent}
    assert len(traces) == 1
    assert all(event.traceparent for event in stage.heard)
    (placed,) = named(stage.scheduler.traces, "place job")
    (cause,) = named(stage.scheduler.traces, "process nodes.v1.lost.{node}")
    assert [{one.trace} for one in (placed, *lost)] == [traces, traces]
    assert lost[0].links == [(cause.trace, cause.id)]
    assert lost[0].attributes["farside.job"] == job.job_id
    spans = [one for one in spans_in(stage.scheduler.traces) if one.trace in traces]
    assert {one.parent for one in spans} <= {"", *(one.id for one in spans)}, "no span of the job lacks its parent"
