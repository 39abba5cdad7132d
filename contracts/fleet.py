"""Questions about the fleet that inventory answers: a node, its history, grades, capacity; and what is declared."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from contracts.base import (
    PAGE_LIMIT,
    Count,
    Cursor,
    Label,
    Model,
    Name,
    Open,
    PageLimit,
    Positive,
    Text,
    Tier,
    Utc,
    Uuid,
    Word,
)
from contracts.health import CheckResult, NodeReported, SignedMs
from contracts.nodes import LinkCharge, LinkKind, MonthlyCost, NodeClass, NodePhase, NodeState

MAX_DECLARED = 200


class DeclaredLink(Model):
    """A link as people wrote it down; see `contracts.nodes.Link`."""

    kind: LinkKind
    nominal_mbps: Count | None = None
    effective_mbps: Count | None = None
    ceiling_mbps: Count | None = None
    charge: LinkCharge | None = None


class DeclaredNode(Model):
    """A node as people wrote it down: what should be there. Its agent says what is."""

    node: Name
    tier: Tier = Tier.CENTRAL
    zone: Name | None = None
    rack: Name | None = None
    cpu_milli: Count
    memory_bytes: Count
    cards: Annotated[int, Field(ge=0, le=1024)]
    card_model: Label | None = None
    card_memory_bytes: Positive | None = None
    generation: Label | None = None
    card_link: DeclaredLink | None = None
    node_link: DeclaredLink | None = None
    link_mbps: Count | None = None
    cost: MonthlyCost | None = None
    power_limit_w: Count | None = None
    heat_limit_w: Count | None = None


class DeclareRequest(Model):
    """Declare nodes, or withdraw declarations. What is declared just so already is left as it is."""

    nodes: Annotated[list[DeclaredNode], Field(max_length=MAX_DECLARED)] = []
    withdrawn: Annotated[list[Name], Field(max_length=MAX_DECLARED)] = []
    reason: Annotated[str, Field(min_length=1, max_length=1024)]


class DeclareReply(Model):
    """How many declarations are new, differ from what was declared before, are as they were, and are gone."""

    added: Count
    changed: Count
    unchanged: Count
    withdrawn: Count


class DeclaredQuery(Model):
    """Page through the declared nodes in order of name."""

    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT


class Declared(Model):
    """A declared node; `announced` False: no agent has spoken for it. `differences` to what its agent announced."""

    node: DeclaredNode
    declared_at: Utc
    announced: bool
    differences: list[Text] = []


class DeclaredPage(Model):
    """`cursor` is None on the last page."""

    nodes: list[Declared]
    cursor: Cursor | None = None


class NodeQuery(Model):
    """Everything about one node."""

    node: Name


class FaultTold(Model):
    """What is wrong with a card, or, `card` None, with the node. `held`: a breaker keeps it without effect."""

    code: Word
    card: Count | None = None
    message: Text
    remedy: Word
    held: bool = False


class NodeGrade(Model):
    """How a node is graded, why, and whether it could be given away.

    `score` is in thousandths. `cards_promised_milli` are thousandths of cards that the scheduler has placed work on,
    `cards_used_milli` those of them whose work runs. `idle_since`: since then nothing is promised there.
    `cards_usable` is 0 while the node takes no work: cordoned, draining, faulty, silent or not checked yet.
    """

    node: Name
    tier: Tier
    state: Open[NodePhase]
    grade: Label
    score: Count
    node_class: Open[NodeClass]
    scarce: bool = False
    reasons: list[Text]
    cards: Count
    cards_usable: Count
    cards_promised_milli: Count = 0
    cards_used_milli: Count = 0
    utilisation_pct: Count | None = None
    idle_since: Utc | None = None
    cost: MonthlyCost | None = None
    releasable: bool
    kept_because: Text = ""


class Day(Model):
    """Mean utilisation of a node's cards on one day (UTC)."""

    day: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    utilisation_pct: Count
    measured_s: Count


