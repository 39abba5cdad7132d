"""The alerting service against real servers: what fires, what ends it, and what is kept through a kill."""

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from contracts import registry
from contracts.alerts import AlertPhase, AlertsQuery, ResolveRequest
from contracts.checkpoints import CheckpointFailure
from contracts.requests import ProblemCode
from libs.bus import Problem
from libs.db import connect_once
from libs.kit.ids import new_id
from services.alerting.core.rules import fingerprint
from tests.alerting.scene import Job, Node, Scene
from tests.checkpoint.stage import TENANT
from tests.contracts.judge import faults
from tests.unit.alerting.format import WEBHOOK
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTH = (registry.ALERTS_FIRED, registry.ALERTS_RESOLVED)
FIRING, RESOLVED = AlertPhase.FIRING, AlertPhase.RESOLVED


async def test_a_lost_node_is_told_once_and_once_more_when_it_is_back(scene: Scene) -> None:
    node = Node(scene)
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    assert fired.fingerprint == fingerprint({"node": node.name, "alertname": "NodeLost"})
    await node.lost(4)
    await scene.alert(FIRING, seen=2, node=node.name)
    await node.returned(5)
    resolved = await scene.alert(RESOLVED, seen=2, node=node.name)
    assert resolved.resolved_at is not None
    assert fired.fired_at < resolved.resolved_at
    for receiver in (scene.pager, scene.chat):
        taken = await scene.until_taken(receiver, 2, node=node.name)
        assert [one.about for one in taken] == ["firing", "resolved"]
        assert [fault.message for one in taken for fault in faults(WEBHOOK, one.body)] == []
        assert [one.key for one in taken] == [f"{fired.alert_id}-firing", f"{fired.alert_id}-resolved"]
    assert [one.body["receiver"] for one in scene.chat.of(node=node.name)] == ["chat", "chat"]
    assert [alert.state for alert in await scene.told(BOTH, node=node.name)] == [FIRING, RESOLVED]


async def test_a_faulty_node_is_told_until_nothing_of_it_is_out_of_the_pool(scene: Scene) -> None:
    node = Node(scene)
    await node.quarantined(3)
    fired = await scene.alert(FIRING, alertname="NodeQuarantined", node=node.name)
    assert (fired.level, fired.annotations["description"]) == (2, "XID 79")
    await node.released(4, 1)
    await node.released(5)
    await scene.alert(RESOLVED, alertname="NodeQuarantined", node=node.name)
    taken = await scene.until_taken(scene.pager, 2, node=node.name)
    assert [one.about for one in taken] == ["firing", "resolved"]
    assert [fault.message for one in taken for fault in faults(WEBHOOK, one.body)] == []


async def test_al6_each_firing_is_an_episode_that_is_told(scene: Scene) -> None:
    node = Node(scene)
    for version in (3, 5):
        await node.lost(version)
        await scene.alert(FIRING, node=node.name)
        await node.returned(version + 1)
        await scene.alert(RESOLVED, node=node.name)
    taken = await scene.until_taken(scene.pager, 4, node=node.name)
    assert len({one.key for one in taken}) == 4
    assert len({one.body["alerts"][0]["fingerprint"] for one in taken}) == 1
    assert len(await scene.records(node=node.name)) == 2


async def test_a_failed_checkpoint_fires_and_a_later_commit_resolves_it(scene: Scene) -> None:
    job = Job(scene)
    await job.failed(4, 100, CheckpointFailure.FENCED)
    await job.failed(5, 100, CheckpointFailure.STORE_UNAVAILABLE)
    fired = await scene.alert(FIRING, job=job.job_id)
    assert (fired.level, fired.annotations["cause"]) == (3, "store_unavailable")
    await job.failed(6, 150)
    await scene.alert(FIRING, seen=2, job=job.job_id)
    await job.committed(7, 100)
    await job.committed(8, 150, attempt=2)
    resolved = await scene.alert(RESOLVED, seen=2, job=job.job_id)
    assert resolved.resolution == "step 150 was committed by attempt 2"
    assert len(await scene.told([registry.ALERTS_FIRED], job=job.job_id)) == 1


