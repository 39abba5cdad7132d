"""Everything there is to say, to ask and to read, from the registry, and whose it is."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contracts import registry
from contracts.registry import AGENT, MESSAGES, REQUESTS, STREAMS, TENANT, Key, Stream
from libs.bus.accounts import GUEST_API, node_user, tenant_user
from libs.bus.provision import consumer_configs, tenant_durables
from tests.walls.hub import NODES, TENANTS

DURABLES = [(stream, str(config.durable_name)) for stream, config in consumer_configs(NODES, TENANTS)]
APIS = ("$JS.API", "$JS.hub.API", GUEST_API)
NEW_STREAM = "MINE"


@dataclass(frozen=True)
class Side:
    """A guest as the tests see it: its name, and one thing of each sort that it may do."""

    user: str
    kind: str
    name: str
    says: str
    asks: str
    reads: tuple[str, str]
    news: str
    """What the operator publishes to be read by it."""

    @property
    def more(self) -> str:
        """Where it asks for messages of its durable."""
        return f"{GUEST_API}.CONSUMER.MSG.NEXT.{'.'.join(self.reads)}"

    @property
    def info(self) -> str:
        """Where it asks how its durable is."""
        return f"{GUEST_API}.CONSUMER.INFO.{'.'.join(self.reads)}"

    def mine(self, producers: Sequence[str], kind: Key, key: str) -> bool:
        """Whether a message or a request under `key` is its own to send."""
        if self.kind not in producers:
            return False
        if kind is Key.CONSUMER:
            return (self.kind == AGENT) and key in _durables_of_node(self.name)
        return key == self.name and kind is (Key.TENANT if self.kind == TENANT else Key.NODE)

    def others(self) -> list[str]:
        """Every subject of a message, request or replay that is not its own to send."""
        messages = [
            message.subject(key)
            for message in MESSAGES
            for key in keys(message.key)
            if not self.mine(message.producers, message.key, key)
        ]
        requests = [
            request.subject(key)
            for request in REQUESTS
            for key in (*keys(request.key), registry.NO_KEY)
            if not self.mine(request.callers, request.key, key)
        ]
        replays = [registry.replay_subject(durable) for _, durable in DURABLES]
        return [*messages, *dict.fromkeys(requests), *replays]

    def others_durables(self) -> list[tuple[str, str]]:
        """Stream and durable of everybody else."""
        own = {durable for _, durable, _ in tenant_durables(self.name)} if self.kind == TENANT else set[str]()
        if self.kind == AGENT:
            own = {*_durables_of_node(self.name), f"agent-replay-{self.name}"}
        return [(stream, durable) for stream, durable in DURABLES if durable not in own]


def tenant(name: str) -> Side:
    """A tenant."""
    return Side(
        user=tenant_user(name),
        kind=TENANT,
        name=name,
        says=registry.JOBS_SUBMIT.subject(name),
        asks=registry.QUERY_JOB.subject(name),
        reads=("JOBS", f"tenant-{name}-JOBS"),
        news=registry.JOBS_ACCEPTED.subject(name),
    )


def node(name: str) -> Side:
    """A node's agent."""
    return Side(
        user=node_user(name),
        kind=AGENT,
        name=name,
        says=registry.ATTEMPTS_STARTED.subject(name),
        asks=registry.CALL_CLAIM.subject(name),
        reads=("WORK_CMD", f"agent-work-run-{name}"),
        news=registry.WORK_RUN.subject(name),
    )


def keys(kind: Key) -> tuple[str, ...]:
    """The last tokens that subjects of this kind have here."""
    match kind:
        case Key.TENANT:
            return TENANTS
        case Key.NODE:
            return NODES
        case Key.CONSUMER:
            return tuple(durable for _, durable in DURABLES)
        case Key.NONE:
            return (registry.NO_KEY,)


def api_calls(stream: Stream, durables: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Every way in which the JetStream API changes or reads a stream, without its prefix, and a body that would do."""
    name = stream.name
    anything = f"{_subject_of(stream)}.>"
    consumer = {"durable_name": "keeper", "name": "keeper", "ack_policy": "explicit", "deliver_policy": "all"}
    create = json.dumps({"stream_name": name, "config": {"name": "thief", "ack_policy": "none"}}).encode()
    durable = json.dumps({"stream_name": name, "config": consumer}).encode()
    filtered = {"name": "thief", "ack_policy": "none", "filter_subject": anything}
    yield f"STREAM.INFO.{name}", b""
    yield f"STREAM.MSG.GET.{name}", b'{"seq":1}'
    yield f"STREAM.MSG.DELETE.{name}", b'{"seq":1}'
    yield f"STREAM.SNAPSHOT.{name}", b'{"deliver_subject":"mine"}'
    yield f"STREAM.RESTORE.{name}", b"{}"
    yield f"STREAM.LEADER.STEPDOWN.{name}", b""
    yield f"DIRECT.GET.{name}", b'{"seq":1}'
    yield f"DIRECT.GET.{name}", json.dumps({"multi_last": [">"], "batch": 100}).encode()
    yield f"DIRECT.GET.{name}", json.dumps({"next_by_subj": ">", "batch": 100}).encode()
    yield f"CONSUMER.CREATE.{name}", create
    yield f"CONSUMER.CREATE.{name}.thief", create
    yield f"CONSUMER.CREATE.{name}.thief.{anything}", json.dumps({"stream_name": name, "config": filtered}).encode()
    yield f"CONSUMER.DURABLE.CREATE.{name}.keeper", durable
    yield f"CONSUMER.NAMES.{name}", b""
    yield f"CONSUMER.LIST.{name}", b""
    for one in durables:
        yield f"CONSUMER.INFO.{name}.{one}", b""
        yield f"CONSUMER.MSG.NEXT.{name}.{one}", b'{"batch":10,"no_wait":true}'
        yield f"CONSUMER.PAUSE.{name}.{one}", b'{"pause_until":"2999-01-01T00:00:00Z"}'
        yield f"CONSUMER.RESET.{name}.{one}", b'{"seq":1}'
        yield f"CONSUMER.UNPIN.{name}.{one}", b'{"group":"x"}'
        yield f"CONSUMER.LEADER.STEPDOWN.{name}.{one}", b""
        yield f"CONSUMER.DELETE.{name}.{one}", b""
    yield f"STREAM.UPDATE.{name}", json.dumps({"name": name, "subjects": ["mine.>"]}).encode()
    yield f"STREAM.PURGE.{name}", b""
    yield f"STREAM.DELETE.{name}", b""


def api_of_all(durables: Sequence[tuple[str, str]]) -> Iterator[tuple[str, bytes]]:
    """The API of all streams and of these durables."""
    copy = {"name": NEW_STREAM, "storage": "memory", "sources": [{"name": stream.name} for stream in STREAMS]}
    yield "INFO", b""
    yield "STREAM.NAMES", b""
    yield "STREAM.LIST", b""
    yield "META.LEADER.STEPDOWN", b""
    yield "ACCOUNT.PURGE.FARSIDE", b""
    yield f"STREAM.CREATE.{NEW_STREAM}", json.dumps(copy).encode()
    for stream in STREAMS:
        yield from api_calls(stream, [durable for name, durable in durables if name == stream.name])


def _subject_of(stream: Stream) -> str:
    return next((message.domain for message in MESSAGES if message.stream is stream), "replay")


def _durables_of_node(name: str) -> list[str]:
    return [
        registry.durable(message, consumer, name)
        for message, consumer in registry.consumed_by(AGENT)
        if consumer.per_node
    ]
