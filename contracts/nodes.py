"""Nodes: what an agent says of its machine, and the state that inventory keeps of it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from contracts.base import Count, Label, Model, Name, Open, Positive, Text, Tier, Utc, Uuid


class CardSource(StrEnum):
    """Whether a card was seen through NVML or only declared in the node's configuration."""

    NVML = "nvml"
    DECLARED = "declared"


class Card(Model):
    """One accelerator card."""

    index: Count
    uuid: Label
    model: Label
    memory_bytes: Positive
    source: Open[CardSource]


class LiveAttempt(Model):
    """One attempt that an agent is responsible for at this moment."""

    job_id: Uuid
    attempt: Positive
    member: Count


class NodeFacts(Model):
    """What a node is: facts that change only when its agent starts anew."""

    node: Name
    tier: Tier
    zone: Name
    address: Text
    version: Label
    cpu_milli: Count
    memory_bytes: Count
    cards: Annotated[list[Card], Field(max_length=1024)]
    link_mbps: Count | None = None


class NodeAnnounced(Model):
    """An agent has started. `incarnation` is new at every start; `attempts` are those it adopted."""

    facts: NodeFacts
    incarnation: Uuid
    attempts: list[LiveAttempt] = []
    announced_at: Utc


class NodeHeartbeat(Model):
    """Sign of life, newest only. `lease_s` is what the agent counts from the sending of an acknowledged heartbeat."""

    node: Name
    incarnation: Uuid
    counter: Count
    lease_s: Positive
    attempts: list[LiveAttempt] = []
    sent_at: Utc


class ClockTick(Model):
    """Inventory's own mark in the heartbeat stream: whoever has read it has read every heartbeat before it."""

    counter: Count
    reader: Uuid


class NodePhase(StrEnum):
    """Health of a node as inventory judges it.

    Work is placed on a `ready` node only; a phase that a reader does not know says nothing of the work that is there.
    """

    READY = "ready"
    SUSPECT = "suspect"
    LOST = "lost"


class NodeState(Model):
    """The full state of a node after a transition; `version` is the event's `ce-sequence`."""

    node: Name
    version: Positive
    state: Open[NodePhase]
    facts: NodeFacts
    incarnation: Uuid
    attempts: list[LiveAttempt] = []
    reason: Text = ""
    requeue_held: bool = False
    since: Utc
