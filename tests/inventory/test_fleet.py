"""Orders, declared nodes, grades and capacity, over the real bus."""

import pytest

from contracts import registry
from contracts.base import Tier
from contracts.fleet import (
    AssessRequest,
    CapacityQuery,
    DeclaredNode,
    DeclaredQuery,
    DeclareRequest,
    GradesQuery,
    HistoryQuery,
    NodeGrade,
    NodeQuery,
)
from contracts.jobs import AttemptState, JobKind, JobPhase, JobSpec, JobState, Member, Resources
from contracts.nodes import LiveAttempt, MonthlyCost, NodeLimits, NodePhase
from contracts.registry import Message
from contracts.requests import ProblemCode
from libs.bus import Problem
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from tests.inventory.harness import Stage
from tests.waiting import until

COST = MonthlyCost(currency="cny", power_micro=1_000_000, depreciation_micro=2_000_000)


def job(job_id: str, version: int, state: JobPhase, node: str, *, critical: bool = False) -> JobState:
    now = SystemClock().now()
    spec = JobSpec(
        job_id=job_id,
        tenant="acme",
        name="train",
        kind=JobKind.TRAINING,
        command=["true"],
        resources=Resources(cards=1),
        max_runtime_s=60,
        preemptible=not critical,
    )
    member = Member(index=0, node=node, tier=Tier.CENTRAL, cards=[0])
    return JobState(
        job_id=job_id,
        tenant="acme",
        spec=spec,
        version=version,
        state=state,
        attempt=AttemptState(number=1, generation=1, members=[member]),
        submitted_at=now,
        updated_at=now,
    )


async def say(stage: Stage, message: Message[JobState], body: JobState) -> None:
    """As the scheduler would."""
    await stage.client.publish(
        message, body, key=body.tenant, subject=body.job_id, sequence=body.version, actor="scheduler"
    )


async def grade(stage: Stage, node: str, promised: int) -> NodeGrade:
    """The grade of a node once so many thousandths of cards are promised there."""

    async def found() -> NodeGrade | None:
        for one in (await stage.ask(registry.QUERY_GRADES, GradesQuery())).grades:
            if one.node == node and one.cards_promised_milli == promised:
                return one
        return None

    one = await until(found, 30, f"{promised} to be promised on {node}")
    assert one is not None
    return one


# ---- orders ----------------------------------------------------------------------------------------------------------


async def test_cordon_drain_and_uncordon_are_told_and_kept_over_a_new_start(stage: Stage) -> None:
    agent = await stage.join("a", "GPU-1")
    await stage.order(registry.NODES_CORDON, "a", "disk swap")
    cordoned = await stage.told("a", "graded", after=1)
    assert (cordoned.state, cordoned.cordoned) == (NodePhase.READY, True)
    assert cordoned.reason == "cordoned by operator/ops: disk swap"
    await stage.order(registry.NODES_DRAIN, "a", "rack 7")
    assert (await stage.told("a", "graded", after=2)).state is NodePhase.DRAINING
    await agent.restart()
    again = await stage.told("a", "graded", after=3)
    assert (again.state, again.cordoned) == (NodePhase.DRAINING, True)
    assert "draining by operator/ops: rack 7" in again.reason
    await stage.order(registry.NODES_UNCORDON, "a", "done")
    free = await stage.told("a", "graded", after=4)
    assert (free.state, free.cordoned) == (NodePhase.READY, False)
    assert stage.last("a").actor == "operator/ops"


async def test_a_node_retires_when_its_work_has_ended_and_its_silence_is_nobodys_loss(stage: Stage) -> None:
    agent = await stage.join("a", "GPU-1")
    await stage.join("b", "GPU-2")
    agent.attempts = [LiveAttempt(job_id=new_id(), attempt=1, member=0)]

    async def seen() -> bool:
        return bool((await stage.page()).nodes[0].attempts)

    await until(seen, 20, "the attempt to be seen")
    await stage.order(registry.NODES_RETIRE, "a", "sold")
    assert (await stage.told("a", "graded", after=1)).state is NodePhase.DRAINING
    await stage.watched(1)
    assert stage.last("a").body.version == 2
    agent.attempts = []
    retired = await stage.told("a", "graded", after=2)
    assert (retired.state, retired.reason) == (
        NodePhase.RETIRED,
        "retired, nothing runs there: to be retired by operator/ops: sold",
    )
    await agent.stop()
    await stage.watched(4)
    assert stage.story("a") == ["graded", "graded", "graded"]
    await stage.order(registry.NODES_UNCORDON, "a", "bought back")
    await stage.told("a", "lost")


