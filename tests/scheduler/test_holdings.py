"""The admission ledger as metering asks for it: whose, in which order, page by page, open or ended."""

import signal

import pytest

from contracts import registry
from contracts.jobs import JobSpec
from contracts.registry import NO_KEY
from contracts.requests import HoldingsPage, HoldingsQuery, ProblemCode
from libs.bus import Problem
from libs.kit.ids import new_id
from tests.scheduler.harness import PATIENCE_S, Stage, spec
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)

MANY = 2500
_FILL = """
    INSERT INTO scheduler.holdings (job_id, attempt, member, tenant, cards, held_from, held_to)
    SELECT $1, 1 + number % 3, number / 3, $2, 1, now() - interval '1 hour',
      CASE WHEN number % 2 = 0 THEN now() END
    FROM generate_series(0, $3 - 1) AS number
"""


async def ask(stage: Stage, *job_ids: str, key: str = "acme", cursor: str | None = None) -> HoldingsPage:
    query = HoldingsQuery(job_ids=list(job_ids), cursor=cursor)
    return await stage.client.request(registry.QUERY_HOLDINGS, query, key=key, timeout_s=PATIENCE_S)


async def test_a_holding_is_open_from_the_claim_until_the_end_and_one_without_claim_is_none(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    await stage.node("central-1").offer(job.job_id)
    assert (await ask(stage, job.job_id)).holdings == []
    run = await stage.node("central-1").runs_it(job.job_id)
    [held] = (await ask(stage, job.job_id)).holdings
    assert (held.job_id, held.attempt, held.member, held.cards, held.tenant) == (job.job_id, 1, 0, 2, "acme")
    assert held.held_to is None
    await stage.node("central-1").exited(run)
    await stage.told(job, "finished")
    [ended] = (await ask(stage, job.job_id)).holdings
    assert ended.held_from == held.held_from
    assert ended.held_to is not None
    assert ended.held_to >= ended.held_from


async def test_a_holding_is_shown_to_its_tenant_and_to_those_who_may_see_all(stage: Stage) -> None:
    await stage.ready("central-1")
    job: JobSpec = await stage.submit(spec())
    await stage.node("central-1").runs_it(job.job_id)
    assert (await ask(stage, job.job_id, key="beta")).holdings == []
    assert len((await ask(stage, job.job_id, new_id(), key=NO_KEY)).holdings) == 1


async def test_pages_hold_every_holding_once_in_order(stage: Stage) -> None:
    jobs = [new_id(), new_id()]
    for job_id in jobs:
        await stage.db.execute(_FILL, job_id, "acme", MANY)
    await stage.db.execute(_FILL, new_id(), "acme", 5)
    found: list[tuple[str, int, int]] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = await ask(stage, *jobs, cursor=cursor)
        found += [(one.job_id, one.attempt, one.member) for one in page.holdings]
        cursor, pages = page.cursor, pages + 1
    assert pages == 2 * MANY // 1000
    assert found == sorted({(job, 1 + number % 3, number // 3) for job in jobs for number in range(MANY)})


@pytest.mark.parametrize(
    "cursor", ["", "x", "a/b/c", "a/1", "a/1/2/3", "a/-1/2", f"a/{2**63}/0", f"a/1/{10**40}", "a/²/1", "a/ 1/1"]
)
async def test_a_cursor_of_somebody_else_is_a_problem_with_a_remedy(stage: Stage, cursor: str) -> None:
    with pytest.raises(Problem) as caught:
        await ask(stage, new_id(), cursor=cursor)
    assert caught.value.code is ProblemCode.INVALID
    assert f"cursor is {cursor!r}: pass the cursor of the page before" in caught.value.message


async def test_the_ledger_is_answered_by_the_one_that_leads_next(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    await stage.node("central-1").runs_it(job.job_id)
    before = await ask(stage, job.job_id)
    stage.scheduler.end(signal.SIGKILL)
    stage.standby.start()
    await until(lambda: stage.standby.said("app.leading"), PATIENCE_S, "the standby to lead")
    assert await ask(stage, job.job_id) == before
