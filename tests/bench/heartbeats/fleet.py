"""The cases: nodes played by processes of their own, everything else as deployed, watched from outside.

nats-server syncs every message, PostgreSQL every commit; inventory and the scheduler run as in every stack. What is
known of the fleet is read where inventory keeps it, with the superuser's eyes, a few times a second.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from contracts import registry
from deploy.local.stack import Stack
from libs.bus import Client
from libs.db import Connection, connect_once
from tests.bench.frame import Case, percentile, say, short
from tests.bench.heartbeats.nodes import STEP
from tests.waiting import until

PARTS = ("postgres", "nats", "provision", "scheduler", "inventory")
MODULE = "tests.bench.heartbeats.nodes"
PATIENCE_S = 900.0
SAMPLE_S = 0.25
AHEAD = 1000
SILENT = (registry.NODES_SUSPECT, registry.NODES_LOST)
_READY = "SELECT count(*) FROM inventory.nodes WHERE phase = 'ready'"
_LAG = "SELECT extract(epoch FROM clock_timestamp() - tick_at)::float8 FROM inventory.clock"
_WAITING = "SELECT count(*) FROM inventory.outbox WHERE published_at IS NULL"


@dataclass(frozen=True)
class Load:
    """How many nodes in how many processes, how often each beats, and how long is watched, how often."""

    nodes: int
    processes: int
    heartbeat_s: float
    seconds: float
    rounds: int

    @property
    def wanted(self) -> float:
        """Heartbeats a second."""
        return self.nodes / self.heartbeat_s


FULL = Load(nodes=10_000, processes=2, heartbeat_s=5.0, seconds=20.0, rounds=3)
QUICK = Load(nodes=200, processes=2, heartbeat_s=5.0, seconds=5.0, rounds=1)


@dataclass(frozen=True)
class Seen:
    """One window: what the nodes saw, how old inventory's knowledge was, processor time of each part in cores."""

    told: list[dict[str, float]]
    lags_s: list[float]
    cores: dict[str, float]
    suspects: int

    @property
    def per_s(self) -> float:
        """Acknowledged heartbeats a second."""
        return sum(one["per_s"] for one in self.told)

    def worst(self, name: str) -> float:
        """The greatest value among the processes."""
        return max(one[name] for one in self.told)


async def run(folder: Path, size: Load) -> dict[str, Case]:
    """All cases of one fleet."""
    async with (
        Stack(folder / "heartbeats", parts=PARTS) as stack,
        await Client.connect(stack.config.nats_url, name="bench") as client,
        _nodes(stack, size) as nodes,
    ):
        eyes = await connect_once(stack.config.pg_dsn)
        try:
            rig = Rig(stack, client, eyes, nodes)
            await rig.settle(size.nodes)
            steady = [await rig.watch("steady", size.seconds) for _ in range(size.rounds)]
            flood = await rig.watch("flood", size.seconds)
        finally:
            await eyes.close()
    return _cases(size, steady, flood)


def _cases(size: Load, steady: Sequence[Seen], flood: Seen) -> dict[str, Case]:
    every = f"{size.nodes} nodes, a heartbeat every {size.heartbeat_s:g} s"
    lags = [lag for seen in steady for lag in seen.lags_s]
    delays = {name: short(max(seen.worst(name) for seen in steady)) for name in ("ack_p50_ms", "ack_p99_ms")}
    cores = {name: short(max(seen.cores[name] for seen in steady)) for name in steady[0].cores}
    rate = Case(
        f"{every}: acknowledged",
        "heartbeats/s",
        [seen.per_s for seen in steady],
        limit=size.wanted,
        ratio_to="limit",
        more={"cores": cores, **delays, "behind_s": short(max(seen.worst("behind_s") for seen in steady))},
    )
    return {
        "rate": rate,
        "lag": Case(
            "how old inventory's knowledge of the fleet is: the median of each window",
            "s",
            [percentile(seen.lags_s, 0.5) for seen in steady],
            lower_is_better=True,
            more={"p99": short(percentile(lags, 0.99)), "max": short(max(lags))},
        ),
        "suspects": Case(
            "living nodes called suspect or lost", "nodes", [float(seen.suspects) for seen in [*steady, flood]]
        ),
        "most": Case(
            "heartbeats as fast as they are acknowledged, 256 in flight from each process",
            "heartbeats/s",
            [flood.per_s],
            limit=size.wanted,
            ratio_to="limit",
            more={
                "cores": {name: short(value) for name, value in flood.cores.items()},
                "lag": short(max(flood.lags_s)),
            },
        ),
    }


