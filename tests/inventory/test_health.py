"""What agents report, over the real bus: checks before first work, faults, the breaker of quarantines, wrong clocks."""

from contracts import registry
from contracts.fleet import BreakersQuery, FaultReset, HistoryQuery, NodeQuery
from contracts.health import CardHealth, CheckResult, Recovery, Verdict, Xid
from contracts.nodes import NodePhase
from libs.kit.clock import SystemClock
from tests.inventory.harness import FakeAgent, Stage
from tests.waiting import until


def card(index: int, uuid: str, *codes: int, recovery: Recovery | None = None) -> CardHealth:
    now = SystemClock().now()
    xids = [Xid(code=code, count=1, first_at=now, last_at=now) for code in codes]
    return CardHealth(index=index, uuid=uuid, xids=xids, recovery=recovery)


def passed(name: str) -> CheckResult:
    return CheckResult(name=name, verdict=Verdict.PASSED)


async def checked_agent(stage: Stage, name: str) -> FakeAgent:
    """An agent that owes a check."""
    agent = stage.agent(name, f"GPU-{name}")
    agent.more = {"prechecks": ["time_sync"]}
    return agent


async def test_a_node_works_once_its_checks_have_passed_and_it_is_heard(stage: Stage) -> None:
    agent = await checked_agent(stage, "a")
    await agent.announce()
    first = await stage.told("a", "graded")
    assert (first.state, first.reason) == (NodePhase.ANNOUNCED, "announced itself; checks to come: time_sync")
    await agent.report(checks=[passed("time_sync")])
    checked = await stage.told("a", "graded", after=1)
    assert checked.state is NodePhase.CHECKED
    agent.beats()
    ready = await stage.told("a", "graded", after=2)
    assert ready.state is NodePhase.READY


async def test_a_report_that_comes_before_its_announcement_counts_with_it(stage: Stage) -> None:
    await stage.page()
    agent = await checked_agent(stage, "a")
    await agent.report(checks=[CheckResult(name="time_sync", verdict=Verdict.FAILED, detail="no server answers")])

    async def kept() -> bool:
        return await stage.db.fetchval("SELECT count(*) FROM inventory.reports") == 1

    await until(kept, 20, "the report to be kept")
    await agent.announce()
    state = await stage.told("a", "quarantined")
    assert (state.version, state.reason) == (2, "check time_sync failed: no server answers")
    await agent.report(checks=[passed("time_sync")])
    assert (await stage.told("a", "released")).state is NodePhase.CHECKED


async def test_xid_79_quarantines_until_the_node_has_booted_and_a_new_agent_does_not_hide_it(stage: Stage) -> None:
    agent = await stage.join("a", "GPU-1", "GPU-2")
    await agent.report(card(0, "GPU-1"), card(1, "GPU-2", 79))
    sick = await stage.told("a", "quarantined")
    assert (sick.state, sick.bad_cards) == (NodePhase.QUARANTINED, [1])
    assert "XID 79" in sick.reason
    await agent.restart()
    again = await stage.told("a", "graded", after=sick.version)
    assert (again.state, again.bad_cards) == (NodePhase.QUARANTINED, [1])
    assert "XID 79" in again.reason, "why it is out is told with every event"
    await agent.report(card(0, "GPU-1"), card(1, "GPU-2"), boot_id="boot-2")
    well = await stage.told("a", "released")
    assert (well.state, well.bad_cards) == (NodePhase.READY, [])


async def test_one_bad_card_shrinks_its_node_and_comes_back_when_it_was_reset(stage: Stage) -> None:
    agent = await stage.join("a", "GPU-1", "GPU-2")
    await agent.report(card(0, "GPU-1", 95, recovery=Recovery.RESET), card(1, "GPU-2"))
    state = await stage.told("a", "quarantined")
    assert (state.state, state.bad_cards) == (NodePhase.READY, [0])
    reply = await stage.ask(registry.QUERY_NODE, NodeQuery(node="a"))
    assert [(fault.code, fault.card, fault.remedy) for fault in reply.faults] == [("xid_95", 0, "reset")]
    assert reply.grade is not None
    assert (reply.grade.cards, reply.grade.cards_usable) == (2, 1)
    await agent.report(card(0, "GPU-1", recovery=Recovery.NONE), card(1, "GPU-2"))
    assert (await stage.told("a", "released")).bad_cards == []


