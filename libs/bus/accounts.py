"""Who may say and hear what on the bus, derived from the registry and written down for nats-server.

Services share the account that owns the streams, each with permissions of its own. A tenant or a node is a guest: it
has an account to itself, and nothing enters or leaves it but the crossings named here. Permissions alone would not do:
within one account a PubAck, or the answer to a pull, goes to whatever subject the reply names, be it another's
command. Between accounts the server rewrites reply subjects, so an answer reaches the one who asked and nobody else.

No secret is written: passwords come from the environment of nats-server, one variable for each user.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from contracts import registry
from contracts.registry import AGENT, DEADLETTERED, MESSAGES, REPLAYS, REQUESTS, SERVICES, TENANT, Key
from libs.bus.provision import durables_read_by, tenant_durables
from libs.kit.settings import JS_API

HUB_ACCOUNT = "FARSIDE"
OPERATOR = "operator"
GUEST_API = "hub.api"  # `$JS.API` of a guest is answered by its own account, which has no JetStream
GUEST_CONNECTIONS = 256
GUEST_SUBSCRIPTIONS = 4096
REPLIES = ("_INBOX.>", "_R_.>")
PASSWORD = "NATS_PASSWORD"  # noqa: S105 - the prefix of variables' names
REMOTE = "LEAF_REMOTE"


@dataclass(frozen=True)
class Grants:
    """What a user of the hub's account may publish and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


@dataclass(frozen=True)
class Crossing:
    """One way out of a guest's account: `local` there is `subject` in the hub's account.

    `streamed`: a request gets several answers.
    """

    subject: str
    local: str
    streamed: bool = False


@dataclass(frozen=True)
class Guest:
    """A user with an account to itself; both have the same name."""

    name: str
    crossings: tuple[Crossing, ...]


def tenant_user(name: str) -> str:
    """The user (and account) of a tenant."""
    return f"tenant-{name}"


def tenant_of(url: str) -> str | None:
    """The tenant as whose user an address of the bus connects, if it is one's."""
    user = urlsplit(url).username or ""
    name = user.removeprefix(tenant_user(""))
    return name if name != user else None


def node_user(name: str) -> str:
    """The user (and account) of a node's agent."""
    return f"node-{name}"


def service_grants(service: str) -> Grants:
    """What a service needs: its own messages, its own durables, the requests it makes and serves, answers."""
    publish = [
        *(message.subject("*") for message in registry.produced_by(service) if message is not DEADLETTERED),
        *(request.subject("*") for request in REQUESTS if service in request.callers),
        *(way.subject for way in _taking(service, JS_API)),
        *_reading(service),
        *REPLIES,
    ]
    served = [request.subject("*") for request in REQUESTS if request.service == service]
    return Grants(tuple(publish), (f"_INBOX.{service}.>", *served))


def tenant_guest(name: str) -> Guest:
    """A tenant sends its commands, asks about its own and reads its events.

    Each of them through durables made for it, the newest of each kind also by itself.
    """
    own = [
        *(message.subject(name) for message in MESSAGES if TENANT in message.producers),
        *(request.subject(name) for request in REQUESTS if TENANT in request.callers and request.key is Key.TENANT),
    ]
    durables = [(stream.name, durable) for stream, durable, _ in tenant_durables(name)]
    newest = [
        f"DIRECT.GET.{message.stream.name}.{message.subject(name)}"
        for message in MESSAGES
        if TENANT in message.readers and message.key is Key.TENANT
    ]
    ways = [*map(_as_is, own), *_pulling(durables, GUEST_API), *(_api(call, GUEST_API) for call in newest)]
    return Guest(tenant_user(name), tuple(ways))


def node_guest(name: str) -> Guest:
    """A node's agent tells of its node and takes its own work."""
    own = [
        *(message.subject(name) for message in MESSAGES if AGENT in message.producers and message.key is Key.NODE),
        *(request.subject(name) for request in REQUESTS if AGENT in request.callers),
    ]
    return Guest(node_user(name), (*map(_as_is, own), *_taking(f"{AGENT}/{name}", GUEST_API)))


def _taking(owner: str, api: str) -> Iterator[Crossing]:
    """What it takes to consume: the durables, and a place to bury what cannot be handled."""
    durables = list(durables_read_by(owner))
    yield from _pulling(durables, api)
    yield from (_as_is(DEADLETTERED.subject(durable)) for stream, durable in durables if stream != REPLAYS.name)