@dataclass(frozen=True)
class Rig:
    """Watches a stack whose nodes are played."""

    stack: Stack
    client: Client
    eyes: Connection
    nodes: Sequence[Process]

    async def settle(self, count: int) -> None:
        """Nodes announce themselves as fast as they are taken, until each is ready and everybody has heard so."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for announced in range(0, count, STEP * len(self.nodes)):
            await until(lambda seen=announced: self._ready(seen - AHEAD), PATIENCE_S, f"{announced} nodes to be ready")
            await self._say("announce")
        await until(lambda: self._ready(count), PATIENCE_S, f"{count} nodes to be ready")
        say(f"{count} nodes are ready after {loop.time() - begun:.0f} s")
        await until(self._heard, PATIENCE_S, "the scheduler to have heard of them")

    async def watch(self, word: str, seconds: float) -> Seen:
        """One window."""
        since = (await self.client.js.stream_info(registry.NODES.name)).state.last_seq
        await self._say(word)
        before, lags = self._cpu_s(), list[float]()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while loop.time() < begun + seconds:
            await asyncio.sleep(SAMPLE_S)
            lags.append(float(await self.eyes.fetchval(_LAG)))
        took_s, after = loop.time() - begun, self._cpu_s()
        await self._say("told")
        told = [json.loads(await _line(node)) for node in self.nodes]
        cores = {name: (after[name] - before[name]) / took_s for name in before}
        suspects = len(await self.client.history(SILENT, since=since + 1))
        seen = Seen(told, lags, cores | {"nodes": sum(one["cores"] for one in told)}, suspects)
        shown = ", ".join(f"{name} {value:.2f}" for name, value in seen.cores.items())
        say(f"{word:<8}{seen.per_s:8,.0f}/s  lag {max(lags):.2f} s at most  suspects {suspects}  cores: {shown}")
        return seen

    async def _say(self, word: str) -> None:
        for node in self.nodes:
            assert node.stdin is not None
            node.stdin.write(f"{word}\n".encode())
            await node.stdin.drain()

    async def _ready(self, count: int) -> bool:
        await asyncio.sleep(SAMPLE_S)
        for node in self.nodes:
            assert node.returncode is None, f"a process of nodes ended: {self.stack.config.log('bench').read_text()}"
        return await self.eyes.fetchval(_READY) >= count

    async def _heard(self) -> bool:
        name = registry.durable(registry.NODES_GRADED, registry.NODES_GRADED.consumers[0])
        info = await self.client.js.consumer_info(registry.NODES.name, name)
        return not info.num_pending and not info.num_ack_pending and await self.eyes.fetchval(_WAITING) == 0

    def _cpu_s(self) -> Mapping[str, float]:
        return {name: _cpu_s(self.stack.pid(name)) for name in PARTS if name != "provision"}


def _cpu_s(pid: int) -> float:
    """Processor time of a process and its children, those that have ended included."""
    process = psutil.Process(pid)
    own = process.cpu_times()
    alive = [child.cpu_times() for child in process.children(recursive=True)]
    return own.user + own.system + own.children_user + own.children_system + sum(one.user + one.system for one in alive)


async def _line(node: Process) -> bytes:
    assert node.stdout is not None
    return await asyncio.wait_for(node.stdout.readline(), PATIENCE_S)


@asynccontextmanager
async def _nodes(stack: Stack, size: Load) -> AsyncGenerator[list[Process], None]:
    """The processes that play the nodes, while the block runs."""
    each = size.nodes // size.processes
    env: dict[str, Any] = {**os.environ, "FARSIDE_NATS_URL": stack.config.nats_url}
    started: list[Process] = []
    try:
        with stack.config.log("bench").open("ab") as log:
            for number in range(size.processes):
                words = (number * each, each, size.heartbeat_s)
                command = [sys.executable, "-m", MODULE, *map(str, words)]
                started.append(
                    await asyncio.create_subprocess_exec(*command, env=env, stdin=PIPE, stdout=PIPE, stderr=log)
                )
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()
