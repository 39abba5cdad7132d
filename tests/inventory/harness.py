"""Inventory as a process of its own between a real hub and a real PostgreSQL, and agents that only say they live."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from nats.errors import Error as NatsError

from contracts import registry
from contracts.base import Model, Tier
from contracts.deadletters import DeadLetter
from contracts.health import CardHealth, NodeReported
from contracts.nodes import (
    Card,
    CardSource,
    LiveAttempt,
    NodeAnnounced,
    NodeFacts,
    NodeHeartbeat,
    NodeOrder,
    NodeState,
)
from contracts.registry import Message, Request
from contracts.requests import NodesPage, NodesQuery
from libs.bus import Client, Event
from libs.bus.provision import provision
from libs.db import Connection, connect_once, prepare_database, service_dsn
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.kit.tasks import reap
from tests.servers import NatsServer
from tests.waiting import until

M = TypeVar("M", bound=Model)
R = TypeVar("R", bound=Model)

HEARTBEAT_S = 0.2
TIMES = {
    "HEARTBEAT_S": "0.2",
    "SUSPECT_S": "1.2",
    "LEASE_S": "2",
    "LOST_S": "2.5",
    "BREAKER_WINDOW_S": "2",
    "SKEW_BOUND_S": "30",
    "SKEW_DELAY_S": "30",
    "SKEW_WINDOW_S": "1",
}
EVENTS = [
    registry.NODES_GRADED,
    registry.NODES_SUSPECT,
    registry.NODES_LOST,
    registry.NODES_RETURNED,
    registry.NODES_QUARANTINED,
    registry.NODES_RELEASED,
]
PATIENCE_S = 30.0


class Process:
    """One inventory process; its log lines go to `log`."""

    def __init__(self, nats_url: str, dsn: str, log: Path) -> None:
        settings = {"NATS_URL": nats_url, "PG_DSN": dsn, **TIMES}
        self._env = os.environ | {f"FARSIDE_{name}": value for name, value in settings.items()}
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "services.inventory"]
            self._process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send `number` and wait; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(number)
        code = self._process.wait(PATIENCE_S)
        self._process = None
        return code

    def close(self) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)

    def said(self, event: str) -> bool:
        """Whether a log line of this event has been written."""
        return f'"event": "{event}"' in self.log.read_text()


@dataclass
class FakeAgent:
    """Says of one node what its agent would say. `beats` runs until it is told to stop."""

    client: Client
    node: str
    cards: tuple[str, ...] = ()
    attempts: list[LiveAttempt] = field(default_factory=list[LiveAttempt])
    incarnation: str = field(default_factory=new_id)
    counter: int = 0
    reports: int = 0
    ahead_s: float = 0
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    _beating: asyncio.Task[None] | None = None

    def facts(self) -> NodeFacts:
        cards = [
            Card(index=index, uuid=uuid, model="H100", memory_bytes=80 * 2**30, source=CardSource.DECLARED)
            for index, uuid in enumerate(self.cards)
        ]
        return NodeFacts(
            node=self.node,
            tier=Tier.CENTRAL,
            zone="z",
            address="127.0.0.1",
            version="0.1.0",
            cpu_milli=1000,
            memory_bytes=2**30,
            cards=cards,
        ).model_copy(update=self.more)

    async def announce(self) -> None:
        body = NodeAnnounced(
            facts=self.facts(),
            incarnation=self.incarnation,
            attempts=self.attempts,
            announced_at=SystemClock().now(),
        )
        await self.client.publish(
            registry.NODES_ANNOUNCED,
            body,
            key=self.node,
            subject=self.node,
            actor=f"agent/{self.node}",
            incarnation=self.incarnation,
        )

    async def restart(self) -> None:
        self.incarnation, self.counter, self.reports = new_id(), 0, 0
        await self.announce()

    async def report(self, *cards: CardHealth, **changes: Any) -> None:
        """Say how the cards are; checks, boot and the like by name."""
        self.reports += 1
        body = NodeReported(
            node=self.node,
            incarnation=self.incarnation,
            counter=self.reports,
            boot_id="boot-1",
            cards=list(cards),
            reported_at=SystemClock().now(),
        ).model_copy(update=changes)
        await self.client.publish(
            registry.NODES_REPORTED, body, key=self.node, subject=self.node, actor=f"agent/{self.node}"
        )

    async def beat(self, **changes: Any) -> None:
        self.counter += 1
        body = NodeHeartbeat(
            node=self.node,
            incarnation=self.incarnation,
            counter=self.counter,
            lease_s=2,
            attempts=self.attempts,
            sent_at=SystemClock().now() + timedelta(seconds=self.ahead_s),
        ).model_copy(update=changes)
        await self.client.publish(
            registry.NODES_HEARTBEAT,
            body,
            key=self.node,
            subject=self.node,
            sequence=self.counter,
            actor=f"agent/{self.node}",
            timeout_s=1.0,
        )

    def beats(self, **changes: Any) -> Self:
        """Beat from now on."""

        async def run() -> None:
            while True:
                with contextlib.suppress(NatsError, TimeoutError):  # an agent goes on whatever its bus says
                    await self.beat(**changes)
                await asyncio.sleep(HEARTBEAT_S)

        self._beating = asyncio.create_task(run())
        return self

    async def stop(self) -> None:
        if self._beating is not None:
            await reap([self._beating])
            self._beating = None


@dataclass
class Stage:
    """All of it, as one test uses it."""

    hub: NatsServer
    client: Client
    inventory: Process
    db: Connection
    dsn: str
    admin_dsn: str
    agents: list[FakeAgent] = field(default_factory=list[FakeAgent])
    heard: list[Event[NodeState]] = field(default_factory=list[Event[NodeState]])
    _listening: asyncio.Task[None] | None = None

    def listen(self) -> None:
        async def run() -> None:
            async for event in self.client.events(EVENTS, since="all"):
                self.heard.append(event)

        self._listening = asyncio.create_task(run())

    async def reopen(self) -> None:
        """Connect to the database again after it was away."""
        self.db = await connect_once(self.admin_dsn)

    async def close(self) -> None:
        await reap([self._listening] if self._listening else [])
        for agent in self.agents:
            await agent.stop()

    async def join(self, node: str, *cards: str) -> FakeAgent:
        """A node that announces itself and beats; returns once inventory has graded it."""
        agent = self.agent(node, *cards)
        await agent.announce()
        agent.beats()
        await self.told(node, "graded")
        return agent

    def story(self, node: str) -> list[str]:
        """The names of the node's events in order of their versions."""
        events = {event.body.version: event for event in self.heard if event.key == node}
        return [events[version].message.name for version in sorted(events)]

    def last(self, node: str) -> Event[NodeState]:
        """The newest event of the node."""
        return max((event for event in self.heard if event.key == node), key=lambda event: event.body.version)

    async def breakers(self, count: int) -> list[tuple[str, str, int | None, str | None, str]]:
        """What was told of breakers, once that is so much: event, breaker, sequence, actor and reason."""
        messages = (registry.BREAKERS_OPENED, registry.BREAKERS_CLOSED)

        async def enough() -> bool:
            return len(await self.client.history(messages)) >= count

        await until(enough, 20, f"{count} events of breakers")
        events = await self.client.history(messages)
        return [(one.message.name, one.body.kind, one.sequence, one.actor, one.body.reason) for one in events]

    async def told(self, node: str, name: str, *, after: int = 0, timeout_s: float = PATIENCE_S) -> NodeState:
        """The state told by the first event `name` of the node with a version above `after`."""

        def found() -> NodeState | None:
            for event in self.heard:
                if (event.key, event.message.name) == (node, name) and event.body.version > after:
                    return event.body
            return None

        state = await until(found, timeout_s, f"{node} to be {name}")
        assert state is not None
        return state

    async def page(self, cursor: str | None = None, limit: int = 100) -> NodesPage:
        return await self.client.request(
            registry.QUERY_NODES, NodesQuery(cursor=cursor, limit=limit), key="_", timeout_s=PATIENCE_S
        )

    async def order(self, message: Message[NodeOrder], node: str, reason: str = "a test") -> None:
        """An operator orders something of a node."""
        body = NodeOrder(node=node, reason=reason)
        await self.client.publish(message, body, key=node, subject=node, actor="operator/ops")

    async def ask(self, request: Request[M, R], body: M) -> R:
        """Ask inventory, as an operator."""
        return await self.client.request(request, body, key=registry.NO_KEY, timeout_s=PATIENCE_S)

    async def states(self) -> dict[str, str]:
        return {state.node: str(state.state) for state in (await self.page()).nodes}

    async def observed_ms(self) -> int:
        return int(await self.db.fetchval("SELECT observed_ms FROM inventory.clock"))

    async def watched(self, seconds: float) -> None:
        """Return when inventory has observed that much more stream time."""
        wanted = await self.observed_ms() + seconds * 1000

        async def reached() -> bool:
            return await self.observed_ms() >= wanted

        await until(reached, PATIENCE_S + 3 * seconds, f"{seconds} s of observed time")

    def phases(self) -> set[str]:
        """The names of all events told so far."""
        return {event.message.name for event in self.heard}

    async def dead_letters(self, count: int) -> list[Event[DeadLetter]]:
        """The first `count` dead letters."""
        letters: list[Event[DeadLetter]] = []
        async with asyncio.timeout(PATIENCE_S):
            async for event in self.client.events([registry.DEADLETTERED], since="all"):
                letters.append(event)
                if len(letters) == count:
                    break
        return letters

    def agent(self, node: str, *cards: str) -> FakeAgent:
        """An agent that has said nothing yet."""
        agent = FakeAgent(self.client, node, cards)
        self.agents.append(agent)
        return agent


@asynccontextmanager
async def open_stage(database: str, folder: Path) -> AsyncGenerator[Stage, None]:
    """A hub of its own and an inventory process on the database at the superuser's DSN `database`."""
    with NatsServer() as hub:
        await provision(hub.url)
        await prepare_database(database, {"inventory": "secret"})
        dsn = service_dsn(database, "inventory", "secret")
        inventory = Process(hub.url, dsn, folder / "inventory.log")
        db = await connect_once(database)
        async with await Client.connect(hub.url, name="test") as client:
            stage = Stage(hub, client, inventory, db, dsn, database)
            stage.listen()
            inventory.start()
            try:
                yield stage
            finally:
                await stage.close()
                inventory.close()
                await stage.db.close()