class NodeReply(Model):
    """What inventory has of a node. `state` None: declared, and no agent has announced it.

    `standing` is what is ordered of it: free, cordoned, draining, retiring, retired; `order` says by whom and why.
    `skew_ms`: how far the node's clock is ahead (below zero: behind) at the least; None before it is known.
    """

    state: NodeState | None = None
    declared: Declared | None = None
    grade: NodeGrade | None = None
    faults: list[FaultTold] = []
    checks: list[CheckResult] = []
    report: NodeReported | None = None
    skew_ms: SignedMs | None = None
    standing: Word = "free"
    order: Text = ""
    days: list[Day] = []


class HistoryQuery(Model):
    """The changes of one node, newest first; `cursor` is that of the page before."""

    node: Name
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT


class Change(Model):
    """One change: who, when, why. `version` None: a declaration."""

    version: Positive | None = None
    at: Utc
    event: Word
    state: Open[NodePhase] | None = None
    cause: Word
    reason: Text
    actor: Text
    incarnation: Uuid | None = None
    facts_changed: bool = False


class HistoryPage(Model):
    """`cursor` is None on the last page."""

    changes: list[Change]
    cursor: Cursor | None = None


class GradesQuery(Model):
    """Page through the grades in order of node name."""

    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT


class GradesPage(Model):
    """`cursor` is None on the last page."""

    grades: list[NodeGrade]
    cursor: Cursor | None = None


class Money(Model):
    """A sum a month in millionths of the currency."""

    currency: Word
    micro: Count


class CapacityRow(Model):
    """One tier and grade in numbers. Cards in thousandths where shares of cards count."""

    tier: Tier
    grade: Label
    nodes: Count
    cards: Count
    cards_usable: Count
    cards_promised_milli: Count
    cards_used_milli: Count
    idle_nodes: Count
    idle_cards: Count
    idle_cost: list[Money]
    releasable_nodes: Count
    releasable_cards: Count


class TierCapacity(Model):
    """One tier: its duty, what bounds it, and what of it may be promised so that the headroom stays.

    `cards_promisable_milli` is what the headroom leaves of the usable cards; `limits` are bounds in words.
    """

    tier: Tier
    duty: Text
    cards_usable: Count
    cards_promised_milli: Count
    cards_promisable_milli: Count
    headroom_kept: bool
    limits: list[Text] = []


class RemoteLimit(Model):
    """What was assessed of a remote node: the headroom is taken off."""

    node: Name
    link_mbps: Count | None = None
    power_w: Count | None = None
    heat_w: Count | None = None
    cards: Count | None = None
    basis: Text = ""


class CapacityQuery(Model):
    """The assessment as it would be now, with no version of its own."""


class AssessRequest(Model):
    """Write the assessment out. Asked again while nothing has changed, the version stays."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)]


class ClassCount(Model):
    """How many nodes and cards are of a class."""

    node_class: Open[NodeClass]
    nodes: Count
    cards: Count


class Assessment(Model):
    """The capacity of the fleet. `version` None: not written out."""

    version: Positive | None = None
    assessed_at: Utc
    headroom_pct: Count
    tiers: list[TierCapacity]
    rows: list[CapacityRow]
    classes: list[ClassCount]
    remote: Annotated[list[RemoteLimit], Field(max_length=1000)] = []
    declared_absent: Count = 0


class BreakersQuery(Model):
    """How inventory's two breakers are."""


class BreakerKind(StrEnum):
    """`silence`: nodes lost together. `faults`: nodes found faulty together."""

    SILENCE = "silence"
    FAULTS = "faults"


class BreakerMoved(Model):
    """One of inventory's breakers has opened, or has closed again, and why. `ce-sequence` counts both."""

    kind: Open[BreakerKind]
    reason: Text
    moved_at: Utc


class BreakerTold(Model):
    """A breaker; `nodes` is how many it holds something of."""

    kind: Open[BreakerKind]
    is_open: bool
    reason: Text = ""
    opened_at: Utc | None = None
    nodes: Count = 0


class BreakersReply(Model):
    """Both of them."""

    breakers: list[BreakerTold]


class FaultReset(Model):
    """An operator has looked at the faults that the breaker holds: they are set aside, or (`enforce`) take effect."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    enforce: bool = False


class FaultResetReply(Model):
    """`nodes` had faults held; False and 0 when the breaker was not open."""

    was_open: bool
    nodes: Count
