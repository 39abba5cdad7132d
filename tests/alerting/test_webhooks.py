"""Webhooks that are down, slow, refuse, or go away: nothing is lost, nothing told twice, and each reason is kept."""

import pytest

from contracts.alerts import AlertPhase
from tests.alerting.conftest import webhooks
from tests.alerting.scene import Node, Scene
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRING, RESOLVED = AlertPhase.FIRING, AlertPhase.RESOLVED


async def test_al3_down_and_killed_meanwhile_it_is_told_once_in_order(scene: Scene) -> None:
    node, other = Node(scene), Node(scene)
    scene.pager.stop()
    await node.lost(3)
    await other.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    waiting = await scene.notification(fired, "pager", FIRING, "waiting")
    assert waiting.tries == 0 or "cannot be reached: ConnectionRefusedError" in waiting.message
    scene.restart()
    await node.returned(4)
    await scene.alert(RESOLVED, node=node.name)
    scene.restart()
    await scene.notification(fired, "chat", RESOLVED, "delivered")
    waiting = await scene.notification(fired, "pager", RESOLVED, "waiting")
    assert waiting.tries == 0, "the resolution waits for its firing"
    scene.pager.start()
    await scene.notification(fired, "pager", RESOLVED, "delivered")
    await scene.until_taken(scene.pager, 1, node=other.name)
    assert [one.about for one in scene.pager.of(node=node.name)] == ["firing", "resolved"]
    assert [one.about for one in scene.chat.of(node=node.name)] == ["firing", "resolved"]
    assert [one.about for one in scene.pager.of(node=other.name)] == ["firing"]


async def test_a_busy_receiver_is_asked_again_with_the_same_key(scene: Scene) -> None:
    node = Node(scene)
    scene.pager.answers[:] = [503, 429, 500]
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    delivered = await scene.notification(fired, "pager", FIRING, "delivered")
    assert delivered.tries == 4
    taken = scene.pager.of(node=node.name)
    assert [one.status for one in taken] == [503, 429, 500, 200]
    assert len({one.key for one in taken}) == 1


async def test_episodes_of_one_alert_are_told_in_order(scene: Scene) -> None:
    """The first firing has to be tried again while the episode ends and the next begins."""
    node = Node(scene)
    scene.pager.answers[:] = [503]
    scene.pager.hold.clear()
    await node.lost(3)
    await scene.until_taken(scene.pager, 1, node=node.name)
    first = await scene.alert(FIRING, node=node.name)
    await node.returned(4)
    await scene.alert(RESOLVED, node=node.name)
    await node.lost(5)
    second = await scene.alert(FIRING, node=node.name)
    scene.pager.hold.set()
    await scene.notification(second, "pager", FIRING, "delivered")
    await scene.notification(first, "pager", RESOLVED, "delivered")
    firing, resolved = f"{first.alert_id}-firing", f"{first.alert_id}-resolved"
    taken = [(one.key, one.status) for one in scene.pager.of(node=node.name)]
    assert taken == [(firing, 503), (firing, 200), (resolved, 200), (f"{second.alert_id}-firing", 200)]


async def test_a_receiver_that_refuses_is_parked_at_once_and_the_other_is_told(scene: Scene) -> None:
    node = Node(scene)
    scene.chat.answers[:] = [404]
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    parked = await scene.notification(fired, "chat", FIRING, "parked")
    assert (parked.tries, parked.message) == (1, "answered HTTP 404: the receiver refuses it, and would again")
    await scene.notification(fired, "pager", FIRING, "delivered")
    await node.returned(4)
    await scene.notification(fired, "chat", RESOLVED, "delivered")


async def test_a_receiver_that_hangs_is_given_up_in_time_and_delays_no_other(scene: Scene) -> None:
    node = Node(scene)
    scene.chat.hold.clear()
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    await scene.notification(fired, "pager", FIRING, "delivered")

    async def timed_out() -> bool:
        waiting = await scene.notification(fired, "chat", FIRING, "waiting")
        return "did not answer within 2 s" in waiting.message

    await until(timed_out, 20)
    scene.chat.hold.set()
    await scene.notification(fired, "chat", FIRING, "delivered")
    assert len({one.key for one in scene.chat.of(node=node.name)}) == 1


async def test_killed_before_it_has_marked_a_delivery_it_repeats_it_with_the_same_key(scene: Scene) -> None:
    """The one case in which a receiver is told twice; the key lets it see that."""
    node = Node(scene)
    scene.pager.hold.clear()
    await node.lost(3)
    await scene.until_taken(scene.pager, 1, node=node.name)
    scene.stage.service.kill()
    scene.pager.hold.set()
    scene.stage.service.start()
    fired = await scene.alert(FIRING, node=node.name)
    await scene.notification(fired, "pager", FIRING, "delivered")
    taken = scene.pager.of(node=node.name)
    assert [one.key for one in taken] == [f"{fired.alert_id}-firing"] * 2
    assert taken[0].body == taken[1].body


async def test_a_store_that_is_away_after_a_delivery_makes_no_second_one(scene: Scene) -> None:
    node = Node(scene)
    database = scene.stage.dsn.partition("?")[0].rpartition("/")[2]
    scene.pager.hold.clear()
    await node.lost(3)
    await scene.until_taken(scene.pager, 1, node=node.name)
    waits = scene.stage.log().count("app.task_waits")
    _allow(scene, database, allowed=False)
    sessions = f"FROM pg_stat_activity WHERE datname = '{database}'"
    scene.stage.postgres.psql(f"SELECT pg_terminate_backend(pid) {sessions}")
    scene.pager.hold.set()
    await until(lambda: scene.stage.log().count("app.task_waits") > waits, 20, "a delivery that cannot be marked")
    _allow(scene, database, allowed=True)
    fired = await scene.alert(FIRING, node=node.name)
    await scene.notification(fired, "pager", FIRING, "delivered")
    assert len(scene.pager.of(node=node.name)) == 1


def _allow(scene: Scene, database: str, *, allowed: bool) -> None:
    scene.stage.postgres.psql(f"ALTER DATABASE {database} ALLOW_CONNECTIONS {allowed}")


async def test_a_receiver_that_stays_away_is_given_up_with_the_reason(scene: Scene) -> None:
    node = Node(scene)
    scene.restart(FARSIDE_ALERTING_GIVE_UP_S="1")
    scene.pager.stop()
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    parked = await scene.notification(fired, "pager", FIRING, "parked")
    assert "given up after" in parked.message
    assert f"127.0.0.1:{scene.pager.port} cannot be reached" in parked.message
    assert "s3cret" not in scene.stage.log()


async def test_what_waits_for_a_receiver_that_was_taken_out_is_parked(scene: Scene) -> None:
    node = Node(scene)
    scene.restart(FARSIDE_ALERTING_GIVE_UP_S="86400")
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    await scene.notification(fired, "pager", FIRING, "waiting")
    scene.restart(FARSIDE_ALERT_WEBHOOKS=webhooks(chat=scene.chat))
    parked = await scene.notification(fired, "pager", FIRING, "parked")
    assert parked.message == "its receiver is no longer among FARSIDE_ALERT_WEBHOOKS"
