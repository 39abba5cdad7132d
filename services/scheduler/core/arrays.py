"""What the scheduler's plan is made from, and the plan: arrays over nodes, cards, jobs, attempts and tenants.

One element of an array is one node, card, waiting job, live attempt, member or tenant; the first axis is named beside
each field: N nodes, C cards, J waiting jobs, A live attempts, M members of attempts, H cards held by members, T
tenants, K cohorts, P pools. Nodes are in order of name, cards in order of node and index. Shares of a card are whole
numbers of millionths (`CARD` is a whole one), times are microseconds since 1970, `NEVER` is a time that does not come.
"""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from contracts.base import Reason, Tier
from services.scheduler.core.model import Seat

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

CARD = 1_000_000
NEVER = np.iinfo(np.int64).max
ANYONE = -1
NO_RACK = "//"  # between zone and node: the rack of a node that tells none
TIERS = tuple(Tier)


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


def _nowhere() -> Bools:
    return np.zeros(0, dtype=np.bool_)


@dataclass(frozen=True)
class Fleet:
    """All known nodes and their cards.

    `pool` is `ANYONE` (-1) where every tenant may use the node. `scarce` nodes have the high-bandwidth links that gangs
    need. `free_budget` is what the assessed limit of the node leaves of its cards (millionths, `NEVER` without a
    limit), `free_link_mbps` what is left of its link. A node holds at most `node_slots` members. `card_link` numbers
    the groups of cards that share a card link within their node. `budget` and `link_mbps` are what the limits would
    leave if nothing ran (empty: what they leave now); `card_bad` cards take nothing, whatever ends (empty: none is).
    """

    nodes: tuple[str, ...]  # N
    versions: Ints  # N
    tier: Ints  # N, index into TIERS
    pool: Ints  # N, index into pools
    zone: Ints  # N, index into zones
    rack: Ints  # N, index into racks
    ready: Bools  # N
    scarce: Bools  # N
    cpu_milli: Ints  # N
    memory_bytes: Ints  # N
    free_cpu_milli: Ints  # N
    free_memory_bytes: Ints  # N
    free_budget: Ints  # N
    free_link_mbps: Ints  # N
    node_slots: int
    free_slots: Ints  # N
    pools: tuple[str, ...]
    zones: tuple[str, ...]
    racks: tuple[str, ...]
    models: tuple[str, ...]  # in lower case
    card_node: Ints  # C, index into nodes
    card_index: Ints  # C
    card_model: Ints  # C, index into models
    card_memory_bytes: Ints  # C
    card_link: Ints  # C
    card_free: Ints  # C, millionths
    budget: Ints = field(default_factory=_none)  # N
    link_mbps: Ints = field(default_factory=_none)  # N
    card_bad: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))  # C


class Level(StrEnum):
    """How near to each other the members of a gang are to be; `LINK` also asks each member's cards to share a link."""

    LINK = "link"
    NODE = "node"
    RACK = "rack"
    ZONE = "zone"


@dataclass(frozen=True)
class Demand:
    """What a job asks: `members` times the rest. Jobs that ask the same have one `Demand` between them.

    `share` is taken of one card when `cards` is 1 and it is below `CARD`; `share_memory_bytes`, when above zero, stands
    for a share of the card's memory instead. `models` are the card models that will do, in lower case and in order;
    empty: any. `needs_bandwidth` says that scarce nodes are meant for it.
    """

    tiers: tuple[Tier, ...]
    members: int = 1
    cards: int = 0
    share: int = CARD
    share_memory_bytes: int = 0
    models: tuple[str, ...] = ()
    card_memory_bytes: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    link_mbps: int = 0
    level: Level | None = None
    level_required: bool = False
    needs_bandwidth: bool = False


@dataclass(frozen=True)
class Queue:
    """Jobs without an attempt. `gate` is an index into `gates`: reasons that no free card would change, -1 none.

    `avoid` maps a job to nodes that are taken only when no others fit. `damaged` jobs lost their place to a fault of
    the fleet and have the first claim on what replaces it; `damaged_us` is when (empty: not known of any).
    `left_for` maps a job that was preempted, and waits since, to the id of the job that it made room for: that one
    has the first word until it starts; if the preempted one is damaged too, it only moved, and has the next word.
    `earlier_ms` is what earlier attempts of each held, in card-milliseconds (empty: not known of any, no stages).
    `since_us` is since when each waits: it came, or lost its place (empty: it came).
    """

    job_ids: tuple[str, ...]  # J
    versions: Ints  # J
    tenant: Ints  # J
    rank: Ints  # J, 0 online, 1 normal, 2 batch
    submitted_us: Ints  # J
    longest_us: Ints  # J, the longest run, NEVER when unbounded
    shape: Ints  # J, index into shapes
    gate: Ints  # J
    damaged: Bools  # J
    shapes: tuple[Demand, ...]
    gates: tuple[Reason, ...] = ()
    avoid: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    left_for: dict[int, str] = field(default_factory=dict[int, str])
    damaged_us: Ints = field(default_factory=_none)  # J
    earlier_ms: Ints = field(default_factory=_none)  # J
    since_us: Ints = field(default_factory=_none)  # J


