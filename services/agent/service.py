"""Puts an agent together, and runs it: settings in, an agent that minds its attempts with or without the bus out."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from libs.bus import App, SqliteLedger
from libs.bus.ledger_sqlite import FileElection
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.kit.logs import get_logger
from libs.objects import AsyncStore
from services.agent.agent import Agent
from services.agent.cache import Cache
from services.agent.core.model import ALIVE, BEFORE_SPAWN, AttemptKey, Phase, Speaker
from services.agent.ending import end_attempts
from services.agent.executor import Alive, Executor, ProcessExecutor
from services.agent.fetch import Fetcher, Limits
from services.agent.handlers import Handlers
from services.agent.journal import Journal
from services.agent.lease import LeaseKeeper
from services.agent.meter import Meter
from services.agent.places import Places
from services.agent.ports import Ports
from services.agent.probe.driver import Driver, load_nvml
from services.agent.probe.facts import facts as facts_of
from services.agent.reporting import Reporter
from services.agent.settings import AgentSettings
from services.agent.tools import Tools
from services.agent.unpack import Bound

SERVICE = "agent"
SHUTDOWN_GRACE_S = 5.0
LOCK_POLL_S = 0.2
RESTART_PAUSE_S = 1.0


def executor_of(settings: AgentSettings) -> Executor:
    """The engine that the settings name."""
    match settings.executor:
        case "process":
            return ProcessExecutor()


@dataclass(frozen=True)
class Service:
    """An agent that is ready to run."""

    settings: AgentSettings
    places: Places
    app: App[sqlite3.Connection]
    ledger: SqliteLedger
    objects: AsyncStore
    executor: Executor
    meter: Meter
    reporter: Reporter
    agent: Agent

    async def run(self) -> None:
        """Run until told to stop. Attempts go on without the agent, unless the settings say otherwise.

        A second agent on the same folder waits here for the first to end. Attempts are minded from the start, also
        while the hub is away; claims, heartbeats and messages wait for it.
        """
        lock = FileElection(self.places.state / SERVICE)
        await lock.win(LOCK_POLL_S)
        minded = (self.agent.supervise, self.agent.clean, self._measure, self._report)
        loops = [asyncio.create_task(self._mind(loop)) for loop in minded]
        try:
            await self.app.run()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self.objects.close()
            self.ledger.close()
            if self.settings.end_attempts_on_stop:
                end_attempts(self.places.attempts, self.executor, SHUTDOWN_GRACE_S)
            self.places.leave()
            await lock.resign()

    async def _measure(self) -> None:
        await self.meter.run(self.app.transaction, self._lives)

    async def _report(self) -> None:
        await self.reporter.run(self.app.transaction)

    def _lives(self, key: AttemptKey, phase: Phase) -> bool:
        """Whether an attempt that holds cards is known to go on at this moment. Of one that ends the exit will tell."""
        if phase in BEFORE_SPAWN:
            return True
        sighting = self.executor.look(self.places.folder(key))
        return phase in ALIVE and isinstance(sighting, Alive)

    async def _mind(self, loop: Callable[[], Awaitable[None]]) -> None:
        """A loop that fails is begun anew: it reads everything it needs from the journal."""
        while True:
            try:
                await loop()
            except Exception:  # noqa: BLE001 - logged whole
                get_logger().exception("agent.loop_failed", node=self.settings.node)
                await asyncio.sleep(RESTART_PAUSE_S)


def build(settings: AgentSettings) -> Service:
    """Make folders, journal and connections' ends; nothing is sent before `run`."""
    places = Places(settings)
    places.make()
    ledger = SqliteLedger(places.database, f"/farside/agent/{settings.node}", "services.agent")
    app: App[sqlite3.Connection] = App(SERVICE, settings, ledger, node=settings.node)
    objects, executor = AsyncStore.open(settings), executor_of(settings)
    driver = Driver(load_nvml() if settings.nvml else None)
    facts = facts_of(settings, driver)
    me, clock = Speaker(settings.node, new_id()), SystemClock()
    lease = LeaseKeeper(places.lease, settings.lease_s)
    meter = Meter(me, facts.cards, settings.usage_period_s, clock, lease.end_of)
    journal = Journal(app.transaction, me, clock, meter)
    cache, ports = Cache(places.cache, settings.cache_bytes), Ports(settings.address)
    limits = Limits(settings.artefact_bytes, Bound(settings.unpacked_bytes, settings.unpacked_files))
    tools = Tools(
        settings=settings,
        places=places,
        journal=journal,
        lease=lease,
        executor=executor,
        client=lambda: app.client,
        objects=objects,
        cache=cache,
        fetcher=Fetcher(lambda: app.client, objects, cache, limits, settings.node),
        ports=ports,
        cards=facts.cards,
    )
    agent = Agent(tools, facts)
    Handlers(journal, ports, agent).register(app)
    app.task(agent.heartbeats)
    reporter = Reporter(settings, places, driver, facts.cards, me, clock)
    return Service(settings, places, app, ledger, objects, executor, meter, reporter, agent)
