"""What the service shows of itself: the notification in the trace of what caused it, and gauges for Prometheus."""

import asyncio
import http.client
import json
from pathlib import Path

import pytest

from contracts.alerts import AlertPhase
from tests.alerting.scene import Job, Node, Scene
from tests.bus.traced import Seen, named
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRING = AlertPhase.FIRING


def _scrape(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


async def test_a_notification_is_in_the_trace_of_its_cause(scene: Scene) -> None:
    job = Job(scene)
    await job.failed(5, 100)
    fired = await scene.alert(FIRING, job=job.job_id)
    await scene.notification(fired, "pager", FIRING, "delivered")
    await scene.notification(fired, "chat", FIRING, "delivered")
    folder = Path(scene.stage.service.environment["FARSIDE_TRACE_DIR"])

    def notified() -> list[Seen]:
        found = [one for one in named(folder, "notify") if one.attributes["farside.alert"] == fired.alert_id]
        return found if len(found) == 2 else []

    spans = await until(notified)
    [cause] = [
        one
        for one in named(folder, "process checkpoints.v1.failed.{tenant}")
        if one.attributes.get("farside.job") == job.job_id
    ]
    assert {(one.trace, one.parent) for one in spans} == {(cause.trace, cause.id)}
    assert {one.attributes["farside.receiver"] for one in spans} == {"pager", "chat"}
    assert {one.attributes["farside.outcome"] for one in spans} == {"done"}
    assert {one.attributes["farside.job"] for one in spans} == {job.job_id}


async def test_log_lines_name_what_they_are_about(scene: Scene) -> None:
    node = Node(scene)
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    await scene.notification(fired, "pager", FIRING, "delivered")
    lines = [json.loads(line) for line in scene.stage.log().splitlines() if fired.alert_id in line]
    events = {line["event"] for line in lines}
    assert {"alert.fired", "notification.delivered"} <= events
    assert {line["node"] for line in lines} == {node.name}
    [trace] = {line["trace"] for line in lines}
    assert len(trace) == 32


async def test_gauges_show_what_fires_and_what_waits(scene: Scene) -> None:
    node = Node(scene)
    await node.lost(3)
    fired = await scene.alert(FIRING, node=node.name)
    await scene.notification(fired, "pager", FIRING, "delivered")
    port = int(scene.stage.service.environment["FARSIDE_METRICS_PORT"])

    def shown(name: str, *labels: str) -> float:
        found = [line for line in text.splitlines() if line.startswith(name) and all(label in line for label in labels)]
        return float(found[0].rpartition(" ")[2]) if found else 0

    async def both() -> bool:
        nonlocal text
        text = await asyncio.to_thread(_scrape, port)
        fires = shown("farside_alerts_firing", 'alertname="NodeLost"', 'level="1"')
        return fires >= 1 and shown("farside_alerts_notifications", 'receiver="pager"', 'state="delivered"') >= 1

    text = ""
    await until(both, 20, "the gauges")
