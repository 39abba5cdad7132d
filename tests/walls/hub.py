"""A hub and a leaf node as they are deployed, and principals that speak plain NATS to them."""

import asyncio
import contextlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import nats
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from contracts.registry import SERVICES, STREAMS
from deploy.local.ports import free_port
from libs.bus.accounts import (
    OPERATOR,
    PASSWORD,
    REMOTE,
    hub_accounts,
    leaf_accounts,
    node_user,
    tenant_user,
    variable,
)
from tests.servers import NatsServer, listening

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nats"
TENANTS = ACME, BETA = "acme", "beta"
NODES = CENTRAL_1, CENTRAL_2, REMOTE_1, REMOTE_2 = "central-1", "central-2", "remote-1", "remote-2"
ANSWER_S = 10.0
ONE = b'{"batch":1,"expires":5000000000}'


class WalledServer(NatsServer):
    """nats-server with one of the files of deploy/nats; every user has a password of its own."""

    conf = "hub.conf"
    include = "accounts.conf"

    def __init__(self) -> None:
        super().__init__()
        self.monitor = free_port()
        self.passwords = {user: f"p-{user}" for user in self.users()}

    def users(self) -> Iterable[str]:
        return (OPERATOR, *SERVICES, *map(node_user, NODES), *map(tenant_user, TENANTS))

    def accounts(self) -> str:
        return hub_accounts(NODES, TENANTS)

    def variables(self) -> Mapping[str, str]:
        return {
            "HUB_NAME": "hub",
            "HUB_HOST": '"127.0.0.1"',
            "HUB_PORT": str(self.port),
            "HUB_MONITOR": f'"127.0.0.1:{self.monitor}"',
            "HUB_LEAF_PORT": str(self.leaf_port),
            "HUB_STORE": f'"{self.directory / "js"}"',
        }

    def as_(self, user: str) -> str:
        """The address with the name and password of a user."""
        return f"nats://{user}:{self.passwords[user]}@127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        (self.directory / self.conf).write_text((CONFIGURATION / self.conf).read_text())
        (self.directory / self.include).write_text(self.accounts())
        return [*super().command()[:1], "-c", str(self.directory / self.conf)]

    def _spawn(self) -> subprocess.Popen[bytes]:
        words = {variable(PASSWORD, user): word for user, word in self.passwords.items()}
        env = {**os.environ, **words, **self.variables()}
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)


class WalledLeaf(WalledServer):
    """The leaf node of a site with some nodes behind it."""

    name = "leaf"
    conf = "leaf.conf"
    include = "leaf_accounts.conf"

    def __init__(self, hub: WalledServer, *nodes: str) -> None:
        self.nodes = nodes
        self.hub = hub
        super().__init__()

    def users(self) -> Iterable[str]:
        return map(node_user, self.nodes)

    def accounts(self) -> str:
        return leaf_accounts(self.nodes)

    def remote(self, user: str) -> str:
        """How the leaf node comes to the hub for one of its nodes."""
        return f"nats-leaf://{user}:{self.hub.passwords[user]}@127.0.0.1:{self.hub.leaf_port}"

    def variables(self) -> Mapping[str, str]:
        remotes = {variable(REMOTE, user): f'"{self.remote(user)}"' for user in self.passwords}
        return {
            "LEAF_NAME": "leaf",
            "LEAF_HOST": '"127.0.0.1"',
            "LEAF_PORT": str(self.port),
            "LEAF_MONITOR": f'"127.0.0.1:{self.monitor}"',
            **remotes,
        }

    def ready(self) -> bool:
        return listening(self.port)


