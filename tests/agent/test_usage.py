"""What a real agent measures: the sum of its samples is the held time, whatever becomes of agent, shim and hub."""

import json
import os
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from contracts import registry
from contracts.attempts import AttemptExited
from contracts.requests import ClaimReply
from contracts.usage import UsageItem, UsageRow
from contracts.work import WorkRun
from libs.objects import Store, StoreConfig
from libs.telemetry import context
from libs.telemetry.context import Trace
from services.agent import handoff, proctree
from services.agent.core.usage import to_ms
from tests.agent.world import World
from tests.servers import NatsServer, SeaweedServer
from tests.waiting import until

PERIOD_S = 1
WINDOW = timedelta(seconds=PERIOD_S)
METERED = {"FARSIDE_USAGE_PERIOD_S": str(PERIOD_S)}
LIFE = f"00-{7:032x}-{9:016x}-03"
MEMORY_MIB = (80 << 30) >> 20
UNTIL_TOLD = "import time\nfrom pathlib import Path\nwhile not Path('finish').exists(): time.sleep(0.02)\n"


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[World]:
    """A world whose hub the test may end."""
    with NatsServer() as nats, SeaweedServer() as s3:
        store = Store(StoreConfig(s3.endpoint, s3.access_key, SecretStr(s3.secret_key)))
        store.wait_ready("probe/agent", 60.0)
        async with World(tmp_path, nats, s3, store) as world:
            yield world
        store.close()


def total(rows: list[UsageRow]) -> int:
    return sum(row.quantity for row in rows)


async def account(world: World, run: WorkRun, cards: int = 1) -> list[UsageRow]:
    """Wait for the last sample of an attempt that has exited; all samples, checked against its held time."""
    held_from, held_to = world.hold(run)
    assert held_to is not None
    await until(lambda: total(world.usage(run)) >= (held_to - held_from) * cards, 20, "the last sample")
    rows = world.usage(run)
    assert total(rows) == (held_to - held_from) * cards
    memory = world.usage(run, UsageItem.GPU_MEMORY_MIB_MS)
    assert total(memory) == (held_to - held_from) * cards * MEMORY_MIB
    assert [row.card_uuid for row in rows] == [f"declared-{world.node}-{row.card}" for row in rows]
    return rows


def in_a_row(rows: list[UsageRow]) -> bool:
    """Whether the samples of one card follow each other without gap or overlap."""
    ordered = sorted(rows, key=lambda row: row.window_start)
    return all(row.window_end == after.window_start for row, after in pairwise(ordered))


async def test_held_time_is_measured_to_the_millisecond_however_an_attempt_ends(world: World) -> None:
    world.agent(**METERED).start()
    good = world.run("sleep", "2.3", cards=[0, 1])
    await world.offer(good)
    await world.saw(good, "exited")
    rows = await account(world, good, cards=2)
    assert in_a_row([row for row in rows if row.card == 0])
    assert in_a_row([row for row in rows if row.card == 1])
    bad, bare = world.run("sh", "-c", "exit 3"), world.run("true", cards=[])
    for run in (bad, bare):
        await world.offer(run)
        await world.saw(run, "exited")
    exited: AttemptExited = world.bodies(bad, "exited")[0]
    assert exited.cause == "failed"
    await account(world, bad)
    world.claim_reply = ClaimReply(granted=True, go=False)
    waiting = world.run("true")
    await world.offer(waiting)
    await until(lambda: len([claim for claim in world.claims if claim.job_id == waiting.job_id]) > 1, 20)
    await world.order_stop(waiting)
    exited = await world.saw(waiting, "exited")
    assert exited.cause == "never_started"
    assert total(await account(world, waiting)) > 0
    assert world.usage(bare) == []
    sequences = [event.sequence for event in world.events if event.message is registry.USAGE_MEASURED]
    assert sequences == list(range(1, len(sequences) + 1))


def share_of(run: WorkRun, milli: int) -> WorkRun:
    """The same offer, with a share of its card."""
    member = run.members[0].model_copy(update={"share_milli": milli, "share_millionths": milli * 1000})
    return run.model_copy(update={"members": [member]})