async def test_the_end_of_a_job_resolves_it(scene: Scene) -> None:
    job = Job(scene)
    await job.failed(5, 100)
    await scene.alert(FIRING, job=job.job_id)
    await job.finished()
    assert (await scene.alert(RESOLVED, job=job.job_id)).resolution == "the job has finished: succeeded"


async def _read(scene: Scene, **labels: str) -> None:
    """Wait until something of the subject with these labels was read."""
    conn = await connect_once(scene.stage.dsn)
    try:
        query = "SELECT 1 FROM subjects WHERE fingerprint = $1"
        await until(lambda: conn.fetchval(query, fingerprint(labels)), 20, f"{labels} to be read")
    finally:
        await conn.close()


async def _is_told_once(scene: Scene, **labels: str) -> None:
    """One episode, over already: both events and both notifications, in order, to each receiver."""
    await scene.alert(RESOLVED, 1, **labels)

    async def published() -> bool:
        return [alert.state for alert in await scene.told(BOTH, **labels)] == [FIRING, RESOLVED]

    await until(published, 20, "both events, in order, and no other")
    for receiver in (scene.pager, scene.chat):
        assert [one.about for one in await scene.until_taken(receiver, 2, **labels)] == ["firing", "resolved"]


async def test_a_loss_read_after_the_return_is_told_all_the_same(scene: Scene) -> None:
    """As when the service is killed with the loss in its hands, and reads the return before it comes again."""
    node = Node(scene)
    await node.returned(4)
    await _read(scene, alertname="NodeLost", node=node.name)
    scene.restart()
    await node.lost(3)
    await _is_told_once(scene, node=node.name)


async def test_al4_a_failure_read_after_its_commit_is_told_once_through_a_restart(scene: Scene) -> None:
    """The failure comes to another process, which has the commit from the tables; what has been told is not again."""
    job, other = Job(scene), Job(scene)
    await job.committed(9, 200)
    await _read(scene, alertname="CheckpointFailed", tenant=TENANT, job=job.job_id)
    scene.restart()
    await job.failed(7, 150)
    await _is_told_once(scene, job=job.job_id)
    await job.failed(5, 100)
    await job.failed(7, 150)
    await other.failed(1, 10)
    await scene.alert(FIRING, job=other.job_id)
    assert len(await scene.records(job=job.job_id)) == 1


async def test_a_node_that_flapped_has_all_its_episodes_in_the_worst_order(scene: Scene) -> None:
    node = Node(scene)
    await node.lost(3)
    await node.lost(5)
    await scene.alert(FIRING, seen=2, node=node.name)
    await node.returned(6)
    await scene.alert(RESOLVED, seen=2, node=node.name)
    await node.returned(4)
    taken = await scene.until_taken(scene.pager, 4, node=node.name)
    assert [one.about for one in taken] == ["firing", "resolved", "firing", "resolved"]
    assert len({one.key for one in taken}) == 4
    assert len(await scene.records(RESOLVED, node=node.name)) == 2


async def test_al1_what_fires_goes_on_firing_after_a_kill(scene: Scene) -> None:
    node = Node(scene)
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    scene.restart()
    await node.lost(4)
    assert (await scene.alert(FIRING, seen=2, node=node.name)).alert_id == fired.alert_id
    await node.returned(5)
    assert (await scene.alert(RESOLVED, seen=2, node=node.name)).alert_id == fired.alert_id
    assert len(await scene.told(BOTH, node=node.name)) == 2


async def test_an_operator_resolves_by_hand(scene: Scene) -> None:
    node = Node(scene)
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    request = ResolveRequest(alert_id=fired.alert_id, reason="taken out of the rack")
    first = await scene.stage.client.request(registry.CALL_RESOLVE, request, key=registry.NO_KEY)
    assert first.alert.state is RESOLVED
    assert first.alert.resolution.startswith("by hand, ")
    assert first.alert.resolution.endswith(": taken out of the rack")
    again = await scene.stage.client.request(registry.CALL_RESOLVE, request, key=registry.NO_KEY)
    assert again == first
    taken = await scene.until_taken(scene.pager, 2, node=node.name)
    assert [one.about for one in taken] == ["firing", "resolved"]
    await node.lost(5)
    assert (await scene.alert(FIRING, node=node.name)).alert_id != fired.alert_id


