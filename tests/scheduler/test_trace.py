"""Tasks of a public trace, sent one by one through a running scheduler, land where the bench of placing puts them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contracts import registry
from contracts.jobs import JobSpec
from contracts.nodes import Card, CardSource, NodeFacts, NodePhase, NodeState
from deploy.replay.openb import MIB, TIER, Node, arrivals, fleet_of, read_nodes, read_tasks
from deploy.replay.openb_bench import Stream
from libs.bus import Client
from libs.bus.provision import provision
from libs.db import connect_once, prepare_database, service_dsn
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from services.scheduler.core.arrays import CARD, Demand
from services.scheduler.core.model import SHARE_PER_MILLI
from services.scheduler.core.packing import DEFAULT, Mix
from tests.data import public_data
from tests.scheduler.harness import PATIENCE_S, Process, Stage, spec, write_policy, write_tenant
from tests.servers import NatsServer
from tests.waiting import until

pytestmark = pytest.mark.timeout(400)
TASKS = 500
SEED = 42
PLENTY = {"gpu_hours_month": 10**9, "cards": 10**6, "concurrent_jobs": 10**6, "top_priority": "online"}


@pytest.fixture
async def stage(database: str, tmp_path: Path) -> AsyncIterator[Stage]:
    """A scheduler that looks often, for a tenant without bounds."""
    (tmp_path / "tenants").mkdir()
    write_tenant(tmp_path / "tenants", "acme", PLENTY)
    write_policy(tmp_path / "policy.yaml")
    with NatsServer() as hub:
        await provision(hub.url, ())
        await prepare_database(database, {"scheduler": "secret"})
        dsn = service_dsn(database, "scheduler", "secret")
        more = {"CYCLE_S": "0.01", "NODE_SLOTS": "10000"}
        process = Process(hub.url, dsn, tmp_path / "tenants", tmp_path / "log", **more)
        db = await connect_once(database)
        async with await Client.connect(hub.url, name="test") as client:
            stage = Stage(hub, client, process, process, db, {}, tmp_path)
            stage.listen()
            process.start()
            try:
                await until(lambda: process.said("app.leading"), PATIENCE_S, "the scheduler to lead")
                yield stage
            finally:
                await stage.close()
                process.close()
                await db.close()


def told(node: Node) -> NodeState:
    """What inventory says of a node of the trace."""
    cards = [
        Card(index=at, uuid=f"{node.name}-{at}", model=node.model, memory_bytes=1, source=CardSource.DECLARED)
        for at in range(node.cards)
    ]
    facts = NodeFacts(
        node=node.name,
        tier=TIER,
        zone="z",
        address="127.0.0.1",
        version="1",
        cpu_milli=node.cpu_milli,
        memory_bytes=node.memory_mib * MIB,
        cards=cards,
    )
    now = SystemClock().now()
    return NodeState(node=node.name, version=1, state=NodePhase.READY, facts=facts, incarnation=new_id(), since=now)


def job_of(task: Demand) -> JobSpec:
    """A job that asks what the task asks."""
    asked: dict[str, Any] = {"cards": task.cards, "cpu_milli": task.cpu_milli, "memory_bytes": task.memory_bytes}
    if task.cards and task.share < CARD:
        asked["share_milli"] = task.share // SHARE_PER_MILLI
    if task.models:
        asked["accelerators"] = list(task.models)
    return spec(resources=asked, max_runtime_s=3600)


async def test_tasks_of_the_trace_land_on_the_nodes_of_the_bench(stage: Stage) -> None:
    folder = public_data("openb")
    nodes = read_nodes(folder / "openb_node_list_gpu_node.csv")
    tasks = read_tasks(folder / "openb_pod_list_default.csv")
    fleet = fleet_of(nodes)
    coming = arrivals(tasks, len(fleet.card_node) * CARD, SEED, 100)[:TASKS]
    for node in nodes:
        await stage.client.publish(
            registry.NODES_GRADED, told(node), key=node.name, subject=node.name, sequence=1, actor="inventory"
        )

    async def known() -> bool:
        return await stage.db.fetchval("SELECT count(*) FROM scheduler.nodes") == len(nodes)

    await until(known, PATIENCE_S, "all nodes to be known")
    bench = Stream(fleet, DEFAULT, Mix())
    learnt = 0
    for number, task in enumerate(coming):
        if number >= bench.mix.due:
            bench.learn(coming[learnt:number])
            learnt = number
        (expected,) = bench.offer([task]).placements
        placed = await stage.told(await stage.submit(job_of(task)), "placed")
        assert placed.attempt is not None
        (member,) = placed.attempt.members
        (seat,) = expected.seats
        assert (member.node, tuple(member.cards)) == (seat.node, seat.cards), f"task {number}: {task}"