def _pulling(durables: Iterable[tuple[str, str]], api: str) -> Iterator[Crossing]:
    for stream, durable in durables:
        yield _api(f"CONSUMER.INFO.{stream}.{durable}", api)
        yield _api(f"CONSUMER.MSG.NEXT.{stream}.{durable}", api, streamed=True)
        yield _as_is(f"$JS.ACK.{stream}.{durable}.>")


def _reading(service: str) -> Iterator[str]:
    """The API of a stream that a service reads without a durable.

    Never the right to make one: a stream can be made to copy others, and to publish what it takes under any subject.
    """
    for name in dict.fromkeys(message.stream.name for message in MESSAGES if service in message.readers):
        yield f"{JS_API}.STREAM.INFO.{name}"
        yield f"{JS_API}.DIRECT.GET.{name}"


def _api(call: str, api: str, *, streamed: bool = False) -> Crossing:
    return Crossing(f"{JS_API}.{call}", f"{api}.{call}", streamed)


def _as_is(subject: str) -> Crossing:
    return Crossing(subject, subject)


# ---- as nats-server reads it -----------------------------------------------------------------------------------------


def variable(prefix: str, user: str) -> str:
    """The environment variable that belongs to a user: `NATS_PASSWORD_NODE_CENTRAL_1`."""
    return f"{prefix}_{user.upper().replace('-', '_')}"


def hub_accounts(nodes: Iterable[str], tenants: Iterable[str]) -> str:
    """The accounts of the hub, with these nodes and tenants as guests."""
    guests = [*map(node_guest, nodes), *map(tenant_guest, tenants)]
    lines = [
        *_HEAD,
        "accounts {",
        f"  {HUB_ACCOUNT} {{",
        "    jetstream: enabled",
        "    users: [",
        f"      {_user(OPERATOR)}",
        *(line for service in SERVICES for line in _service(service)),
        "    ]",
        "    exports: [",
        *(f"      {_export(guest, way)}" for guest in guests for way in guest.crossings),
        "    ]",
        "  }",
        *(line for guest in guests for line in _guest(guest)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def leaf_accounts(nodes: Iterable[str]) -> str:
    """The accounts of a leaf node, one for each node behind it, and for each its own way to the hub."""
    names = [node_user(name) for name in nodes]
    remotes = [f"    {{ url: ${variable(REMOTE, name)}, account: {_quoted(name)} }}" for name in names]
    accounts = [line for name in names for line in _account(name)]
    lines = [
        *_HEAD,
        "accounts {",
        *accounts,
        "}",
        "leafnodes {",
        '  reconnect: "1s"',
        "  remotes: [",
        *remotes,
        "  ]",
        "}",
    ]
    return "\n".join(lines) + "\n"


_HEAD = ("# Made by `farside accounts` from the registry; do not edit.",)


def _service(service: str) -> Iterator[str]:
    grants = service_grants(service)
    yield f"      {{ user: {service}, password: ${variable(PASSWORD, service)}, permissions: {{"
    for verb, subjects in (("publish", grants.publish), ("subscribe", grants.subscribe)):
        yield f"        {verb}: ["
        yield from (f"          {_quoted(subject)}" for subject in subjects)
        yield "        ]"
    yield "      } }"


def _guest(guest: Guest) -> Iterator[str]:
    yield from _account(guest.name, "    imports: [", *map(_import, guest.crossings), "    ]")


def _account(name: str, *more: str) -> Iterator[str]:
    yield f"  {_quoted(name)} {{"
    yield f"    users: [ {_user(name)} ]"
    yield f"    limits: {{ max_connections: {GUEST_CONNECTIONS}, max_subscriptions: {GUEST_SUBSCRIPTIONS} }}"
    yield from more
    yield "  }"


def _import(way: Crossing) -> str:
    renamed = "" if way.local == way.subject else f", to: {_quoted(way.local)}"
    return f"      {{ service: {{ account: {HUB_ACCOUNT}, subject: {_quoted(way.subject)} }}{renamed} }}"


def _export(guest: Guest, way: Crossing) -> str:
    answers = ", response_type: stream" if way.streamed else ""
    return f"{{ service: {_quoted(way.subject)}, accounts: [{_quoted(guest.name)}]{answers} }}"


def _user(name: str) -> str:
    return f"{{ user: {_quoted(name)}, password: ${variable(PASSWORD, name)} }}"


def _quoted(text: str) -> str:
    return f'"{text}"'
