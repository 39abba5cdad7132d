"""What the scheduler knows of a job, what can happen to it, and what must be done about it.

A job holds at most one attempt. An attempt is over when each of its members has ended; only then may the job be
placed again, under a higher number.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from contracts.attempts import ExitCause
from contracts.base import Open, Priority, Reason, Tier
from contracts.jobs import JobPhase, JobSpec, Outcome

CARD = 1_000_000  # the share that is a whole card
SHARE_PER_MILLI = 1000


class MemberPhase(StrEnum):
    """How far one member of an attempt has come."""

    OFFERED = "offered"
    CLAIMED = "claimed"
    STARTED = "started"
    EXITED = "exited"
    LOST = "lost"
    WITHDRAWN = "withdrawn"


ENDED = frozenset({MemberPhase.EXITED, MemberPhase.LOST, MemberPhase.WITHDRAWN})
HELD_BY_NODE = frozenset({MemberPhase.CLAIMED, MemberPhase.STARTED})


@dataclass(frozen=True)
class Seat:
    """Room for one member: a node, the indexes of the cards it holds there, their model and the most memory of one.

    `share` is how much of each card is taken, in millionths.
    """

    node: str
    tier: Tier
    cards: tuple[int, ...]
    accelerator: str | None = None
    card_memory_bytes: int | None = None
    share: int = CARD

    @property
    def share_milli(self) -> int:
        """The share as it is charged: thousandths, rounded down, at least 1."""
        return max(1, self.share // SHARE_PER_MILLI)


@dataclass(frozen=True)
class MemberRun:
    """One member of an attempt. `missing_since`: its node came back without it, and its exit is not heard yet."""

    index: int
    seat: Seat
    phase: MemberPhase = MemberPhase.OFFERED
    incarnation: str | None = None
    endpoint: str | None = None
    claimed_at: datetime | None = None
    unreachable: bool = False
    missing_since: datetime | None = None
    cause: Open[ExitCause] | None = None
    exit_code: int | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing of this member runs any more, or may no longer have effects."""
        return self.phase in ENDED


class StopWhy(StrEnum):
    """What made the scheduler end an attempt; decides how the end counts."""

    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    FAILED = "failed"
    MAX_RUNTIME = "max_runtime"
    LOST = "lost"
    NOT_CLAIMED = "not_claimed"


@dataclass(frozen=True)
class Stop:
    """The first cause of an attempt's end, and the node whose member it was."""

    why: StopWhy
    reason: Reason
    node: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One run of a job. `generation` names the placement of the whole gang."""

    number: int
    generation: int
    placed_at: datetime
    members: tuple[MemberRun, ...]
    stop: Stop | None = None
    endpoint: str | None = None

    @property
    def over(self) -> bool:
        """Whether each member has ended."""
        return all(member.ended for member in self.members)

    @property
    def all_claimed(self) -> bool:
        """The start barrier: no member runs before each has been claimed."""
        return all(member.phase is not MemberPhase.OFFERED for member in self.members)


@dataclass(frozen=True)
class Job:
    """A job as the scheduler keeps it; `version` grows by one with every published transition.

    `avoid` names nodes that lost its last attempt: the plan takes others where it can. A job lost its place at
    `damaged_at` to a fault of the fleet, or gave it up to move: it has the first claim on what replaces it.
    `leaving_for` is the job for which its attempt was preempted at `preempted_at`, until it is placed again.
    """

    spec: JobSpec
    version: int
    phase: JobPhase
    submitted_at: datetime
    updated_at: datetime
    outcome: Outcome | None = None
    reason: Reason | None = None
    attempt: Attempt | None = None
    attempts: int = 0
    failures: int = 0
    losses: int = 0
    cancel_requested: bool = False
    held: bool = False
    hold_changed_at: datetime | None = None
    priority_changed_at: datetime | None = None
    not_before: datetime | None = None
    progress_step: int | None = None
    avoid: tuple[str, ...] = ()
    damaged_at: datetime | None = None
    preempted_at: datetime | None = None
    leaving_for: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the job has its outcome; nothing changes after that."""
        return self.phase is JobPhase.FINISHED

    @property
    def placeable(self) -> bool:
        """Whether the placer may give it cards."""
        return self.phase in {JobPhase.ACCEPTED, JobPhase.WAITING}


