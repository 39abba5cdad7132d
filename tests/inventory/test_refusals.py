"""What inventory refuses, in what words, and what it does with the node meanwhile."""

from contracts import registry
from contracts.deadletters import DeadReason
from contracts.nodes import NodeAnnounced, NodePhase
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from tests.inventory.harness import PATIENCE_S, FakeAgent, Stage
from tests.waiting import until


async def announce_as(agent: FakeAgent, key: str) -> None:
    body = NodeAnnounced(facts=agent.facts(), incarnation=new_id(), announced_at=SystemClock().now())
    await agent.client.publish(registry.NODES_ANNOUNCED, body, key=key, subject=key, actor="agent/x")


async def test_announcement_under_another_name_is_a_dead_letter(stage: Stage) -> None:
    await announce_as(stage.agent("b"), "a")
    (letter,) = await stage.dead_letters(1)
    assert (letter.body.reason, letter.body.consumer) == (DeadReason.KEY_MISMATCH, "inventory-nodes-announced")
    await stage.join("b")
    assert await stage.states() == {"b": "ready"}


async def test_heartbeats_that_name_another_node_make_suspect_and_one_dead_letter(stage: Stage) -> None:
    agent = await stage.join("a")
    await agent.stop()
    agent.beats(node="b")
    state = await stage.told("a", "suspect")
    assert "the body names 'b'" in state.reason
    await stage.watched(3)
    assert stage.story("a") == ["graded", "suspect"], "it is heard, so it is not lost"
    await agent.stop()
    agent.beats()
    await stage.told("a", "returned")
    letters = await stage.dead_letters(1)
    count = await stage.db.fetchval("SELECT count(*) FROM inventory.outbox WHERE stream = 'DEADLETTERS'")
    assert ([letter.body.reason for letter in letters], count) == ([DeadReason.KEY_MISMATCH], 1)


async def test_absurd_lease_is_refused_and_harms_no_other_node(stage: Stage) -> None:
    agent = stage.agent("a")
    other = await stage.join("b")
    await agent.announce()
    agent.beats(lease_s=2**63 - 1)
    state = await stage.told("a", "suspect")
    assert "correct the agent's FARSIDE_LEASE_S" in state.reason
    await stage.watched(1)
    assert stage.story("b") == ["graded"]
    await other.stop()


async def test_unannounced_node_is_logged_and_not_listed(stage: Stage) -> None:
    stage.agent("ghost").beats()
    await until(lambda: stage.inventory.said("heartbeat.unannounced"), PATIENCE_S)
    assert await stage.states() == {}


async def test_second_agent_under_one_name_makes_the_node_suspect(stage: Stage) -> None:
    first = await stage.join("a")
    second = stage.agent("a")
    await second.announce()
    second.beats()
    state = await stage.told("a", "suspect")
    assert "two agents claim the name a" in state.reason
    assert first.incarnation in state.reason
    assert second.incarnation in state.reason
    await first.stop()
    back = await stage.told("a", "returned")
    assert back.incarnation == second.incarnation


async def test_old_agent_alone_is_never_lost(stage: Stage) -> None:
    first = await stage.join("a")
    second = stage.agent("a")
    await second.announce()
    await stage.told("a", "suspect")
    await stage.watched(3.5)
    assert "lost" not in stage.story("a")
    await first.stop()
    await stage.told("a", "lost")


async def test_card_of_another_node_is_refused_until_that_node_is_lost(stage: Stage) -> None:
    old = await stage.join("old", "GPU-1")
    await stage.join("other", "GPU-9")
    renamed = stage.agent("new", "GPU-1")
    await renamed.announce()
    (letter,) = await stage.dead_letters(1)
    assert letter.body.reason is DeadReason.REFUSED
    assert "card GPU-1, which node old (ready) has" in letter.body.message
    await old.stop()
    await stage.told("old", "lost")
    await renamed.restart()
    renamed.beats()
    await stage.told("new", "graded")
    moved = await stage.told("old", "lost", after=3)
    assert moved.reason == "its cards are now on node new"
    old.beats()
    await stage.watched(1)
    assert (await stage.states())["old"] == "lost"
    await renamed.stop()
    await stage.told("new", "lost")
    await old.restart()
    back = await stage.told("old", "returned")
    assert back.state is NodePhase.READY


async def test_refused_announcement_passes_when_replayed_later(stage: Stage) -> None:
    old = await stage.join("old", "GPU-1")
    await stage.join("other")
    renamed = stage.agent("new", "GPU-1")
    await renamed.announce()
    (letter,) = await stage.dead_letters(1)
    await old.stop()
    await stage.told("old", "lost")
    headers = dict(letter.body.headers) | {"farside-subject": letter.body.subject, "Nats-Msg-Id": new_id()}
    await stage.client.js.publish(
        registry.replay_subject(letter.body.consumer), letter.body.data, stream="REPLAYS", headers=headers
    )
    await stage.told("new", "graded")
