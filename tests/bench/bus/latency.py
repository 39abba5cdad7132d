"""The cases `lat1`, `lat50` and `lat200`: from the publishing of a submission until `jobs.placed` is stored.

The scheduler and inventory run as deployed, on servers of their own; nodes with enough cards are announced and give
signs of life as agents would. Nobody takes the jobs up: they stay placed. Both ends are read from one machine's clock.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from contracts import registry
from contracts.base import Tier
from contracts.nodes import Card, CardSource, NodeAnnounced, NodeFacts, NodeHeartbeat, NodePhase
from deploy.local.stack import Stack
from libs.bus import Client
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.kit.tasks import reap
from tests.bench.bus.child import ask
from tests.bench.frame import Case, Measure, interleaved, percentile, short
from tests.waiting import until

PARTS = ("postgres", "nats", "provision", "scheduler", "inventory")
TENANTS = tuple(f"tenant-{number}" for number in range(8))
CARDS = 1024
QUOTAS = {"gpu_hours_month": 1_000_000, "cards": 100_000, "concurrent_jobs": 100_000, "top_priority": "online"}
HEARTBEAT_S, LEASE_S = 5.0, 240
PATIENCE_S = 120.0
UNIT = "ms"
SLOTS = {"FARSIDE_NODE_SLOTS": str(CARDS)}


@dataclass(frozen=True)
class Load:
    """Submissions a second, for how long, in how many rounds."""

    rates: tuple[int, ...]
    seconds: float
    rounds: int
    nodes: int


FULL = Load(rates=(1, 50, 200), seconds=6.0, rounds=3, nodes=8)
QUICK = Load(rates=(1, 50), seconds=2.0, rounds=1, nodes=1)


async def run(folder: Path, size: Load) -> dict[str, Case]:
    """A case for each rate."""
    _write_tenants(folder / "tenants")
    async with (
        Stack(folder / "latency", parts=PARTS, tenants=folder / "tenants", part_env={"scheduler": SLOTS}) as stack,
        await Client.connect(stack.config.nats_url, name="bench") as client,
        _nodes(client, size.nodes),
    ):
        rig = Rig(stack, client, size.seconds)
        measures: dict[str, Measure] = {f"lat{rate}": lambda rate=rate: rig.measure(rate) for rate in size.rates}
        taken = await interleaved(measures, size.rounds)
    return {f"lat{rate}": rig.case(rate, taken[f"lat{rate}"]) for rate in size.rates}


class Rig:
    """Lets the submitter run, then reads when each of its jobs was placed."""

    def __init__(self, stack: Stack, client: Client, seconds: float) -> None:
        self._config = stack.config
        self._client = client
        self._seconds = seconds
        self._seen: dict[int, list[float]] = {}

    async def measure(self, rate: int) -> float:
        """The median of one run, in milliseconds."""
        env = {"FARSIDE_NATS_URL": self._config.nats_url}
        words = (str(rate), str(self._seconds), *TENANTS)
        since = (await self._client.js.stream_info(registry.JOBS.name)).state.last_seq
        log = self._config.log("bench")
        published: dict[str, int] = await ask("tests.bench.bus.submitter", *words, env=env, log=log)
        taken = await self._times(published, since + 1)
        self._seen.setdefault(rate, []).extend(taken)
        return percentile(taken, 0.5)

    async def _times(self, published: dict[str, int], since: int) -> list[float]:
        """Milliseconds from the publishing of each job until its placement was stored."""
        taken: list[float] = []
        reading = self._client.events([registry.JOBS_PLACED, registry.JOBS_REJECTED], since=since)
        async with asyncio.timeout(PATIENCE_S):
            async for event in reading:
                assert event.message is registry.JOBS_PLACED, f"a submission was refused: {event.body}"
                assert event.delivery is not None, "what a reader yields was delivered"
                begun = published.pop(event.body.job_id, None)
                if begun is not None:
                    taken.append(event.delivery.stored_at.timestamp() * 1000 - begun / 1_000_000)
                if not published:
                    break
        await reading.aclose()
        return taken

    def case(self, rate: int, medians: list[float]) -> Case:
        """The figures of one rate: medians of the runs, and the 99th percentile of all submissions together."""
        seen = self._seen[rate]
        return Case(
            f"submit -> placed at {rate} a second, by one clock; the median (p99: over {len(seen)} submissions)",
            UNIT,
            medians,
            more={"p50": short(percentile(seen, 0.5)), "p99": short(percentile(seen, 0.99)), "submissions": len(seen)},
        )


def _write_tenants(folder: Path) -> None:
    folder.mkdir()
    for name in TENANTS:
        (folder / f"{name}.yaml").write_text(json.dumps({"tenant": name, "version": 1, "quotas": QUOTAS}))


@asynccontextmanager
async def _nodes(client: Client, count: int) -> AsyncGenerator[None, None]:
    """Nodes that are ready, and stay so while the block runs."""
    incarnations = {f"bench-{number}": new_id() for number in range(count)}
    for node, incarnation in incarnations.items():
        body = NodeAnnounced(facts=_facts(node), incarnation=incarnation, announced_at=SystemClock().now())
        await client.publish(registry.NODES_ANNOUNCED, body, key=node, subject=node, actor=f"agent/{node}")
    beating = asyncio.create_task(_beat(client, incarnations))
    try:
        await until(lambda: _all_ready(client, count), PATIENCE_S, "the nodes to be ready")
        yield
    finally:
        await reap([beating])


def _facts(node: str) -> NodeFacts:
    cards = [
        Card(index=index, uuid=f"{node}-{index}", model="H200", memory_bytes=2**37, source=CardSource.DECLARED)
        for index in range(CARDS)
    ]
    return NodeFacts(
        node=node,
        tier=Tier.CENTRAL,
        zone="bench",
        address="127.0.0.1",
        version="0",
        cpu_milli=1_000_000,
        memory_bytes=2**40,
        cards=cards,
    )


async def _beat(client: Client, incarnations: dict[str, str]) -> None:
    counter = 0
    while True:
        counter += 1
        for node, incarnation in incarnations.items():
            body = NodeHeartbeat(
                node=node, incarnation=incarnation, counter=counter, lease_s=LEASE_S, sent_at=SystemClock().now()
            )
            await client.publish(registry.NODES_HEARTBEAT, body, key=node, subject=node, actor=f"agent/{node}")
        await asyncio.sleep(HEARTBEAT_S)


async def _all_ready(client: Client, count: int) -> bool:
    states = await client.history([registry.NODES_GRADED])
    return sum(event.body.state is NodePhase.READY for event in states) == count
