"""What would let a job start, asked of a running scheduler: true also where no end of a job helps (SC16)."""

from typing import Any

import pytest

from contracts import registry
from contracts.attempts import ExitCause
from contracts.base import ReasonCode
from contracts.jobs import JobSpec
from contracts.nodes import NodePhase
from contracts.queue import Constraint, ExplainReply, QueueQuery, Verdict
from tests.scheduler.harness import PATIENCE_S, Stage, spec
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)
ONE: dict[str, Any] = {"resources": {"cards": 1}}


async def explained(stage: Stage, job: JobSpec, code: ReasonCode, words: str) -> ExplainReply:
    """Submit a job; what is said once the reason has this code and what frees the job these words."""
    await stage.submit(job)
    await stage.told(job, "waiting")
    said: list[ExplainReply] = []

    async def there() -> bool:
        said[:] = [await stage.explain(job.job_id)]
        reason = said[0].reason
        return reason is not None and reason.code == code and words in said[0].frees

    await until(there, PATIENCE_S, f"{job.name} to wait for {code}, freed by {words!r}; at last {said}")
    return said[0]


async def test_a_gang_that_no_node_could_hold_is_told_so_before_and_after_it_is_submitted(stage: Stage) -> None:
    await stage.ready("central-1", "central-2")
    busy, _ = await stage.running("central-1")
    together = spec(name="together", members=3, topology={"level": "node", "required": True}, **ONE)
    said = await stage.dry_run(together)
    assert (said.verdict, said.constraint, said.short) == (Verdict.WAITS, Constraint.TOPOLOGY, 1)
    assert said.reason is not None
    assert (said.reason.code, said.reason.resource) == (ReasonCode.WAITING_FOR_NODES, "members_per_node")
    assert (said.reason.asked, said.reason.allowed) == (3, 2)
    assert (
        said.frees
        == "no end of a job would do: it takes fewer members, `topology` without `required`, or a larger node"
    )
    assert said.leaving == []
    assert said.forecast is not None
    assert (said.forecast.starts_at, said.forecast.basis) == (None, "not known: no end of a job would make room enough")
    await stage.submit(together)
    await stage.told(together, "waiting")
    why = await stage.explain("together")
    assert (why.reason, why.frees, why.leaving, why.constraint) == (said.reason, said.frees, [], said.constraint)
    assert why.tenant_share_milli is not None
    assert why.priority == "normal"
    assert busy.name == "digits"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cordoned": True}, "central-2 is cordoned: `farside node uncordon central-2` ends it"),
        ({"state": NodePhase.DRAINING}, "central-2 is drained: `farside node uncordon central-2` ends it"),
        ({"state": NodePhase.QUARANTINED}, "central-2 is quarantined: `farside node central-2` names the fault"),
        ({"state": NodePhase.LOST}, "central-2 is lost: it is back when its agent reports"),
    ],
    ids=["cordoned", "drained", "quarantined", "lost"],
)
async def test_a_node_that_is_not_ready_is_named_with_its_state(
    stage: Stage, changes: dict[str, Any], words: str
) -> None:
    await stage.ready("central-1", "central-2")
    await stage.node("central-2").is_("graded", **changes)
    why = await explained(stage, spec(name="pair", members=2), ReasonCode.WAITING_FOR_NODES, words)
    assert why.frees.startswith("a return of nodes that are not ready: ")
    assert why.reason is not None
    assert why.reason.message.endswith("; with the 1 not ready they would")
    assert why.forecast is not None
    assert (why.forecast.starts_at, why.forecast.basis) == (None, "not known: when nodes that are not ready return")


async def test_behind_a_cohorts_bound_its_tenants_jobs_are_named_and_when_they_are_over(stage: Stage) -> None:
    for name in ("acme", "beta"):
        stage.tenant(name, quotas={"guarantee_cards": 1, "cards": 4}, cohort="research")
    await stage.read("tenants")
    await stage.ready("central-1", "central-2")
    lent, _ = await stage.running("central-1", tenant="beta", max_runtime_s=600, **ONE)
    own, _ = await stage.running("central-1", max_runtime_s=900, **ONE)
    why = await explained(stage, spec(name="more", **ONE), ReasonCode.WAITING_FOR_QUOTA, "acme, beta (cohort research)")
    assert [one.job_id for one in why.leaving] == [None, own.job_id], "that of another tenant has no name"
    assert why.forecast is not None
    assert why.forecast.starts_at is not None
    submitted = (await stage.job(lent.job_id, "beta")).job.submitted_at
    assert 590 < (why.forecast.starts_at - submitted).total_seconds() < 700
    assert "jobs of cohort research are over by the longest run" in why.forecast.basis


async def test_who_counts_against_a_limit_is_named_whatever_cards_it_holds(stage: Stage) -> None:
    stage.tenant("acme", quotas={"concurrent_jobs": 1})
    await stage.read("tenants")
    await stage.ready("central-1", "remote-1")
    host: dict[str, Any] = {"kind": "batch", "resources": {"cpu_milli": 100}}
    first, _ = await stage.running("remote-1", max_runtime_s=600, **host)
    words = "`concurrent_jobs` in the file of tenant acme"
    why = await explained(stage, spec(name="cards", **ONE), ReasonCode.WAITING_FOR_QUOTA, words)
    assert [(one.node, one.card_milli, one.job_id) for one in why.leaving] == [("remote-1", 0, first.job_id)]
    assert why.forecast is not None
    assert why.forecast.starts_at is not None


