"""What the scheduler says when asked about its queue: why, when, whose turn, how much; and what it would do."""

from datetime import timedelta
from typing import Any

import pytest

from contracts import registry
from contracts.base import ReasonCode
from contracts.jobs import JobSpec
from contracts.queue import (
    Constraint,
    DryRunQuery,
    QueuePage,
    QueueQuery,
    QuotaPage,
    QuotaQuery,
    QuotaResource,
    Verdict,
)
from contracts.requests import ProblemCode
from libs.bus import Problem
from libs.kit.clock import SystemClock
from tests.scheduler.harness import PATIENCE_S, Stage, spec
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)
ONE: dict[str, Any] = {"resources": {"cards": 1}}


async def queue(stage: Stage, tenant: str = "_", **query: Any) -> QueuePage:
    body = QueueQuery(**query)
    return await stage.client.request(registry.QUERY_QUEUE, body, key=tenant, timeout_s=PATIENCE_S)


async def quota(stage: Stage, tenant: str = "acme", **query: Any) -> QuotaPage:
    body = QuotaQuery(**query)
    return await stage.client.request(registry.QUERY_QUOTA, body, key=tenant, timeout_s=PATIENCE_S)


async def test_a_blocked_gang_has_room_kept_for_it_and_is_told_when_and_by_whom(stage: Stage) -> None:
    """SC15, SC16."""
    await stage.ready("central-1", "central-2")
    first, _ = await stage.running("central-1", **ONE, max_runtime_s=600)
    both = {"members": 2, "max_runtime_s": 300}
    gang = await stage.submit(spec(**both))
    waiting = await stage.told(gang, "waiting")
    assert waiting.reason is not None
    why = await stage.explain(gang.name)
    assert (why.job_id, why.waits, why.position, why.waiting) == (gang.job_id, True, 1, 1)
    assert why.reason is not None
    assert why.constraint in {Constraint.CARDS, Constraint.FRAGMENTATION}
    assert why.forecast is not None
    assert why.forecast.starts_at is not None
    ends = timedelta(seconds=600) + (await stage.job(first.job_id)).job.submitted_at
    assert ends - timedelta(seconds=60) < why.forecast.starts_at < ends + timedelta(seconds=600)
    assert (why.forecast.nodes, bool(why.forecast.basis)) == (["central-1", "central-2"], True)
    assert [(one.node, one.job_id, one.stopping) for one in why.leaving] == [("central-1", first.job_id, False)]
    long = await stage.submit(spec(**ONE, name="long", max_runtime_s=3000))
    told = await stage.told(long, "waiting")
    assert told.reason is not None
    assert told.reason.code is ReasonCode.RESERVED
    short = await stage.submit(spec(**ONE, name="short", max_runtime_s=60))
    await stage.told(short, "placed")
    running = await stage.explain(first.job_id)
    assert (running.waits, running.state, running.leaving) == (False, "running", [])


async def test_who_has_no_room_kept_is_told_when_it_could_be_at_the_earliest(stage: Stage) -> None:
    stage.rules(plan={"reservations": 0})
    await stage.read("policy")
    await stage.ready("central-1")
    first, _ = await stage.running("central-1", max_runtime_s=600)
    waits = await stage.submit(spec(name="waits"))
    await stage.told(waits, "waiting")
    submitted = (await stage.job(first.job_id)).job.submitted_at
    for said in ((await stage.explain("waits")).forecast, (await stage.dry_run(spec())).forecast):
        assert said is not None
        assert said.starts_at is not None
        assert timedelta(seconds=590) < said.starts_at - submitted < timedelta(seconds=700)
        assert said.basis.startswith("at the earliest")
        assert said.nodes == []


async def test_jobs_of_others_are_named_to_those_who_may_see_them_only(stage: Stage) -> None:
    await stage.ready("central-1")
    first, _ = await stage.running("central-1")
    own = await stage.submit(spec(tenant="beta", name="own"))
    await stage.told(own, "waiting")
    for tenant, job_id in (("beta", None), ("_", first.job_id)):
        leaving = (await stage.explain("own", tenant=tenant)).leaving
        assert [(one.node, one.card_milli, one.job_id) for one in leaving] == [("central-1", 2000, job_id)]
    with pytest.raises(Problem) as caught:
        await stage.explain("own", tenant="acme")
    assert caught.value.code is ProblemCode.NOT_FOUND


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.PLACED),
        ({"resources": {"cards": 1, "share_milli": 300}}, Verdict.PLACED),
        ({"members": 2}, Verdict.WAITS),
        ({"resources": {"cards": 3}}, Verdict.REFUSED),
        ({"window": "never"}, Verdict.REFUSED),
    ],
    ids=["whole", "share", "gang", "no such node", "window"],
)
async def test_a_dry_run_says_what_then_happens(stage: Stage, changes: dict[str, Any], verdict: Verdict) -> None:
    await stage.ready("central-1", "central-2")
    busy = await stage.submit(spec(**ONE, name="busy"))
    await stage.told(busy, "placed")
    job = spec(**changes)
    said = await stage.dry_run(job)
    assert said.verdict == verdict
    assert await stage.db.fetchval("SELECT count(*) FROM scheduler.jobs") == 1
    assert said == (await stage.dry_run(job)).model_copy(update={"as_of": said.as_of}), "nothing of it is kept"
    await stage.submit(job, id="real")
    if verdict is Verdict.REFUSED:
        assert (await stage.refused("real")).reason == said.reason
    elif verdict is Verdict.PLACED:
        placed = await stage.told(job, "placed")
        assert placed.attempt is not None
        assert placed.attempt.members == said.members
    else:
        waiting = await stage.told(job, "waiting")
        assert waiting.reason == said.reason
        why = await stage.explain(job.job_id)
        assert (why.position, why.constraint, why.short) == (said.position, said.constraint, said.short)