async def test_a_fault_for_hands_is_over_when_an_operator_says_so_and_the_next_report_agrees(stage: Stage) -> None:
    agent = await stage.join("a", "GPU-1")
    await agent.report(card(0, "GPU-1", 54))
    sick = await stage.told("a", "quarantined")
    await stage.order(registry.NODES_CHECK, "a", "cable reseated")
    owed = await stage.told("a", "released")
    assert (owed.state, owed.reason) == (NodePhase.ANNOUNCED, "mended, says operator/ops: cable reseated")
    await agent.report(card(0, "GPU-1", 54))
    await stage.told("a", "graded", after=owed.version)
    ready = await stage.told("a", "graded", after=owed.version + 1)
    assert (ready.state, ready.version) == (NodePhase.READY, sick.version + 3)
    page = await stage.ask(registry.QUERY_HISTORY, HistoryQuery(node="a", limit=3))
    assert [(one.state, one.cause) for one in page.changes] == [
        ("ready", "checked"),
        ("checked", "checked"),
        ("announced", "mended"),
    ]
    assert page.cursor == "3"


async def test_many_faulty_nodes_open_a_breaker_that_only_an_operator_closes(stage: Stage) -> None:
    agents = [await stage.join(name, f"GPU-{name}") for name in "abcd"]
    await agents[0].report(card(0, "GPU-a", 79))
    await stage.told("a", "quarantined")
    for agent in agents[1:3]:
        await agent.report(card(0, f"GPU-{agent.node}", 79))
        held = await stage.told(agent.node, "graded", after=1)
        assert held.state is NodePhase.READY
        assert "held: 2 of 4 nodes found faulty, breaker at more than 25%" in held.reason
    breakers = {one.kind: one for one in (await stage.ask(registry.QUERY_BREAKERS, BreakersQuery())).breakers}
    assert (breakers["faults"].is_open, breakers["faults"].nodes, breakers["silence"].is_open) == (True, 2, False)
    assert stage.inventory.said("fault_breaker.opened")
    reset = FaultReset(reason="a wrong driver, rolled back")
    done = await stage.ask(registry.CALL_RESET, reset)
    assert (done.was_open, done.nodes) == (True, 2)
    free = await stage.told("b", "graded", after=2)
    assert "set aside" in free.reason
    assert (await stage.ask(registry.CALL_RESET, reset)).was_open is False
    await agents[3].report(card(0, "GPU-d", 79))
    await stage.told("d", "quarantined")
    assert (await stage.states()) == {"a": "quarantined", "b": "ready", "c": "ready", "d": "quarantined"}
    assert await stage.breakers(2) == [
        ("opened", "faults", 1, "inventory", "2 of 4 nodes found faulty, breaker at more than 25%"),
        ("closed", "faults", 2, "test", "a wrong driver, rolled back"),
    ]


async def test_a_node_whose_clock_is_off_is_quarantined_with_the_figure_and_released_when_it_is_right(
    stage: Stage,
) -> None:
    agent = await stage.join("a", "GPU-1")
    agent.ahead_s = 3600
    off = await stage.told("a", "quarantined")
    assert off.state is NodePhase.QUARANTINED
    assert off.reason.startswith("clock is 3")
    assert "s ahead (bound 30 s)" in off.reason
    reply = await stage.ask(registry.QUERY_NODE, NodeQuery(node="a"))
    assert reply.skew_ms is not None
    assert 3_500_000 < reply.skew_ms <= 3_600_000
    agent.ahead_s = 0
    assert (await stage.told("a", "released")).state is NodePhase.READY


async def test_a_quarantined_node_that_falls_silent_is_lost(stage: Stage) -> None:
    agent = await stage.join("a", "GPU-1")
    await stage.join("b", "GPU-2")
    await stage.join("c", "GPU-3")
    await agent.report(card(0, "GPU-1", 79))
    await stage.told("a", "quarantined")
    await agent.stop()
    lost = await stage.told("a", "lost")
    assert lost.state is NodePhase.LOST
    agent.beats()
    back = await stage.told("a", "returned")
    assert (back.state, back.bad_cards) == (NodePhase.QUARANTINED, [0])
