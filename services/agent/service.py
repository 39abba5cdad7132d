"""Puts an agent together: settings in, a ready App out."""

import sqlite3
from dataclasses import dataclass

from libs.bus import App, SqliteLedger
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.objects import AsyncStore
from services.agent import probe
from services.agent.agent import Agent
from services.agent.cache import Cache
from services.agent.core.model import Speaker
from services.agent.ending import end_attempts
from services.agent.executor import Executor, ProcessExecutor
from services.agent.fetch import Fetcher, Limits
from services.agent.handlers import Handlers
from services.agent.journal import Journal
from services.agent.lease import LeaseKeeper
from services.agent.places import Places
from services.agent.ports import Ports
from services.agent.settings import AgentSettings
from services.agent.tools import Tools
from services.agent.unpack import Bound

SERVICE = "agent"
SHUTDOWN_GRACE_S = 5.0


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

    async def run(self) -> None:
        """Run until told to stop. Attempts go on without the agent, unless the settings say otherwise."""
        try:
            await self.app.run()
        finally:
            await self.objects.close()
            self.ledger.close()
            if self.settings.end_attempts_on_stop:
                end_attempts(self.places.attempts, self.executor, SHUTDOWN_GRACE_S)
            self.places.leave()


def build(settings: AgentSettings) -> Service:
    """Make folders, journal and connections' ends; nothing is sent before `run`."""
    places = Places(settings)
    places.make()
    ledger = SqliteLedger(places.database, f"/farside/agent/{settings.node}", "services.agent")
    app: App[sqlite3.Connection] = App(SERVICE, settings, ledger, node=settings.node, leader=True)
    objects, executor = AsyncStore.open(settings), executor_of(settings)
    journal = Journal(app.transaction, Speaker(settings.node, new_id()), SystemClock())
    cache, ports = Cache(places.cache, settings.cache_bytes), Ports(settings.address)
    facts = probe.facts(settings, probe.load_nvml() if settings.nvml else None)
    limits = Limits(settings.artefact_bytes, Bound(settings.unpacked_bytes, settings.unpacked_files))
    tools = Tools(
        settings=settings,
        places=places,
        journal=journal,
        lease=LeaseKeeper(places.lease, settings.lease_s),
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
    app.task(agent.supervise)
    app.task(agent.heartbeats)
    app.task(agent.clean)
    return Service(settings, places, app, ledger, objects, executor)
