"""What is billed stays billed, and what metering shows of itself: windows, tenants, spans, metrics."""

import http.client
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from libs.telemetry.context import Trace, use
from tests.bus.traced import Seen, named
from tests.checkpoint.stage import Stage, open_stage
from tests.metering.conftest import SETTINGS
from tests.metering.play import WINDOW_MS, Node
from tests.servers import NatsServer, PostgresServer, SeaweedServer, free_port
from tests.waiting import until

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

SECOND = timedelta(seconds=1)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(
    hub: NatsServer, postgres: PostgresServer, s3: SeaweedServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Stage, None]:
    """As the other modules have it, but with spans and metrics."""
    folder = tmp_path_factory.mktemp("metering-beside")
    shown = {"FARSIDE_TRACE_DIR": str(folder / "traces"), "FARSIDE_METRICS_PORT": str(free_port())}
    async with open_stage("metering", hub, postgres, s3, folder, **SETTINGS, **shown) as made:
        yield made


async def test_mb5_what_was_closed_before_its_fence_stays_billed_when_it_comes_again(node: Node) -> None:
    await node.place()
    body = await node.measure(node.row(5))
    await node.until_samples(1)
    await node.until_closed((await node.close()).close_id)
    await node.restore(2, node.row(3).window_start)
    await node.measure(node.row(4))
    await node.until_refused(1)
    await node.say(body)
    await node.measure(node.row(2))
    usage = await node.until_samples(2)
    assert usage.closed_samples == 1
    assert [(one.fault, one.samples) for one in usage.unbilled] == [("fenced", 1)]


async def test_windows_are_those_of_the_grid_however_they_are_cut(node: Node) -> None:
    await node.place()
    middle = node.begin + SECOND * 20
    await node.measure(
        node.row(0, window_end=middle, quantity=20_000), node.row(0, window_start=middle, quantity=40_000)
    )
    usage = await node.until_samples(2)
    assert (usage.windows, usage.gpu_ms) == (1, WINDOW_MS)


async def test_a_tenant_sees_what_is_told_under_its_name_of_an_attempt_never_heard_of(node: Node) -> None:
    other = Node(node.stage, job_id=node.job_id)
    await node.measure(node.row(0), other.row(1))
    await node.until_refused(1)
    await other.until_refused(1)
    for one in (node, other):
        assert (await one.usage() or pytest.fail("it was told")).tenant == one.tenant


async def test_a_closing_is_a_span_with_links_to_the_messages_in_it(node: Node) -> None:
    await node.place()
    traces = [f"{number:032x}" for number in range(1, 4)]
    for window, trace in enumerate(traces):
        parent = f"00-{trace}-{window + 1:016x}-01"
        with use(Trace(parent, parent)):
            await node.measure(node.row(window))
    await node.until_samples(3)
    await node.until_closed((await node.close()).close_id)
    folder = Path(node.stage.service.environment["FARSIDE_TRACE_DIR"])

    def rolled() -> list[Seen]:
        return [one for one in named(folder, "roll up usage") if one.attributes["farside.tenant"] == node.tenant]

    [span] = await until(rolled)
    assert sorted(trace for trace, _ in span.links) == traces


async def test_rows_closings_and_lag_are_counted(node: Node) -> None:
    await node.place()
    await node.measure(node.row(0), node.row(1, window_start=node.begin, window_end=node.row(0).window_end, card=9))
    await node.until_refused(1)
    await node.until_closed((await node.close()).close_id)
    text = _scrape(int(node.stage.service.environment["FARSIDE_METRICS_PORT"]))
    assert "farside_metering_samples_total" in text
    assert 'farside_metering_refused_total{fault="card_not_held"}' in text
    assert "farside_metering_closes_total" in text
    assert "farside_metering_lag_seconds_bucket" in text


def _scrape(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()