async def test_attempts_side_by_side_on_one_card_hold_their_shares_of_it(world: World) -> None:
    says = "import os\nprint(os.environ['FARSIDE_CARD_SHARE_MILLI'], os.environ['FARSIDE_CARD_SHARE_BYTES'])\n"
    small, large = (share_of(world.run(script=says + UNTIL_TOLD), milli) for milli in (250, 500))
    agent = world.agent(**METERED)
    agent.start()
    for run in (small, large):
        await world.offer(run)
    for run in (small, large):
        await world.saw(run, "started")
        await until(lambda run=run: len(world.usage(run)) > 1, 20)
    agent.kill()
    agent.start()
    for run in (small, large):
        (world.attempt_folder(run) / "work" / "finish").touch()
        await world.saw(run, "exited")
        held_from, held_to = world.hold(run)
        assert held_to is not None
        [member] = run.members
        milli = member.share_milli or 0
        await until(lambda run=run, end=held_to: ended(world.usage(run)) == end, 20, "the last sample")
        rows = world.usage(run)
        assert in_a_row(rows)
        assert {row.share_milli for row in rows} == {milli}
        assert {row.card_uuid for row in rows} == {f"declared-{world.node}-1"}
        owed = milli * (held_to - held_from) // 1000
        assert owed - len(rows) <= total(rows) <= owed
        assert world.log_text(run).split() == [str(milli), str(milli * (80 << 30) // 1000)]


def ended(rows: list[UsageRow]) -> int:
    """Where the last sample ends, in milliseconds since 1970."""
    return max((to_ms(row.window_end) for row in rows), default=0)


async def test_a_killed_agent_loses_nothing_and_repeats_nothing(world: World) -> None:
    run = world.run(script=UNTIL_TOLD)
    agent = world.agent(**METERED)
    agent.start()
    await world.offer(run)
    await world.saw(run, "started")
    for _ in range(3):
        seen = len(world.usage(run))
        await until(lambda seen=seen: len(world.usage(run)) > seen + 1, 20)
        agent.kill()
        agent.start()
    (world.attempt_folder(run) / "work" / "finish").touch()
    await world.saw(run, "exited")
    assert in_a_row(await account(world, run))


async def test_an_attempt_that_ended_while_its_agent_was_away_ends_then(world: World) -> None:
    run = world.run(script=UNTIL_TOLD)
    agent = world.agent(**METERED)
    agent.start()
    await world.offer(run)
    await world.saw(run, "started")
    agent.kill()
    (world.attempt_folder(run) / "work" / "finish").touch()
    ending = await until(lambda: handoff.read_ending(world.attempt_folder(run)), 20)
    assert ending is not None
    gone = proctree.boottime()
    await until(lambda: proctree.boottime() > gone + 2, 10, "the agent to be away for a while")
    agent.start()
    await world.saw(run, "exited")
    await account(world, run)
    _, held_to = world.hold(run)
    assert held_to is not None
    ended_at = datetime.fromisoformat(ending.ended_at)
    assert abs(datetime.fromtimestamp(held_to / 1000, UTC) - ended_at) < timedelta(seconds=0.2)


async def test_when_everything_is_killed_the_account_is_short_by_less_than_a_window(world: World) -> None:
    run = world.run("sleep", "300")
    agent = world.agent(**METERED)
    agent.start()
    await world.offer(run)
    await world.saw(run, "started")
    await until(lambda: len(world.usage(run)) > 2, 20)
    task, shim = world.task_pid(run), world.shim_pid(run)
    agent.kill()
    os.kill(shim, signal.SIGKILL)
    killed = proctree.boottime()
    await until(lambda: proctree.start_of(task) is None, 10)
    held_from, _ = world.hold(run)
    wall = datetime.now(UTC) - timedelta(seconds=proctree.boottime() - killed)  # noqa: TID251 - the truth to compare with
    truth_ms = int(wall.timestamp() * 1000) - held_from
    await until(lambda: proctree.boottime() > killed + 2, 10, "time that must not be measured")
    agent.start()
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "killed"
    rows = await account(world, run)
    assert truth_ms - PERIOD_S * 1000 - 200 <= total(rows) <= truth_ms


async def test_windows_of_an_outage_arrive_later_with_their_own_times(own: World) -> None:
    run = own.run(script=UNTIL_TOLD)
    own.agent(**METERED).start()
    await own.offer(run)
    await own.saw(run, "started")
    own.nats.kill()
    gone = proctree.boottime()
    before = len(own.usage(run))
    await until(lambda: proctree.boottime() > gone + 4 * PERIOD_S, 20, "an outage of some windows")
    assert len(own.usage(run)) == before
    own.nats.start()
    await own.provision()
    (own.attempt_folder(run) / "work" / "finish").touch()
    await own.saw(run, "exited", 60)
    rows = await account(own, run)
    assert in_a_row(rows)
    assert len({row.window_start for row in rows}) >= 4
    assert all(row.window_end - row.window_start <= WINDOW for row in rows)


async def test_what_is_done_for_an_attempt_belongs_to_the_trace_of_its_job(world: World) -> None:
    """What the next agent does as well: messages, spans, log lines."""
    run, traces = world.run(script=UNTIL_TOLD), world.folder / "traces"
    agent = world.agent(FARSIDE_TRACE_DIR=str(traces), **METERED)
    agent.start()
    with context.use(Trace(LIFE, LIFE)):
        await world.offer(run)
    await world.saw(run, "started")
    agent.kill()
    agent.start()
    (world.attempt_folder(run) / "work" / "finish").touch()
    await world.saw(run, "exited")
    await account(world, run)
    agent.stop()
    assert {event.traceparent for event in world.about(run)} == {LIFE}
    measured = [event.traceparent for event in world.events if event.message is registry.USAGE_MEASURED]
    assert LIFE not in measured
    spans = read_spans(traces)
    [ran] = [span for span in spans if span["name"] == "run attempt"]
    assert ran["traceId"] == context.trace_id(LIFE)
    looks = [span for span in spans if span["name"] == "measure usage"]
    assert {link["traceId"] for span in looks for link in span["links"]} == {ran["traceId"]}
    assert ran["traceId"] not in {span["traceId"] for span in looks}
    assert not any("parentSpanId" in span and span["parentSpanId"] for span in looks)
    lines = [json.loads(line) for line in (world.folder / "agent.log").read_text().splitlines() if line[:1] == "{"]
    phases = [line for line in lines if line["event"] == "attempt.phase"]
    assert {(line["job"], line["node"], line["trace"]) for line in phases} == {(run.job_id, world.node, ran["traceId"])}


def read_spans(folder: Path) -> list[dict[str, Any]]:
    """All spans of all files."""
    found: list[dict[str, Any]] = []
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            for resource in json.loads(line)["resourceSpans"]:
                found += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
    return found
