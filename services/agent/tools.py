"""What every attempt on this node shares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contracts.nodes import Card
from libs.bus import Client
from libs.objects import AsyncStore
from services.agent.cache import Cache
from services.agent.executor import Executor
from services.agent.fetch import Fetcher
from services.agent.journal import Journal
from services.agent.lease import LeaseKeeper
from services.agent.places import Places
from services.agent.ports import Ports
from services.agent.settings import AgentSettings


@dataclass(frozen=True)
class Tools:
    """The agent's own resources, made once at its start."""

    settings: AgentSettings
    places: Places
    journal: Journal
    lease: LeaseKeeper
    executor: Executor
    client: Callable[[], Client]
    objects: AsyncStore
    cache: Cache
    fetcher: Fetcher
    ports: Ports
    cards: Sequence[Card]