async def test_an_order_about_an_unknown_node_is_a_dead_letter(stage: Stage) -> None:
    await stage.order(registry.NODES_CORDON, "nowhere")
    [letter] = await stage.dead_letters(1)
    assert letter.body.message == "no agent has announced node nowhere, so there is nothing to cordon"


# ---- declared --------------------------------------------------------------------------------------------------------


def declared(name: str, **more: object) -> DeclaredNode:
    body = {"node": name, "cpu_milli": 1000, "memory_bytes": 2**30, "cards": 1, "card_model": "H100", **more}
    return DeclaredNode.model_validate(body)


async def test_a_declared_node_is_no_node_until_it_is_announced_and_then_they_are_compared(stage: Stage) -> None:
    nodes = [declared("a", cards=2, rack="r7"), declared("b")]
    told = await stage.ask(registry.CALL_DECLARE, DeclareRequest(nodes=nodes, reason="audit"))
    assert (told.added, told.changed, told.unchanged) == (2, 0, 0)
    again = await stage.ask(registry.CALL_DECLARE, DeclareRequest(nodes=nodes, reason="audit"))
    assert (again.added, again.changed, again.unchanged) == (0, 0, 2)
    assert (await stage.page()).nodes == []
    await stage.join("a", "GPU-1")
    assert (await stage.told("a", "graded")).facts.rack == "r7", "the agent does not know its rack"
    page = await stage.ask(registry.QUERY_DECLARED, DeclaredQuery())
    assert [(one.node.node, one.announced, one.differences) for one in page.nodes] == [
        ("a", True, ["cards: declared 2, announced 1"]),
        ("b", False, []),
    ]
    moved = DeclareRequest(nodes=[declared("a", rack="r8")], withdrawn=["b"], reason="moved")
    assert (await stage.ask(registry.CALL_DECLARE, moved)).withdrawn == 1
    state = await stage.told("a", "graded", after=1)
    assert (state.facts.rack, state.reason) == ("r8", "declared otherwise: moved")
    history = await stage.ask(registry.QUERY_HISTORY, HistoryQuery(node="b"))
    assert [(one.event, one.reason) for one in history.changes] == [("withdrawn", "moved"), ("declared", "audit")]


async def test_a_declaration_that_completes_nothing_of_a_node_is_kept_and_not_told_of_it(stage: Stage) -> None:
    await stage.join("a", "GPU-1")
    await stage.order(registry.NODES_CORDON, "a", "disk swap")
    noted = await stage.told("a", "graded", after=1)
    for first in (True, False):
        known = DeclareRequest(nodes=[declared("a")], reason="audit")
        told = await stage.ask(registry.CALL_DECLARE, known)
        assert (told.added, told.unchanged) == (int(first), int(not first))
        [state] = (await stage.page()).nodes
        assert (state.version, state.reason) == (noted.version, "cordoned by operator/ops: disk swap")
    gone = DeclareRequest(withdrawn=["a"], reason="not ours")
    assert (await stage.ask(registry.CALL_DECLARE, gone)).withdrawn == 1
    assert (await stage.page()).nodes[0].version == noted.version
    history = await stage.ask(registry.QUERY_HISTORY, HistoryQuery(node="a"))
    assert [one.event for one in history.changes] == ["withdrawn", "declared", "graded", "graded"]


async def test_a_node_nobody_knows_is_not_found(stage: Stage) -> None:
    for request, body in ((registry.QUERY_NODE, NodeQuery(node="x")), (registry.QUERY_HISTORY, HistoryQuery(node="x"))):
        with pytest.raises(Problem, match="there is no node x") as caught:
            await stage.ask(request, body)
        assert caught.value.code is ProblemCode.NOT_FOUND