@dataclass
class Principal:
    """Somebody with a password and no manners."""

    user: str
    nc: Nats
    refused: list[str] = field(default_factory=list[str])
    heard: list[Msg] = field(default_factory=list[Msg])

    @property
    def _untyped(self) -> Any:
        """Some parameters of nats-py have no type."""
        return self.nc

    @property
    def js(self) -> JetStreamContext:
        return JetStreamContext(self.nc, timeout=ANSWER_S)

    async def say(self, subject: str, data: bytes = b"{}", *, reply: str = "", **headers: str) -> None:
        """Publish, with `reply` as the reply subject; in names of headers `_` stands for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.nc.publish(subject, data, reply=reply, headers=named or None)

    async def ask(self, subject: str, data: bytes = b"", headers: dict[str, str] | None = None) -> Msg | None:
        """The answer to a request; None when nobody answers or the request may not be sent."""
        try:
            return await self.nc.request(subject, data, timeout=ANSWER_S, headers=headers)
        except (NoRespondersError, NatsTimeoutError):
            return None

    async def take(self, more: str) -> Msg | None:
        """One message of a durable by the subject at which it is asked for more; None when there is none."""
        inbox = self.nc.new_inbox()
        subscription = await self._untyped.subscribe(inbox, max_msgs=1)
        await self.say(more, ONE, reply=inbox)
        try:
            message: Msg = await subscription.next_msg(timeout=ANSWER_S)
        except NatsTimeoutError:
            return None
        return message if message.reply else None

    async def listen(self, subject: str) -> None:
        """Hear what comes on `subject` from now on; a refusal is told by `refused`."""

        async def hear(message: Msg) -> None:
            self.heard.append(message)

        await self._untyped.subscribe(subject, cb=hear)
        await self.settle()

    async def serve(self, subject: str, answer: bytes) -> None:
        """Answer every request on `subject` in the same words."""

        async def respond(request: Msg) -> None:
            if request.reply:
                await request.respond(answer)

        await self._untyped.subscribe(subject, cb=respond)
        await self.settle()

    async def settle(self) -> None:
        """Return when the server has handled what was sent before."""
        for _ in range(2):
            await self.nc.flush(timeout=10)


@asynccontextmanager
async def principal(server: WalledServer, user: str, **options: Any) -> AsyncGenerator[Principal]:
    """Connect as a user, without reconnecting."""
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error))

    settings = {"inbox_prefix": f"_INBOX.{user}", "allow_reconnect": False, "connect_timeout": 10, **options}
    nc: Nats = await cast("Any", nats).connect(server.as_(user), error_cb=note, **settings)
    try:
        yield Principal(user, nc, refused)
    finally:
        await nc.close()


@dataclass(frozen=True)
class Line:
    """A connection without a client library: words go out as they are."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def told(self, wanted: bytes) -> bytes:
        """Everything that the server says up to `wanted`, or to the end of the connection."""
        said = b""
        with contextlib.suppress(ConnectionError):
            while wanted not in said:
                part = await asyncio.wait_for(self.reader.read(65536), 10)
                if not part:
                    break
                said += part
        return said


@asynccontextmanager
async def line(
    server: WalledServer, user: str, password: str | None = None, *, words: dict[str, str] | None = None
) -> AsyncGenerator[Line]:
    """Connect and name oneself, or say other `words`; the server has not answered yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        await reader.readline()
        word = server.passwords[user] if password is None else password
        who = {"user": user, "pass": word} if words is None else words
        said = json.dumps({**who, "verbose": False, "pedantic": False, "headers": True, "protocol": 1})
        writer.write(b"CONNECT %s\r\nPING\r\n" % said.encode())
        yield Line(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@dataclass(frozen=True)
class Stored:
    """One message of a stream."""

    stream: str
    subject: str
    data: bytes


async def stored(operator: Principal) -> Counter[Stored]:
    """All that all streams hold."""
    found: Counter[Stored] = Counter()
    js = JetStreamContext(operator.nc, timeout=10)
    for stream in STREAMS:
        state = (await js.stream_info(stream.name)).state
        for sequence in range(max(1, state.first_seq), state.last_seq + 1):
            try:
                message = await js.get_msg(stream.name, seq=sequence)
            except NotFoundError:
                continue
            found[Stored(stream.name, message.subject or "", message.data or b"")] += 1
    return found