async def test_a_dry_run_of_anothers_job_is_a_problem(stage: Stage) -> None:
    await stage.ready("central-1")
    with pytest.raises(Problem, match="ask for your own tenant's jobs"):
        await stage.client.request(registry.QUERY_DRY_RUN, DryRunQuery(spec=spec()), key="beta", timeout_s=PATIENCE_S)


async def test_quotas_count_what_is_held_what_may_be_used_and_what_is_borrowed(stage: Stage) -> None:
    stage.tenant("acme", quotas={"guarantee_cards": 1}, cohort="research")
    stage.tenant("beta", quotas={"guarantee_cards": 1}, cohort="research")
    await stage.read("tenants")
    await stage.ready("central-1")
    job, run = await stage.running("central-1", max_runtime_s=600)
    waits = await stage.submit(spec(**ONE, max_runtime_s=100))
    await stage.told(waits, "waiting")
    (mine,) = (await quota(stage)).tenants
    assert (mine.tenant, mine.cohort, mine.suspended, mine.top_priority) == ("acme", "research", False, "online")
    hours, cards, jobs = mine.lines
    assert hours.used + hours.committed == 2 * 600_000 + 100_000
    assert 0 < hours.used < 600_000
    assert hours.limit == 50 * 3_600_000
    assert (cards.resource, cards.used, cards.committed) == (QuotaResource.CARD_MILLI, 2000, 1000)
    assert (cards.limit, cards.guaranteed, cards.borrowed) == (16_000, 1000, 1000)
    assert (jobs.used, jobs.committed, jobs.limit) == (1, 1, 20)
    await stage.node("central-1").exited(run)
    await stage.told(job, "finished")
    await stage.told(waits, "placed")

    async def settled() -> bool:
        (told,) = (await quota(stage)).tenants
        return told.lines[1].used == 1000 and told.lines[1].borrowed == 0

    await until(settled, PATIENCE_S, "the cards to be counted")
    page = await quota(stage, "_", limit=1)
    assert ([one.tenant for one in page.tenants], page.cursor) == (["acme"], "acme")
    page = await quota(stage, "_", limit=1, cursor=page.cursor)
    assert ([one.tenant for one in page.tenants], page.cursor) == (["beta"], None)
    with pytest.raises(Problem) as caught:
        await quota(stage, "nobody")
    assert caught.value.code is ProblemCode.NOT_FOUND


async def test_the_queue_is_in_the_order_of_turns_page_by_page(stage: Stage) -> None:
    await stage.ready("central-1")
    await stage.running("central-1")
    jobs: list[JobSpec] = []
    for name, priority in (("third", "normal"), ("fourth", "batch"), ("second", "normal"), ("first", "online")):
        jobs.append(await stage.submit(spec(name=name, priority=priority, tenant="acme")))
        await stage.told(jobs[-1], "waiting")
    names = ["first", "third", "second", "fourth"]

    async def all_there() -> bool:
        return (await queue(stage)).waiting == len(jobs)

    await until(all_there, PATIENCE_S, "all jobs to be in the queue")
    page = await queue(stage)
    assert [job.name for job in page.jobs] == names
    assert [job.position for job in page.jobs] == [1, 2, 3, 4]
    assert all(job.reason is not None and job.waits_since == job.submitted_at for job in page.jobs)
    seen: list[str] = []
    cursor: str | None = None
    while len(seen) == 0 or cursor is not None:
        page = await queue(stage, "acme", limit=3, cursor=cursor)
        seen += [job.name for job in page.jobs]
        cursor = page.cursor
    assert seen == names
    assert (await queue(stage, "beta")).jobs == []
    with pytest.raises(Problem, match="pass the cursor of the page before"):
        await queue(stage, cursor="x")


async def test_work_starts_when_its_window_opens(stage: Stage) -> None:
    """S11."""
    await stage.ready("central-1")
    now = SystemClock().now()
    other = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[(now.weekday() + 3) % 7]
    stage.rules(windows={"nights": [{"days": [other], "from": "01:00", "to": "02:00"}]})
    await stage.read("policy")
    job = await stage.submit(spec(window="nights"))
    waiting = await stage.told(job, "waiting")
    assert waiting.reason is not None
    assert waiting.reason.code is ReasonCode.WAITING_FOR_WINDOW
    why = await stage.explain(job.job_id)
    assert why.constraint == Constraint.WINDOW
    assert why.forecast is not None
    assert why.forecast.starts_at is not None
    assert (why.forecast.starts_at.hour, why.forecast.starts_at.minute) == (1, 0)
    [queued] = (await queue(stage)).jobs
    assert queued.forecast == why.forecast
    stage.rules(version=2, windows={"nights": [{"from": "00:00", "to": "24:00"}]})
    await stage.told(job, "placed")


async def test_an_image_is_listed_and_its_tag_stands_for_one_commit(stage: Stage) -> None:
    """S8."""
    stage.tenant("acme", images=["registry.example/vision/*"])
    await stage.read("tenants")
    await stage.ready("central-1")
    image = {"reference": "registry.example/vision/train:1", "commit": "0d6c2cf7"}
    first = await stage.submit(spec(image=image))
    await stage.told(first, "placed")
    await stage.submit(spec(image={"reference": "docker.example/any"}), id="unlisted")
    assert (await stage.refused("unlisted")).reason.code is ReasonCode.IMAGE_NOT_ALLOWED
    await stage.submit(spec(image=image | {"commit": "1111111"}), id="other code")
    reason = (await stage.refused("other code")).reason
    assert f"stands for commit 0d6c2cf7 since job {first.job_id}" in reason.message
    await stage.told(await stage.submit(spec(image=image)), "waiting")