async def test_limits_of_a_remote_node_follow_what_is_measured(stage: Stage) -> None:
    agent = stage.agent("far", "GPU-1")
    agent.more = {"tier": Tier.REMOTE, "link_mbps": 200, "power_limit_w": 1000}
    await agent.announce()
    assert (await stage.told("far", "graded")).limits == NodeLimits(link_mbps=140, power_w=700)
    await agent.report(link_mbps=100)
    state = await stage.told("far", "graded", after=1)
    assert (state.limits, state.reason) == (NodeLimits(link_mbps=70, power_w=700), "its limits were assessed anew")
    await agent.report(link_mbps=104)
    agent.beats()
    await stage.watched(1)
    assert stage.last("far").body.version == 2, "a tenth more or less is the same"


# ---- grades and capacity ---------------------------------------------------------------------------------------------


async def test_what_is_promised_used_and_idle_follows_the_scheduler(stage: Stage) -> None:
    agent = stage.agent("a", "GPU-1", "GPU-2")
    agent.more = {"generation": "volta", "cost": COST}
    await agent.announce()
    agent.beats()
    idle = await grade(stage, "a", 0)
    assert (idle.node_class, idle.releasable, idle.cost) == ("replaceable", True, COST)
    assert idle.idle_since is not None
    job_id = new_id()
    await say(stage, registry.JOBS_PLACED, job(job_id, 4, JobPhase.PLACED, "a", critical=True))
    placed = await grade(stage, "a", 1000)
    assert (placed.node_class, placed.releasable, placed.kept_because, placed.cards_used_milli) == (
        "critical_in_use",
        False,
        "runs work that may not be stopped",
        0,
    )
    assert placed.idle_since is None
    agent.attempts = [LiveAttempt(job_id=job_id, attempt=1, member=0)]

    async def used() -> bool:
        return (await grade(stage, "a", 1000)).cards_used_milli == 1000

    await until(used, 30, "the work to be seen")
    agent.attempts = []
    await say(stage, registry.JOBS_FINISHED, job(job_id, 7, JobPhase.FINISHED, "a", critical=True))
    await say(stage, registry.JOBS_PLACED, job(job_id, 5, JobPhase.PLACED, "a", critical=True))
    over = await grade(stage, "a", 0)
    assert over.idle_since is not None
    assert over.idle_since > idle.idle_since, "idle since the work ended, not since it was first seen"


async def test_an_assessment_has_a_new_version_when_it_says_something_new(stage: Stage) -> None:
    await stage.join("a", "GPU-1")
    now = await stage.ask(registry.QUERY_CAPACITY, CapacityQuery())
    assert (now.version, [(row.tier, row.nodes, row.cards) for row in now.rows]) == (None, [("central", 1, 1)])
    first = await stage.ask(registry.CALL_ASSESS, AssessRequest(reason="quarter"))
    again = await stage.ask(registry.CALL_ASSESS, AssessRequest(reason="quarter"))
    assert (first.version, again.version) == (1, 1)
    await stage.join("b", "GPU-2")
    assert (await stage.ask(registry.CALL_ASSESS, AssessRequest(reason="b came"))).version == 2
    rows = await stage.db.fetch("SELECT version, actor FROM inventory.assessments ORDER BY version")
    assert [row["version"] for row in rows] == [1, 2]
    assert rows[1]["actor"].endswith(": b came")


async def test_cards_of_a_node_that_takes_no_work_are_not_usable(stage: Stage) -> None:
    await stage.join("a", "GPU-1", "GPU-2")
    await stage.join("b", "GPU-3")
    await stage.order(registry.NODES_CORDON, "a", "disk swap")
    await stage.told("a", "graded", after=1)
    [row] = (await stage.ask(registry.CALL_ASSESS, AssessRequest(reason="a is cordoned"))).rows
    assert (row.nodes, row.cards, row.cards_usable, row.idle_cards) == (2, 3, 1, 1)
    await stage.order(registry.NODES_DRAIN, "b", "rack 7")
    await stage.told("b", "graded", after=1)
    found = await stage.ask(registry.CALL_ASSESS, AssessRequest(reason="b is draining"))
    assert [(one.cards_usable, one.headroom_kept) for one in found.tiers if one.tier == "central"] == [(0, False)]
