"""Many nodes in a process of their own: `python -m tests.bench.heartbeats.nodes FIRST COUNT HEARTBEAT_S`.

Standard input says what next: `announce` lets the next STEP nodes announce themselves, each beating every HEARTBEAT_S
from then on with the bytes that an agent sends; `steady` and `flood` begin a window (in a flood, IN_FLIGHT nodes at a
time beat again at once), `told` prints what was seen in it as one line of JSON, the end of input ends the process. A
heartbeat waits for its PubAck and for no other node. One connection carries them all.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field

from nats.errors import Error as NatsError

from contracts import registry
from contracts.base import Model, Tier
from contracts.nodes import Card, CardSource, NodeAnnounced, NodeFacts, NodeHeartbeat
from contracts.registry import Message
from libs.bus import Client
from libs.bus.codec import Envelope
from libs.bus.outbox import make_row
from libs.bus.publisher import LostError, Publisher
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.kit.settings import ServiceSettings
from libs.kit.start import settle_memory
from libs.kit.tasks import reap
from tests.bench.frame import percentile

LEASE_S = 240
CARDS = 8
TIMEOUT_S = 60.0
IN_FLIGHT = 256
STEP = 50


@dataclass
class Node:
    """One node; its heartbeats are numbered."""

    name: str
    incarnation: str = field(default_factory=new_id)
    counter: int = 0


@dataclass
class Window:
    """What was seen since it began. `behind_s`: how late the latest heartbeat was sent, by its node's timetable."""

    begun: float
    cpu_s: float
    acked: int = 0
    failed: int = 0
    behind_s: float = 0.0
    delays_ms: list[float] = field(default_factory=list[float])


@dataclass(frozen=True)
class Told:
    """The same as it is printed."""

    per_s: float
    failed: int
    behind_s: float
    cores: float
    ack_p50_ms: float
    ack_p99_ms: float
    ack_max_ms: float


class Fleet:
    """Nodes that beat by a timetable: the first at its announcement, then every `heartbeat_s`."""

    def __init__(self, publisher: Publisher, names: list[str], heartbeat_s: float) -> None:
        self._publisher = publisher
        self._nodes = [Node(name) for name in names]
        self._heartbeat_s = heartbeat_s
        self._clock = SystemClock()
        self._loop = asyncio.get_running_loop()
        self._living: list[asyncio.Task[None]] = []
        self._flood: list[asyncio.Task[None]] = []
        self._window = self._new_window()

    async def announce(self) -> None:
        """The next nodes announce themselves, and beat from now on, a little apart from each other."""
        for node in self._nodes[len(self._living) : len(self._living) + STEP]:
            self._living.append(asyncio.create_task(self._live(node)))
            await asyncio.sleep(self._heartbeat_s / len(self._nodes))

    async def end(self) -> None:
        """All nodes fall silent."""
        await reap([*self._flood, *self._living])

    async def steady(self) -> None:
        """A window in which nodes keep to their timetable."""
        await reap(self._flood)
        self._flood = []
        self._window = self._new_window()

    async def flood(self) -> None:
        """A window in which as many heartbeats are sent as are acknowledged."""
        lanes = [self._nodes[lane::IN_FLIGHT] for lane in range(IN_FLIGHT)]
        self._flood = [asyncio.create_task(self._rush(lane)) for lane in lanes if lane]
        self._window = self._new_window()

    def told(self) -> Told:
        """What the window saw."""
        one = self._window
        seconds, delays = self._loop.time() - one.begun, one.delays_ms or [0.0]
        return Told(
            per_s=one.acked / seconds,
            failed=one.failed,
            behind_s=one.behind_s,
            cores=(time.process_time() - one.cpu_s) / seconds,
            ack_p50_ms=percentile(delays, 0.5),
            ack_p99_ms=percentile(delays, 0.99),
            ack_max_ms=max(delays),
        )

    def _new_window(self) -> Window:
        return Window(self._loop.time(), time.process_time())

    async def _live(self, node: Node) -> None:
        facts = _facts(node.name)
        body = NodeAnnounced(facts=facts, incarnation=node.incarnation, announced_at=self._clock.now())
        await self._publish(registry.NODES_ANNOUNCED, body, node, 1)
        due = self._loop.time()
        while True:
            self._window.behind_s = max(self._window.behind_s, self._loop.time() - due)
            await self._beat(node)
            due += self._heartbeat_s
            await asyncio.sleep(due - self._loop.time())

    async def _rush(self, lane: list[Node]) -> None:
        while True:
            for node in lane:
                await self._beat(node)

    async def _beat(self, node: Node) -> None:
        node.counter += 1
        body = NodeHeartbeat(
            node=node.name,
            incarnation=node.incarnation,
            counter=node.counter,
            lease_s=LEASE_S,
            sent_at=self._clock.now(),
        )
        sent = self._loop.time()
        try:
            await self._publish(registry.NODES_HEARTBEAT, body, node, node.counter)
        except (NatsError, LostError, TimeoutError):
            self._window.failed += 1
            return
        self._window.acked += 1
        self._window.delays_ms.append((self._loop.time() - sent) * 1000)

    async def _publish(self, message: Message[Model], body: Model, node: Node, sequence: int) -> None:
        envelope = Envelope(
            id=new_id(),
            source=f"/farside/agent/{node.name}",
            subject=node.name,
            sequence=sequence,
            actor=f"agent/{node.name}",
            incarnation=node.incarnation,
            time=self._clock.now(),
        )
        row = make_row(message, body, node.name, envelope, None)
        await self._publisher.publish(row.subject, row.data, row.headers, stream=row.stream, timeout_s=TIMEOUT_S)


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
        cpu_milli=128_000,
        memory_bytes=2**40,
        cards=cards,
    )


async def main(first: int, count: int, heartbeat_s: float) -> None:
    """Do what standard input says."""
    settle_memory()
    async with await Client.connect(ServiceSettings().nats_url, name="bench") as client:
        publisher = Publisher(client.connection)
        await publisher.open()
        fleet = Fleet(publisher, [f"bench-{number}" for number in range(first, first + count)], heartbeat_s)
        while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
            match word:
                case "announce":
                    await fleet.announce()
                case "steady":
                    await fleet.steady()
                case "flood":
                    await fleet.flood()
                case _:
                    sys.stdout.write(json.dumps(asdict(fleet.told())) + "\n")
                    sys.stdout.flush()
        await fleet.end()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