@dataclass(frozen=True)
class Running:
    """Live attempts and what their members hold; all of it is taken off what the fleet shows as free.

    `saved_us` is when the attempt's work was last safe: its newest checkpoint, or its start. `stopping` attempts leave
    by themselves; `leaving_for` names the job that each makes room for, None where there is none or none is known
    (empty: known of no attempt). `preempted_us` is when the attempt's job was preempted last, -1 when it never was
    (empty: of no attempt). `changed_us` is when something else than the scheduler's own decisions changed last: a
    submission, an end, a node, a quota. A job that was preempted since is not preempted again. `earlier_ms` as in
    `Queue`. `waited_us` is how long each had waited for its cards (empty: not known of any). `moving` are those of the
    stopping attempts that were told to leave because they have room elsewhere (empty: none).
    """

    job_ids: tuple[str, ...]  # A
    tenant: Ints  # A
    rank: Ints  # A
    placed_us: Ints  # A
    ends_us: Ints  # A, by its longest run, NEVER when unbounded
    saved_us: Ints  # A
    preemptible: Bools  # A
    stopping: Bools  # A
    shape: Ints  # A, index into shapes
    shapes: tuple[Demand, ...]
    member_attempt: Ints  # M, index into the attempts
    member_node: Ints  # M, index into the fleet's nodes
    held_member: Ints  # H, index into the members
    held_card: Ints  # H, index into the fleet's cards
    leaving_for: tuple[str | None, ...] = ()  # A
    preempted_us: Ints = field(default_factory=_none)  # A
    changed_us: int = NEVER
    earlier_ms: Ints = field(default_factory=_none)  # A
    waited_us: Ints = field(default_factory=_none)  # A
    moving: Bools = field(default_factory=_nowhere)  # A


@dataclass(frozen=True)
class Tenants:
    """What tenants may hold at a time and what they hold now; cards in millionths.

    `guarantee` is theirs at any time, up to `limit` they may borrow. Tenants of one `cohort` (-1: none) lend each other
    what they leave of their guarantees, and so do the cohorts below one `parent` (-1: none); all that stands below a
    cohort holds at most its `ceiling`. A tenant without a cohort borrows what is free. `usage` is what each used of
    late, in card-milliseconds, older use counting less. `weight` divides it.
    """

    names: tuple[str, ...]  # T
    known: Bools  # T
    guarantee: Ints  # T
    limit: Ints  # T
    quota_jobs: Ints  # T
    used: Ints  # T
    used_jobs: Ints  # T
    weight: Floats  # T
    usage: Floats  # T
    cohort: Ints  # T
    pools: Bools  # T x P, which pools each may use
    cohorts: tuple[str, ...] = ()  # K
    parent: Ints = field(default_factory=_none)  # K, index into the cohorts
    ceiling: Ints = field(default_factory=_none)  # K, millionths, NEVER without one


@dataclass(frozen=True)
class Placement:
    """Seats for one job, and the versions of job and nodes that they were chosen against."""

    job_id: str
    version: int
    seats: tuple[Seat, ...]
    node_versions: tuple[tuple[str, int], ...]


class PreemptWhy(StrEnum):
    """What a victim is stopped for.

    A higher class; a guarantee that it borrowed from; its turn is over, as it held most of its kind of cards for long;
    a limit that was lowered; room for a gang, while it moves; a pool that is its tenant's no more.
    """

    PRIORITY = "priority"
    GUARANTEE = "guarantee"
    TURN = "turn"
    QUOTA = "quota"
    CONSOLIDATION = "consolidation"
    DRAIN = "drain"


@dataclass(frozen=True)
class Preemption:
    """One attempt to be stopped, with grace for a checkpoint, so that `for_job` may have its cards."""

    job_id: str
    why: PreemptWhy
    for_job: str | None
    reason: Reason


@dataclass(frozen=True)
class Reservation:
    """Room kept for a job that does not fit yet: where, from when on, and what that expectation rests on."""

    job_id: str
    nodes: tuple[str, ...]
    starts_us: int
    basis: str


@dataclass(frozen=True)
class Stay:
    """Why one job gets no place now, and when it may expect one.

    `returns`: nodes that are known but not ready would hold it, if those that are ready were empty. `cohort` is the one
    whose bound is in the way. `frees`: what would let it start, where that is more than its reason tells.
    """

    job_id: str
    version: int
    reason: Reason
    starts_us: int = NEVER
    basis: str = ""
    returns: bool = False
    cohort: str | None = None
    frees: str = ""


@dataclass(frozen=True)
class Plan:
    """In the order in which it was decided; placements and stays together name each waiting job once."""

    placements: tuple[Placement, ...]
    preemptions: tuple[Preemption, ...]
    reservations: tuple[Reservation, ...]
    stays: tuple[Stay, ...]
