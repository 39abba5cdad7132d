"""The capacity of the fleet: what is promised, used and idle by tier and grade, and what could be given away.

Promised work must fit into what the headroom leaves of the usable cards: those of nodes that take work, but for the
bad ones. A node can be given away when it is of an
older generation, nothing runs or is promised there, and its tier keeps its headroom without it, also for what waits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from contracts.base import Tier
from contracts.fleet import (
    Assessment,
    CapacityRow,
    ClassCount,
    Money,
    NodeGrade,
    RemoteLimit,
    TierCapacity,
)
from contracts.jobs import CARD_MILLI
from contracts.nodes import NodeClass, NodePhase, NodeState

MAX_REMOTE = 1000
WHOLE = 100
_SILENT = {NodePhase.SUSPECT, NodePhase.LOST}


class TierRules(BaseModel):
    """What a tier is for, and what bounds it, in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    duty: str
    limits: tuple[str, ...] = ()


class CapacityRules(BaseModel):
    """The whole of `capacity.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    headroom_pct: Annotated[int, Field(ge=0, lt=100)] = 30
    tiers: dict[Tier, TierRules]


def with_releases(grades: Sequence[NodeGrade], *, asked_milli: int, headroom_pct: int) -> list[NodeGrade]:
    """The grades with what could be given away, the least worth first; `asked_milli` is what waiting jobs ask for."""
    released = {
        node: why
        for tier in Tier
        for node, why in _releases([one for one in grades if one.tier is tier], asked_milli, headroom_pct).items()
    }
    return [
        one.model_copy(update={"releasable": not released[one.node], "kept_because": released[one.node]})
        for one in grades
    ]


def _releases(grades: Sequence[NodeGrade], asked_milli: int, headroom_pct: int) -> Mapping[str, str]:
    """For each node of a tier why it is kept; nothing where it could be given away."""
    live = [one for one in grades if one.state != NodePhase.RETIRED]
    spare = sum(one.cards_usable for one in live) * CARD_MILLI - _needed(live, asked_milli, headroom_pct)
    why = {one.node: _kept(one) for one in grades}
    for one in sorted(live, key=lambda one: (one.score, one.idle_since is None, one.idle_since, one.node)):
        if why[one.node]:
            continue
        if one.cards_usable * CARD_MILLI > spare:
            why[one.node] = f"its tier needs it to keep {headroom_pct} % free beside what is promised and what waits"
        else:
            spare -= one.cards_usable * CARD_MILLI
    return why


def _needed(grades: Iterable[NodeGrade], asked_milli: int, headroom_pct: int) -> int:
    """Thousandths of cards of which what is promised and asked for leaves the headroom free."""
    wanted = sum(one.cards_promised_milli for one in grades) + asked_milli
    return -(-wanted * WHOLE // (WHOLE - headroom_pct))


def _kept(one: NodeGrade) -> str:
    if one.state == NodePhase.RETIRED:
        return "retired already"
    if one.state in _SILENT:
        return "not heard, so what runs there is not known"
    if one.node_class == NodeClass.CRITICAL_IN_USE:
        return "runs work that may not be stopped"
    if one.idle_since is None:
        return "work runs or is placed there"
    if one.scarce:
        return "scarce: its bandwidth is not given away"
    return "" if one.node_class == NodeClass.REPLACEABLE else "training capacity"


def assess(
    grades: Sequence[NodeGrade], remote: Sequence[NodeState], *, rules: CapacityRules, absent: int, base: Assessment
) -> Assessment:
    """The assessment of graded nodes; `remote` are the states of remote nodes, `base` holds time and version."""
    live = [one for one in grades if one.state != NodePhase.RETIRED]
    keys = sorted({(one.tier, one.grade) for one in live})
    rows = [_row(tier, grade, [one for one in live if (one.tier, one.grade) == (tier, grade)]) for tier, grade in keys]
    return base.model_copy(
        update={
            "headroom_pct": rules.headroom_pct,
            "tiers": [_tier(tier, [one for one in live if one.tier is tier], rules) for tier in Tier],
            "rows": rows,
            "classes": list(_classes(live)),
            "remote": [_limit(state) for state in remote[:MAX_REMOTE]],
            "declared_absent": absent,
        }
    )


def _classes(grades: Sequence[NodeGrade]) -> Iterator[ClassCount]:
    nodes, cards = Counter[str](), Counter[str]()
    for one in grades:
        nodes[one.node_class] += 1
        cards[one.node_class] += one.cards
    for kind in sorted(nodes):
        yield ClassCount(node_class=kind, nodes=nodes[kind], cards=cards[kind])


def _tier(tier: Tier, grades: Sequence[NodeGrade], rules: CapacityRules) -> TierCapacity:
    known = rules.tiers.get(tier, TierRules(duty=""))
    usable = sum(one.cards_usable for one in grades)
    promised = sum(one.cards_promised_milli for one in grades)
    promisable = usable * CARD_MILLI * (WHOLE - rules.headroom_pct) // WHOLE
    return TierCapacity(
        tier=tier,
        duty=known.duty,
        cards_usable=usable,
        cards_promised_milli=promised,
        cards_promisable_milli=promisable,
        headroom_kept=promised <= promisable and (usable > 0 or not any(one.cards for one in grades)),
        limits=list(known.limits),
    )


def _row(tier: Tier, grade: str, grades: Sequence[NodeGrade]) -> CapacityRow:
    idle = [one for one in grades if one.idle_since is not None and (one.cards_usable or not one.cards)]
    free = [one for one in grades if one.releasable]
    costs: Counter[str] = Counter()
    for one in idle:
        if one.cost is not None:
            costs[one.cost.currency] += one.cost.power_micro + one.cost.depreciation_micro
    return CapacityRow(
        tier=tier,
        grade=grade,
        nodes=len(grades),
        cards=sum(one.cards for one in grades),
        cards_usable=sum(one.cards_usable for one in grades),
        cards_promised_milli=sum(one.cards_promised_milli for one in grades),
        cards_used_milli=sum(one.cards_used_milli for one in grades),
        idle_nodes=len(idle),
        idle_cards=sum(one.cards for one in idle),
        idle_cost=[Money(currency=currency, micro=micro) for currency, micro in sorted(costs.items())],
        releasable_nodes=len(free),
        releasable_cards=sum(one.cards for one in free),
    )


def _limit(state: NodeState) -> RemoteLimit:
    limits = state.limits
    if limits is None:
        return RemoteLimit(node=state.node, basis="nothing is known of its link, power and cooling")
    known = [name for name in ("link_mbps", "power_w", "heat_w", "cards") if getattr(limits, name) is not None]
    return RemoteLimit(node=state.node, basis=f"known: {', '.join(known)}", **limits.model_dump())
