"""A node's life as inventory tells it, over the real bus."""

import pytest

from contracts import registry
from contracts.nodes import LiveAttempt, NodePhase
from contracts.requests import ProblemCode, StatusQuery
from libs.bus import Problem
from libs.kit.ids import new_id
from tests.inventory.harness import Stage
from tests.waiting import until


async def test_node_is_graded_suspect_lost_and_returned(stage: Stage) -> None:
    agent = await stage.join("central-1", "GPU-1", "GPU-2")
    other = await stage.join("central-2", "GPU-3")
    assert (await stage.states()) == {"central-1": "ready", "central-2": "ready"}
    await agent.stop()
    await stage.told("central-1", "suspect")
    lost = await stage.told("central-1", "lost")
    assert (lost.state, lost.requeue_held) == (NodePhase.LOST, False)
    assert "nothing heard for" in lost.reason
    agent.attempts = [LiveAttempt(job_id=new_id(), attempt=1, member=0)]
    agent.beats()
    returned = await stage.told("central-1", "returned")
    assert (returned.state, returned.attempts) == (NodePhase.READY, agent.attempts)
    assert stage.story("central-1") == ["graded", "suspect", "lost", "returned"]
    assert stage.story("central-2") == ["graded"]
    event = stage.last("central-1")
    assert (event.subject, event.sequence, event.actor) == ("central-1", 4, "inventory")
    await other.stop()


async def test_history_keeps_who_when_and_why(stage: Stage) -> None:
    agent = await stage.join("a")
    await agent.stop()
    await stage.told("a", "suspect")
    rows = await stage.db.fetch("SELECT * FROM inventory.history WHERE node = 'a' ORDER BY version")
    assert [(row["event"], row["cause"], row["actor"]) for row in rows[:2]] == [
        ("graded", "announced", "agent/a"),
        ("suspect", "silent", "inventory"),
    ]
    assert rows[0]["facts"] is not None
    assert rows[0]["at"] < rows[1]["at"]


async def test_new_agent_start_of_a_healthy_node_is_graded_again(stage: Stage) -> None:
    agent = await stage.join("a", "GPU-1")
    await agent.restart()
    state = await stage.told("a", "graded", after=1)
    assert (state.version, state.incarnation) == (2, agent.incarnation)
    await stage.watched(2)
    assert stage.story("a") == ["graded", "graded"]


async def test_new_agent_start_of_a_lost_node_returns_it(stage: Stage) -> None:
    agent = await stage.join("a")
    await agent.stop()
    await stage.told("a", "lost")
    agent.attempts = [LiveAttempt(job_id=new_id(), attempt=3, member=1)]
    await agent.restart()
    state = await stage.told("a", "returned")
    assert (state.incarnation, state.attempts) == (agent.incarnation, agent.attempts)


async def test_attempts_and_skew_of_heartbeats_are_kept(stage: Stage) -> None:
    agent = await stage.join("a")
    agent.attempts = [LiveAttempt(job_id=new_id(), attempt=1, member=0)]

    async def kept() -> bool:
        return (await stage.page()).nodes[0].attempts == agent.attempts

    await until(kept, 10, "the attempts to be kept")
    skew_ms = await stage.db.fetchval("SELECT skew_ms FROM inventory.sightings WHERE node = 'a'")
    assert -1000 < skew_ms < 1000
    assert stage.story("a") == ["graded"]


async def test_nodes_are_paged_by_name(stage: Stage) -> None:
    names = [f"n-{number}" for number in range(5)]
    for name in names:
        await stage.join(name)
    first = await stage.page(limit=2)
    second = await stage.page(first.cursor, limit=2)
    third = await stage.page(second.cursor, limit=2)
    assert [state.node for page in (first, second, third) for state in page.nodes] == names
    assert (first.cursor, third.cursor) == ("n-1", None)


async def test_pages_of_large_nodes_stay_below_the_limit_of_a_reply(stage: Stage) -> None:
    for number in range(4):
        await stage.join(f"n-{number}", *(f"GPU-{number}-{index:0200d}" for index in range(600)))
    seen: list[str] = []
    cursor = None
    for _ in range(4):
        page = await stage.page(cursor)
        seen += [state.node for state in page.nodes]
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == ["n-0", "n-1", "n-2", "n-3"]


async def test_foreign_cursor_is_refused(stage: Stage) -> None:
    await stage.join("a")
    with pytest.raises(Problem, match="pass the cursor of the page before") as caught:
        await stage.page("No Such Name")
    assert caught.value.code is ProblemCode.INVALID


async def test_status_is_served(stage: Stage) -> None:
    await stage.join("a")
    status = await stage.client.request(registry.STATUS["inventory"], StatusQuery(), key="_")
    assert (status.leader, status.parked_rows) == (True, 0)