@dataclass(frozen=True)
class Limits:
    """The bounds of the scheduler's patience, and the most members that one node holds at a time."""

    max_losses: int = 100
    reconcile_grace_s: float = 60.0
    backoff_first_s: float = 1.0
    backoff_cap_s: float = 60.0
    node_slots: int = 64


@dataclass(frozen=True)
class Intent:
    """What was asked of a job before its submission was seen."""

    cancel_reason: str | None = None
    held: bool = False
    hold_reason: str = ""
    hold_changed_at: datetime | None = None
    priority: Priority | None = None
    priority_changed_at: datetime | None = None


# ---- what can happen to a job ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cancel:
    """Somebody wants the job to end."""

    reason: str = ""


@dataclass(frozen=True)
class Hold:
    """Keep the job from being placed. `at` is when it was asked: the newest of holds and releases counts."""

    at: datetime
    reason: str = ""


@dataclass(frozen=True)
class Release:
    """End a hold."""

    at: datetime


@dataclass(frozen=True)
class Reprioritize:
    """Change the class. `at` is when it was asked: the newest counts. `refused`: why it may not be, if so."""

    at: datetime
    priority: Priority
    refused: Reason | None = None


@dataclass(frozen=True)
class Preempt:
    """Its attempt is to leave, with grace for a checkpoint: for `for_job`, if any. `first`: it has the next claim."""

    reason: Reason
    for_job: str | None = None
    first: bool = False


@dataclass(frozen=True)
class Wait:
    """The placer found no room, for this reason."""

    reason: Reason


@dataclass(frozen=True)
class Place:
    """The placer found room: one seat a member, in the order of their indexes."""

    seats: tuple[Seat, ...]


@dataclass(frozen=True)
class Claim:
    """A node takes up its offer."""

    attempt: int
    generation: int
    member: int
    node: str
    incarnation: str
    endpoint: str


@dataclass(frozen=True)
class Started:
    """The member's process exists."""

    attempt: int
    member: int
    node: str


@dataclass(frozen=True)
class Ready:
    """The member serves at `endpoint`."""

    attempt: int
    member: int
    node: str
    endpoint: str


@dataclass(frozen=True)
class Hung:
    """The member makes no progress; its agent is stopping it."""

    attempt: int
    member: int
    node: str
    silent_s: int


@dataclass(frozen=True)
class Exited:
    """The member's process group is gone."""

    attempt: int
    member: int
    node: str
    cause: Open[ExitCause]
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True)
class NodeLost:
    """A node's lease has run out unseen. `held`: so many are silent that nothing is requeued for now."""

    node: str
    held: bool = False


@dataclass(frozen=True)
class NodeBack:
    """A node is there, and answers for `listed` (attempt, member) of this job, as of `since`.

    `incarnation` is the start of its agent. What that very start has claimed it will also report the end of, so it is
    not missing: its list may have been on its way while the claim was granted.
    """

    node: str
    listed: frozenset[tuple[int, int]]
    since: datetime
    incarnation: str | None = None


@dataclass(frozen=True)
class Tick:
    """Time has passed: look at the deadlines."""


Asked = Cancel | Hold | Release | Reprioritize | Preempt
Event = Asked | Wait | Place | Started | Ready | Hung | Exited | NodeLost | NodeBack | Tick


# ---- what must be done -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Publish:
    """Tell the world the state of `job`: the event of its phase; `refused`: what was asked of it in vain."""

    job: Job
    refused: Reason | None = None


@dataclass(frozen=True)
class Offer:
    """Send `work.run` for one member."""

    job: Job
    attempt: Attempt
    member: MemberRun


@dataclass(frozen=True)
class StopMember:
    """Send `work.stop` for one member."""

    node: str
    attempt: int
    member: int
    grace_s: int
    reason: str


@dataclass(frozen=True)
class Allocate:
    """Give the member's cards to it."""

    attempt: int
    member: MemberRun


@dataclass(frozen=True)
class Free:
    """The member's cards are free again, and are charged until `at`."""

    attempt: int
    member: MemberRun
    at: datetime


@dataclass(frozen=True)
class Charge:
    """From `at` on the member's cards count as used."""

    attempt: int
    member: MemberRun
    at: datetime


Effect = Publish | Offer | StopMember | Allocate | Free | Charge


@dataclass(frozen=True)
class Decision:
    """The job afterwards, and what must be done in the same transaction, in order."""

    job: Job
    effects: tuple[Effect, ...] = ()

    def then(self, *effects: Effect) -> "Decision":
        """The same with more effects behind."""
        return Decision(self.job, (*self.effects, *effects))
