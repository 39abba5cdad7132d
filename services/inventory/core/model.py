"""The values that inventory decides upon, and the effects that its decisions are made of.

Two clocks appear. Instants (`*_at`) are for people. Everything that is judged is measured on the observed clock: whole
milliseconds of stream time during which this service was watching the heartbeat stream (`core.clock`).
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from contracts.nodes import NodeFacts, NodePhase


class NodeEvent(StrEnum):
    """The event that a transition is told by; the name of its message in the registry."""

    GRADED = "graded"
    SUSPECT = "suspect"
    LOST = "lost"
    RETURNED = "returned"
    QUARANTINED = "quarantined"
    RELEASED = "released"


class Cause(StrEnum):
    """Why a node's state changed; kept in the history beside the words."""

    ANNOUNCED = "announced"
    RESTARTED = "restarted"
    FACTS_CHANGED = "facts_changed"
    SILENT = "silent"
    UNCOUNTED = "uncounted"
    CLAIMED_TWICE = "claimed_twice"
    HEARD = "heard"
    DISPOSSESSED = "dispossessed"
    BREAKER_CLOSED = "breaker_closed"
    RELEASED = "released"
    REPORTED = "reported"
    CLOCK_SKEW = "clock_skew"
    CHECKED = "checked"
    CORDONED = "cordoned"
    DRAINED = "drained"
    UNCORDONED = "uncordoned"
    RETIRED = "retired"
    MENDED = "mended"
    BREAKER_RESET = "breaker_reset"
    DECLARED = "declared"
    REASSESSED = "reassessed"


class Standing(StrEnum):
    """What operators have ordered of a node. A `retiring` node is retired as soon as nothing runs there."""

    FREE = "free"
    CORDONED = "cordoned"
    DRAINING = "draining"
    RETIRING = "retiring"
    RETIRED = "retired"


class Stage(StrEnum):
    """How far an agent start has come on its way to work; the same words as in `NodePhase`."""

    ANNOUNCED = "announced"
    CHECKED = "checked"
    READY = "ready"


class Remedy(StrEnum):
    """What mends a fault. The last three are for hands: nothing that a report says makes such a fault go away."""

    NONE = "none"
    RESET = "reset"
    REBOOT = "reboot"
    CABLING = "cabling"
    REPLACE = "replace"
    INSPECT = "inspect"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with a card (by index) or, `card` None, with the node.

    `whole_node`: it takes the node out of the pool, not the card alone. `lasting`: it tells of something that happened
    and stays until it is mended; any other is there as long as reports say so. `tries` counts the boots before this one
    in which it was seen as well. `held`: the breaker keeps it without effect.
    """

    code: str
    card: int | None
    words: str
    remedy: Remedy = Remedy.NONE
    whole_node: bool = False
    lasting: bool = False
    tries: int = 0
    held: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """What makes two faults the same."""
        return (self.code, -1 if self.card is None else self.card)


@dataclass(frozen=True, slots=True)
class Timings:
    """Limits on the observed clock; `gap_ms` is the most that the time between two ticks may count.

    `lease_ms` is the lease that the fleet is configured with; a node that reports a longer one is given longer.
    """

    suspect_ms: int
    lease_ms: int
    lost_ms: int
    gap_ms: int

    def __post_init__(self) -> None:
        assert self.gap_ms > 0, "a gap that counts nothing would stop the observed clock"
        assert 0 < self.suspect_ms < self.lost_ms, "a node is suspect before it is lost"
        assert self.lease_ms < self.lost_ms, "a node may be called lost only after its lease has ended"

    def lost_after_ms(self, lease_ms: int) -> int:
        """The silence after which a node that counts `lease_ms` is lost: its lease and the fleet's own margin."""
        return max(self.lost_ms, lease_ms + self.lost_ms - self.lease_ms)


@dataclass(frozen=True, slots=True)
class Clock:
    """How far the heartbeat stream has been read, and how much of its time has been observed.

    `stream` (empty before the first tick) tells one life of the stream from the next. Up to `floor_ms` nothing
    counts as silence: heartbeats from before it may have been stored, acknowledged and gone with their stream unread.
    """

    stream: str
    read_sequence: int
    tick_at: datetime
    observed_ms: int
    floor_ms: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of our own in the stream, stored at `stored_at`, between `sent_ms` and `acked_ms` of our own clock.

    The stream has been read to its end after that, and `read_sequence` was the last message there: the tick or a later.
    """

    stream: str
    read_sequence: int
    stored_at: datetime
    sent_ms: int
    acked_ms: int


@dataclass(frozen=True, slots=True)
class Beat:
    """A valid heartbeat. `attempts` is JSON, kept as it came."""

    node: str
    incarnation: str
    counter: int
    lease_ms: int
    skew_ms: int
    attempts: str


@dataclass(frozen=True, slots=True)
class Noise:
    """Something on a node's heartbeat subject that is no valid heartbeat of that node."""

    node: str
    words: str