async def test_requests_at_fault_are_answered_in_words(scene: Scene) -> None:
    request = ResolveRequest(alert_id=new_id(), reason="x")
    with pytest.raises(Problem, match=f"there is no alert {request.alert_id}") as problem:
        await scene.stage.client.request(registry.CALL_RESOLVE, request, key=registry.NO_KEY)
    assert problem.value.code is ProblemCode.NOT_FOUND
    with pytest.raises(Problem, match="pass the cursor of the page before"):
        await scene.stage.client.request(registry.QUERY_ALERTS, AlertsQuery(cursor="x"), key=registry.NO_KEY)


async def test_pages_go_through_all_alerts_of_a_state(scene: Scene) -> None:
    nodes = [Node(scene) for _ in range(5)]
    for node in nodes:
        await node.lost(3)
    for node in nodes:
        await scene.alert(FIRING, node=node.name)
    found: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        query = AlertsQuery(state=FIRING, cursor=cursor, limit=2)
        page = await scene.stage.client.request(registry.QUERY_ALERTS, query, key=registry.NO_KEY)
        assert all(one.alert.state is FIRING for one in page.alerts)
        found += [one.alert.alert_id for one in page.alerts]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == sorted({*found}, reverse=True)
    assert {node.name for node in nodes} <= {one.alert.labels.get("node") for one in await scene.records(FIRING)}


async def test_what_is_long_over_is_forgotten(scene: Scene) -> None:
    node, other = Node(scene), Node(scene)
    for one in (node, other):
        await one.lost(3)
    over, firing = [await scene.alert(FIRING, node=one.name) for one in (node, other)]
    await node.returned(4)
    await scene.notification(over, "pager", RESOLVED, "delivered")
    await scene.notification(firing, "pager", FIRING, "delivered")
    await _age(scene, over.alert_id)
    await _age(scene, firing.alert_id)
    scene.restart()

    async def forgotten() -> bool:
        return await scene.records(node=node.name) == []

    await until(forgotten, 20)
    assert len(await scene.records(node=other.name)) == 1, "what fires is kept, however old"


async def _age(scene: Scene, alert_id: str) -> None:
    """Give an episode an id of years ago."""
    conn = await connect_once(scene.stage.dsn)
    old = f"00{alert_id[2:]}"
    try:
        await conn.execute(
            "INSERT INTO alerts SELECT $2, fingerprint || '0', name, level, state, replace(body, $1, $2) FROM alerts "
            "WHERE alert_id = $1",
            alert_id,
            old,
        )
        await conn.execute("UPDATE notifications SET alert_id = $2 WHERE alert_id = $1", alert_id, old)
        await conn.execute("DELETE FROM alerts WHERE alert_id = $1", alert_id)
    finally:
        await conn.close()


async def _farside(scene: Scene, *arguments: str) -> tuple[int, str]:
    """Run the command line; its exit status and all that it printed."""
    environment = {**os.environ, "FARSIDE_NATS_URL": scene.stage.nats.url}
    command = [sys.executable, "-c", "from libs.cli.main import main; main()", *arguments]
    pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=both)
    printed, _ = await process.communicate()
    return process.returncode or 0, printed.decode()


async def test_the_command_line_lists_shows_and_resolves(scene: Scene) -> None:
    node = Node(scene)
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    await scene.notification(fired, "pager", FIRING, "delivered")
    _, table = await _farside(scene, "alerts", "--state", "firing")
    [line] = [line for line in table.splitlines() if node.name in line]
    assert line.split()[:4] == [fired.alert_id[:18], "1", "NodeLost", f"node={node.name}"]
    _, shown = await _farside(scene, "alerts", "show", fired.alert_id)
    assert f"node {node.name} is lost" in shown
    status, said = await _farside(scene, "alerts", "resolve", fired.alert_id, "taken out of the rack")
    assert (status, "is over: by hand, " in said) == (0, True)
    assert (await _farside(scene, "alerts", "resolve", "no-such-id", "x"))[0] == 1
    _, listed = await _farside(scene, "alerts", "--json")
    found: list[dict[str, Any]] = json.loads(listed)["alerts"]
    [own] = [one for one in found if one["alert"]["alert_id"] == fired.alert_id]
    assert own["alert"]["state"] == "resolved"