async def test_the_queue_tells_what_part_of_a_card_is_asked_and_what_the_tenant_has_had(stage: Stage) -> None:
    await stage.ready("central-1")
    await stage.running("central-1")
    half = await stage.submit(spec(name="half", resources={"cards": 1, "share_milli": 500}))
    await stage.told(half, "waiting")
    bytes_ = await stage.submit(spec(name="bytes", resources={"cards": 1, "share_memory_bytes": 2**30}))
    await stage.told(bytes_, "waiting")
    page = await stage.client.request(registry.QUERY_QUEUE, QueueQuery(), key="_", timeout_s=PATIENCE_S)
    asked = {job.name: (job.cards, job.share_milli, job.share_memory_bytes) for job in page.jobs}
    assert asked == {"half": (1, 500, None), "bytes": (1, None, 2**30)}
    assert {(job.tenant_share_milli or 0) > 0 for job in page.jobs} == {True}


async def test_those_on_nodes_that_take_nothing_are_not_offered_as_who_holds_what_is_short(stage: Stage) -> None:
    await stage.ready("central-1", "central-2")
    first, _ = await stage.running("central-1")
    await stage.running("central-2")
    await stage.node("central-2").is_("graded", cordoned=True)
    words = "or a return of nodes that are not ready: central-2 is cordoned: `farside node uncordon central-2` ends it"
    why = await explained(stage, spec(name="next", **ONE), ReasonCode.WAITING_FOR_CARDS, words)
    assert [one.job_id for one in why.leaving] == [first.job_id]


async def test_who_holds_processors_is_told_where_those_are_short(stage: Stage) -> None:
    await stage.ready("remote-1")
    host: dict[str, Any] = {"kind": "batch", "resources": {"cpu_milli": 5000}}
    busy, _ = await stage.running("remote-1", **host)
    await stage.running("remote-1", kind="batch", **ONE)
    why = await explained(stage, spec(name="next", **host), ReasonCode.WAITING_FOR_NODES, "an end of a job on nodes")
    assert (why.constraint, why.short) == (Constraint.HOST, 2000)
    assert [one.job_id for one in why.leaving] == [busy.job_id]


async def test_what_somebody_must_do_first_is_what_no_start_rests_on(stage: Stage) -> None:
    await stage.ready("central-1")
    job = spec(name="reads", dataset={"name": "digits", "version": "v9"})
    why = await explained(stage, job, ReasonCode.WAITING_FOR_DATASET, "")
    assert why.forecast is not None
    assert (why.forecast.starts_at, why.forecast.basis) == (None, "not known: when its dataset is staged")


async def test_what_is_left_of_a_damaged_gangs_place_is_kept_and_the_missing_node_named(stage: Stage) -> None:
    await stage.ready("central-1", "central-2")
    gang = await stage.submit(spec(name="gang", members=2))
    for name in ("central-1", "central-2"):
        await stage.node(name).runs_it(gang.job_id)
    await stage.told(gang, "running")
    await stage.node("central-2").is_("lost")
    await stage.node("central-1").exited(await stage.node("central-1").offer(gang.job_id), ExitCause.STOPPED, None)
    said: list[ExplainReply] = []

    async def kept() -> bool:
        said[:] = [await stage.explain(gang.job_id)]
        return said[0].waits and said[0].forecast is not None and bool(said[0].forecast.nodes)

    await until(kept, PATIENCE_S, f"what is left to be kept; at last {said}")
    forecast = said[0].forecast
    assert forecast is not None
    assert (forecast.starts_at, forecast.nodes) == (None, ["central-1", "central-2"])
    assert forecast.basis.startswith("not known: nodes that are not ready; what is left of its place is kept for ")
    assert forecast.basis.endswith(" (central-2 is lost: it is back when its agent reports)")


async def test_room_that_is_free_but_kept_is_no_start_to_expect(stage: Stage) -> None:
    await stage.ready("central-1")
    await stage.running("central-1", max_runtime_s=600, **ONE)
    pair = await stage.submit(spec(name="pair"))
    await stage.told(pair, "waiting")
    why = await explained(stage, spec(name="long", max_runtime_s=3000, **ONE), ReasonCode.RESERVED, "")
    assert why.forecast is not None
    assert (why.forecast.starts_at, why.forecast.basis) == (
        None,
        "not known: what it could have is kept for a job that comes before it",
    )


async def test_a_pool_that_keeps_a_job_out_is_named_with_the_field_that_lets_it_in(stage: Stage) -> None:
    await stage.ready("central-1", "central-2")
    stage.rules(pools={"big": {"nodes": ["central-2"]}})
    await stage.read("policy")
    gang = spec(name="gang", members=2)
    said = await explained(stage, gang, ReasonCode.WAITING_FOR_NODES, "pool big under `pools` in the tenant's file")
    assert said.reason is not None
    assert said.reason.message.endswith("; pool big has such nodes, but the tenant's file does not name that pool")
    assert (said.leaving, said.constraint) == ([], Constraint.CARDS)
    stage.tenant("acme", pools=["big"])
    await stage.read("tenants")
    await stage.told(gang, "placed")
