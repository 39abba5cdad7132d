"""The cases `b`, `c1` and `c2`: messages a second through one service, and through nats-py alone."""

from dataclasses import dataclass
from pathlib import Path

from contracts import registry
from contracts.base import Model
from contracts.registry import Message
from deploy.local import apps
from deploy.local.apps import Overrides
from deploy.local.bus import Bus
from deploy.local.config import Config
from deploy.local.fleet import TENANTS_DIR
from deploy.local.stack import Stack
from libs.bus import Client
from libs.db import connect_once, prepare_database
from tests.bench.bus import load
from tests.bench.bus.child import ask
from tests.bench.frame import Case, Measure, interleaved, say

SERVERS = ("postgres", "nats", "provision")
FETCH, PUBLISH = "raw fetch-100 + ack", "raw durable publish, 256 in flight"
UNIT = "messages/s"


@dataclass(frozen=True)
class Load:
    """How much of what, in how many rounds; `warm` messages go ahead of each measured count."""

    rounds: int
    warm: int
    each: int
    batch: int
    publish: int


FULL = Load(rounds=3, warm=1000, each=5000, batch=12_000, publish=6000)
QUICK = Load(rounds=1, warm=20, each=100, batch=300, publish=200)


async def run(folder: Path, size: Load) -> dict[str, Case]:
    """All three, in the same rounds as their peers."""
    async with (
        Stack(folder / "rates", parts=SERVERS) as stack,
        await Client.connect(stack.config.nats_url, name="bench") as client,
    ):
        rig = Rig(stack.config, client, size.warm)
        await rig.fill(size)
        measures: dict[str, Measure] = {
            FETCH: lambda: rig.fetch(size.batch),
            "b": lambda: rig.farside("b", load.EACH, size.each),
            "c1": lambda: rig.farside("c1", load.BATCH, size.batch),
            PUBLISH: lambda: rig.publish(size.publish),
            "c2": lambda: rig.farside("c2", load.BATCH, size.batch),
        }
        return _cases(await interleaved(measures, size.rounds))


def _cases(taken: dict[str, list[float]]) -> dict[str, Case]:
    fetched = {FETCH: taken[FETCH]}
    return {
        "b": Case("one message, one transaction with inbox and effect", UNIT, taken["b"], fetched, ratio_to=FETCH),
        "c1": Case("batches, an effect for each message", UNIT, taken["c1"], fetched, ratio_to=FETCH),
        "c2": Case(
            "batches, an effect and an outgoing message for each message, until the outbox is empty",
            UNIT,
            taken["c2"],
            {PUBLISH: taken[PUBLISH], **fetched},
            ratio_to=PUBLISH,
        ),
    }


class Rig:
    """Brings the servers to the same state before each measure and lets a process of its own take it."""

    def __init__(self, config: Config, client: Client, warm: int) -> None:
        self._config = config
        self._client = client
        self._warm = warm
        overrides = Overrides({}, {}, TENANTS_DIR)
        self._env = apps.service(config, load.SERVICE, Bus(config.nats_url, "bench"), overrides).command.env
        self._log = config.log("bench")

    async def fill(self, size: Load) -> None:
        """Store the messages that every round reads."""
        each, batch = size.each + size.warm, size.batch + size.warm
        say(f"storing {each + batch} messages")
        await load.publish(self._client.js, [load.exited() for _ in range(each)])
        await load.publish(self._client.js, [load.progressed() for _ in range(batch)])

    async def fetch(self, count: int) -> float:
        """Raw nats-py takes messages."""
        await load.renew(self._client.js, load.RAW, load.BATCH)
        return await self._peer("fetch", count)

    async def publish(self, count: int) -> float:
        """Raw nats-py publishes."""
        return await self._peer("publish", count)

    async def _peer(self, what: str, count: int) -> float:
        env = {**self._env, "FARSIDE_NATS_URL": self._config.nats_url}
        return await ask("tests.bench.bus.peer", what, str(count), str(self._warm), env=env, log=self._log)

    async def farside(self, case: str, message: Message[Model], count: int) -> float:
        """A service takes messages, from an empty schema on."""
        await self._empty_schema()
        await self._client.js.purge_stream(registry.JOBS.name)
        await load.renew(self._client.js, load.durable(message), message)
        return await ask("tests.bench.bus.service", case, str(count), str(self._warm), env=self._env, log=self._log)

    async def _empty_schema(self) -> None:
        connection = await connect_once(self._config.pg_dsn)
        try:
            await connection.execute(f"DROP SCHEMA IF EXISTS {load.SERVICE} CASCADE")
            await connection.execute("CHECKPOINT")
        finally:
            await connection.close()
        await prepare_database(self._config.pg_dsn, {load.SERVICE: self._config.secrets[load.SERVICE]})