@dataclass(frozen=True, slots=True)
class Node:
    """What is judged of a node. `*_ms` marks are readings of the observed clock.

    `seen_ms`: last heartbeat of the agent start in force. `heard_ms`: last message of any kind on the node's heartbeat
    subject; whoever sent it got an acknowledgement and may hold a lease. `rival` is the agent start that was in force
    before. `lost_ms` is None again once an operator has confirmed the loss.

    `phase` is whether the agent is heard: ready, suspect or lost; what is told of the node is `core.phases.told`.
    `cards` is their number, `order` says who ordered its standing and why. `skew_ms` is the last difference between a
    heartbeat's arrival and its stamp, `skew_low_ms` the least since `skew_from_ms`, `skew_before_ms` the least of the
    window before. `acted_ms`: when a fault last took effect. `promised`: the scheduler has work for the node; looked up
    for nodes that retire.
    """

    name: str
    phase: NodePhase
    incarnation: str
    announced_at: datetime
    stored_at: datetime
    seen_ms: int
    heard_ms: int
    lease_ms: int = 0
    counter: int = 0
    skew_ms: int | None = None
    attempts: str = "[]"
    noise: str = ""
    rival: str | None = None
    rival_counter: int | None = None
    rival_ms: int | None = None
    lost_ms: int | None = None
    requeue_held: bool = False
    superseded_by: str | None = None
    stage: Stage = Stage.READY
    standing: Standing = Standing.FREE
    order: str = ""
    faults: tuple[Fault, ...] = ()
    acted_ms: int | None = None
    cards: int = 0
    promised: bool = False
    skew_low_ms: int | None = None
    skew_before_ms: int | None = None
    skew_from_ms: int = 0


@dataclass(frozen=True, slots=True)
class Census:
    """The fleet in numbers. `lost_lately`: lost within the breaker's window, or lost with requeueing held."""

    ready: int
    suspect: int
    lost_lately: int


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """The breaker opens when more than `share` of the fleet, and more than one node, is silent at a loss."""

    share: float
    window_ms: int


@dataclass(frozen=True, slots=True)
class SkewRules:
    """A clock is off when, after `delay_ms` allowed for the way, it differs by more than `bound_ms` in a whole window.

    The least difference over a window is nearest the truth, since the way only ever adds. A clock counts as right again
    at half the bound.
    """

    bound_ms: int
    delay_ms: int
    window_ms: int


@dataclass(frozen=True, slots=True)
class FaultCensus:
    """The fleet as the breaker of quarantines sees it: nodes in it, and those that a fault took effect on of late."""

    fleet: int
    lately: int


@dataclass(frozen=True, slots=True)
class Announcement:
    """An agent start telling what its node is. `replayed`: by an operator, out of the stream's order."""

    facts: NodeFacts
    incarnation: str
    attempts: str
    announced_at: datetime
    stored_at: datetime
    replayed: bool


@dataclass(frozen=True, slots=True)
class Holder:
    """The node that has a card of a given uuid."""

    node: str
    phase: NodePhase


@dataclass(frozen=True, slots=True)
class Sight:
    """Keep what was heard of a node."""

    node: Node


@dataclass(frozen=True, slots=True)
class Move:
    """Move a node to another phase, or tell its phase anew."""

    node: Node
    event: NodeEvent
    cause: Cause
    reason: str


@dataclass(frozen=True, slots=True)
class Admit:
    """Take over what a node announced. `dispossessed` are lost nodes whose cards now belong to this one."""

    node: Node
    facts: NodeFacts
    event: NodeEvent
    cause: Cause
    reason: str
    dispossessed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """Put an announcement aside as a dead letter."""

    reason: str


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """Remember that lost nodes are told with requeueing held."""

    reason: str


@dataclass(frozen=True, slots=True)
class CloseBreaker:
    """Release what is held: the nodes still lost are told again, without the hold."""

    reason: str


@dataclass(frozen=True, slots=True)
class OpenFaultBreaker:
    """Remember that new faults have no effect until an operator has looked."""

    reason: str


Sound = Beat | Noise
TickEffect = Sight | Move | OpenBreaker | CloseBreaker | OpenFaultBreaker
AnnounceEffect = Admit | Refuse
