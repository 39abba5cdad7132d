"""Nodes: what an agent says of its machine, and the state that inventory keeps of it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from contracts.base import Count, Label, Model, Name, Open, Positive, Text, Tier, Utc, Uuid, Word


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


class LinkKind(StrEnum):
    """What joins the cards of a node, or the node to others."""

    NVSWITCH = "nvswitch"
    NVLINK = "nvlink"
    PCIE = "pcie"
    INFINIBAND = "infiniband"
    ROCE = "roce"
    ETHERNET = "ethernet"
    RADIO = "radio"
    OPTICAL = "optical"


class LinkCharge(StrEnum):
    """How the use of a link is paid for."""

    FREE = "free"
    FLAT = "flat"
    VOLUME = "volume"
    PEAK = "peak"


class Link(Model):
    """A link with the bandwidth it is sold as, what was measured of it, and the most that may be used of it."""

    kind: Open[LinkKind]
    nominal_mbps: Count | None = None
    effective_mbps: Count | None = None
    ceiling_mbps: Count | None = None
    charge: Open[LinkCharge] | None = None


class MonthlyCost(Model):
    """A node's share of power and depreciation for a month, in millionths of the currency."""

    currency: Word
    power_micro: Count = 0
    depreciation_micro: Count = 0


class LiveAttempt(Model):
    """One attempt that an agent is responsible for at this moment."""

    job_id: Uuid
    attempt: Positive
    member: Count


class NodeFacts(Model):
    """What a node is: facts that change only when its agent starts anew.

    `prechecks` names the checks that the agent runs before first work and reports in `nodes.reported`: until each has
    passed the node is `announced`. An agent that names none vouches for its node by announcing it.
    `card_link` joins the cards, `node_link` the node to others; `link_mbps` is the way to the centre.
    """

    node: Name
    tier: Tier
    zone: Name
    address: Text
    version: Label
    cpu_milli: Count
    memory_bytes: Count
    cards: Annotated[list[Card], Field(max_length=1024)]
    link_mbps: Count | None = None
    generation: Label | None = None
    rack: Name | None = None
    card_link: Link | None = None
    node_link: Link | None = None
    cost: MonthlyCost | None = None
    power_limit_w: Count | None = None
    heat_limit_w: Count | None = None
    boot_id: Label | None = None
    prechecks: Annotated[list[Word], Field(max_length=64)] = []


class NodeAnnounced(Model):
    """An agent has started. `incarnation` is new at every start; `attempts` are those it adopted."""

    facts: NodeFacts
    incarnation: Uuid
    attempts: list[LiveAttempt] = []
    announced_at: Utc


class NodeHeartbeat(Model):
    """Sign of life, newest only. `lease_s` is what the agent counts from the sending of an acknowledged heartbeat.

    `round_trip_ms` is how long the heartbeat before this one took to its acknowledgement: `sent_at` may be older than
    the time at which the stream stored the message by that much, without the node's clock being wrong.
    """

    node: Name
    incarnation: Uuid
    counter: Count
    lease_s: Positive
    attempts: list[LiveAttempt] = []
    sent_at: Utc
    round_trip_ms: Count | None = None


class ClockTick(Model):
    """Inventory's own mark in the heartbeat stream: whoever has read it has read every heartbeat before it."""

    counter: Count
    reader: Uuid


class NodePhase(StrEnum):
    """Health of a node as inventory judges it.

    Work is placed on a `ready` node only. `announced`: its checks before first work are awaited; `checked`: they passed
    and its first heartbeat is awaited. `quarantined`: faulty, out of the pool. `draining`: by order, its work is to
    leave; `retired`: by order, for good. In all of these the agent is there and its work may run on; whoever is
    `suspect` has been silent for a while, and what ran on a `lost` node is dead. A phase that a reader does not know
    says nothing of the work that is there.
    """

    READY = "ready"
    SUSPECT = "suspect"
    LOST = "lost"
    ANNOUNCED = "announced"
    CHECKED = "checked"
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    RETIRED = "retired"


class NodeClass(StrEnum):
    """What a node is good for, and whether it may be given away."""

    TRAINING = "training"
    REPLACEABLE = "replaceable"
    SCARCE = "scarce"
    CRITICAL_IN_USE = "critical_in_use"


class NodeLimits(Model):
    """What may be used of a node by assessment, headroom already taken off; None where nothing limits it.

    `cards` is how many cards may work at once within the limits of power and heat.
    """

    link_mbps: Count | None = None
    power_w: Count | None = None
    heat_w: Count | None = None
    cards: Count | None = None


class NodeState(Model):
    """The full state of a node after a transition; `version` is the event's `ce-sequence`.

    Nothing new goes to a `cordoned` node, nor onto its `bad_cards` (indexes). `scarce` nodes have high bandwidth that
    others lack: they are kept for work that needs it. `facts` are those announced, completed by those declared.
    """

    node: Name
    version: Positive
    state: Open[NodePhase]
    facts: NodeFacts
    incarnation: Uuid
    attempts: list[LiveAttempt] = []
    reason: Text = ""
    requeue_held: bool = False
    since: Utc
    cordoned: bool = False
    bad_cards: list[Count] = []
    grade: Label | None = None
    node_class: Open[NodeClass] | None = None
    scarce: bool = False
    limits: NodeLimits | None = None


class NodeOrder(Model):
    """What an operator orders of a node, and why.

    Cordon: no new work. Drain: the same, and what runs there is to leave. Uncordon: end either, or a retirement.
    Retire: drain it and take it out of the fleet once nothing runs there. Check: what was found faulty has been mended;
    the node is quarantined no more and takes work again when its next report passes every check.
    """

    node: Name
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
