"""The admission ledger as metering reads it: cards of an attempt's members, from the claim to the end."""

import pytest

from contracts import registry
from contracts.requests import HoldingsPage, HoldingsQuery, ProblemCode
from libs.bus import Problem
from tests.scheduler.harness import PATIENCE_S, Stage, spec


async def ask(stage: Stage, job_id: str, key: str = "_", cursor: str | None = None) -> HoldingsPage:
    query = HoldingsQuery(job_ids=[job_id], cursor=cursor)
    return await stage.client.request(registry.QUERY_HOLDINGS, query, key=key, timeout_s=PATIENCE_S)


async def test_a_holding_lasts_from_the_claim_to_the_exit_and_is_its_tenants_own(stage: Stage) -> None:
    await stage.ready("central-1")
    job = await stage.submit(spec())
    node = stage.node("central-1")
    await node.offer(job.job_id)
    assert (await ask(stage, job.job_id)).holdings == []
    run = await node.runs_it(job.job_id)
    await stage.told(job, "running")
    [held] = (await ask(stage, job.job_id)).holdings
    assert (held.job_id, held.tenant, held.attempt, held.member, held.cards) == (job.job_id, "acme", 1, 0, 2)
    assert held.held_to is None
    await node.exited(run)
    await stage.told(job, "finished")
    page = await ask(stage, job.job_id, key="acme")
    [ended] = page.holdings
    assert ended.held_from == held.held_from
    assert ended.held_to is not None
    assert ended.held_to > held.held_from
    assert page.cursor is None
    assert (await ask(stage, job.job_id, key="beta")).holdings == []
    assert (await ask(stage, job.job_id, cursor=f"{job.job_id}/1/0")).holdings == []
    with pytest.raises(Problem, match="pass the cursor of the page before") as refused:
        await ask(stage, job.job_id, cursor="1/2")
    assert refused.value.code is ProblemCode.INVALID
