"""The words of the registry: participants, streams, consumers, messages and requests as rows of tables."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, TypeVar

from contracts.base import Model

M = TypeVar("M", bound=Model, covariant=True)
R = TypeVar("R", bound=Model, covariant=True)

DAY_S = 24 * 3600
NO_KEY = "_"


class Kind(StrEnum):
    """Commands are imperative and wait in a work queue; events are in past tense and can be replayed."""

    COMMAND = "command"
    EVENT = "event"


class Key(StrEnum):
    """What the last token of the subject names."""

    TENANT = "tenant"
    NODE = "node"
    CONSUMER = "consumer"
    NONE = "none"


def placeholder(key: Key) -> str:
    """How the last token is written in templates: `{tenant}`, or `_` where there is no key."""
    return NO_KEY if key is Key.NONE else f"{{{key.value}}}"


TENANT = "tenant"
OPERATOR = "operator"
AGENT = "agent"
INVENTORY = "inventory"
SCHEDULER = "scheduler"
CHECKPOINT = "checkpoint"
TRANSFER = "transfer"
METERING = "metering"
BILLING = "billing"
ALERTING = "alerting"
EVERY_SERVICE = "every-service"

SERVICES = (INVENTORY, SCHEDULER, CHECKPOINT, TRANSFER, METERING, BILLING, ALERTING)


@dataclass(frozen=True)
class Stream:
    """One JetStream stream. `dedup_s` is short where outsiders publish: the inbox is the truth, not the window.

    `waiting_per_key`: how many messages of one subject may wait to be read; who sends more is refused, others are not.
    Where not `synced`, a PubAck does not wait for the disk: a server that is killed may lose what it has acknowledged.
    """

    name: str
    retention: Literal["workqueue", "limits"]
    max_age_s: int
    dedup_s: float
    newest_only: bool = False
    waiting_per_key: int | None = None
    synced: bool = True


@dataclass(frozen=True)
class Consumer:
    """Who reads a message. One durable per service and message; `per_node` makes one for each node of the fleet.

    `batch` is the number of messages taken in one transaction; 1 means a transaction each. `ack_wait_s` is how long a
    delivery lost with its connection stays away; libs.bus keeps what is being handled alive, however long it takes.
    """

    service: str
    batch: int = 1
    ack_wait_s: float = 10.0
    per_node: bool = False


@dataclass(frozen=True)
class Message(Generic[M]):
    """One message of the language, version 1.

    `producers` may publish it; the first is the owner. `readers` read it without a durable (tools and tenants). A row
    may be born with status `draft`: nothing is promised of its schema until a commit in which it is stable.
    """

    domain: str
    name: str
    kind: Kind
    key: Key
    stream: Stream
    model: type[M]
    producers: tuple[str, ...]
    consumers: tuple[Consumer, ...] = ()
    readers: tuple[str, ...] = ()
    status: Literal["draft", "stable"] = "stable"
    version: int = 1

    @property
    def id(self) -> str:
        """`jobs.submit.v1`: names the schema file and the examples."""
        return f"{self.domain}.{self.name}.v{self.version}"

    @property
    def type(self) -> str:
        """The CloudEvents type."""
        return f"io.farside.{self.id}"

    def subject(self, key: str) -> str:
        """The subject of this message for one key (or `*`)."""
        return f"{self.domain}.v{self.version}.{self.name}.{key}"

    @property
    def template(self) -> str:
        """The subject with its key as a placeholder: for span names, metrics and documents."""
        return self.subject(placeholder(self.key))


@dataclass(frozen=True)
class Request(Generic[M, R]):
    """One request with its reply. A `query` only reads; a `call` may change state and is safe to repeat."""

    verb: Literal["query", "call"]
    service: str
    name: str
    key: Key
    model: type[M]
    reply: type[R]
    callers: tuple[str, ...]
    status: Literal["draft", "stable"] = "stable"

    @property
    def id(self) -> str:
        """`query.scheduler.jobs.v1`: names the schema files."""
        return f"{self.verb}.{self.service}.{self.name}.v1"

    def subject(self, key: str) -> str:
        """The subject of this request for one key (or `*`)."""
        return f"{self.verb}.v1.{self.service}.{self.name}.{key}"

    @property
    def template(self) -> str:
        """The subject with its key as a placeholder."""
        return self.subject(placeholder(self.key))
