"""What the supervisor asks over the bus: whether a service answers, and what inventory knows of a node."""

import asyncio

from nats.errors import Error as NatsError

from contracts import registry, requests
from contracts.nodes import NodeState
from libs.bus.client import Client
from libs.bus.errors import BusError

REQUEST_S = 1.0
CONNECT_S = 2.0
PAGES_LIMIT = 100


class Bus:
    """One connection, made when first needed. While nobody answers, every answer is None."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def status(self, service: str) -> requests.ServiceStatus | None:
        """How a service says it is."""
        try:
            client = await self._connected()
            question = requests.StatusQuery()
            return await client.request(registry.STATUS[service], question, key=registry.NO_KEY, timeout_s=REQUEST_S)
        except (OSError, TimeoutError, NatsError, BusError):
            return None

    async def node(self, name: str) -> NodeState | None:
        """A node as inventory has it; None also when inventory does not know it."""
        question = requests.NodesQuery()
        try:
            client = await self._connected()
            for _ in range(PAGES_LIMIT):
                page = await client.request(registry.QUERY_NODES, question, key=registry.NO_KEY, timeout_s=REQUEST_S)
                found = next((state for state in page.nodes if state.node == name), None)
                if found is not None or page.cursor is None:
                    return found
                question = requests.NodesQuery(cursor=page.cursor)
        except (OSError, TimeoutError, NatsError, BusError):
            return None
        return None

    async def announced(self, node: str) -> str | None:
        """The incarnation that the node's agent last announced, whether or not inventory knows of it yet."""
        try:
            client = await self._connected()
            event = await client.last(registry.NODES_ANNOUNCED, key=node)
        except (OSError, TimeoutError, NatsError, BusError):
            return None
        return None if event is None else event.body.incarnation

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _connected(self) -> Client:
        async with self._connecting, asyncio.timeout(CONNECT_S):
            if self._client is None:
                self._client = await Client.connect(self._url, name=self._name)
            return self._client
