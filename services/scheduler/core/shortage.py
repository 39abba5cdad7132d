"""Why a job that asks for `Demand` stays, given the `Supply` of the tier that comes closest."""

from dataclasses import dataclass

from contracts.base import Reason, ReasonCode, Tier
from services.scheduler.core.words import reason


@dataclass(frozen=True)
class Demand:
    """What a gang asks in one tier, on cards of one model: `members` times the rest.

    `model` is an index into the fleet's card models, -1 any.
    """

    tiers: tuple[Tier, ...]
    members: int
    cards: int
    accelerator: str | None
    model: int
    card_memory_bytes: int
    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True)
class Supply:
    """What a tier holds of one card model; slots count members.

    `slots_total` and `slots_free_by_cards` look at cards alone, the bounded ones also at the `node_slots` of each node.
    """

    tier: Tier
    nodes_known: int
    nodes_ready: int
    cards_total: int
    cards_free: int
    slots_total: int
    slots_free_by_cards: int
    node_slots: int
    slots_bounded: int
    slots_free_bounded: int
    node_slots_total: int
    node_slots_free: int
    cpu_milli_total: int
    cpu_milli_free: int
    memory_bytes_total: int
    memory_bytes_free: int

    @property
    def closeness(self) -> tuple[int, int, int]:
        """Larger where less is missing."""
        return self.slots_free_bounded, self.cards_free, self.nodes_known


def explain(demand: Demand, supply: Supply) -> Reason:
    """The constraint that binds, first the hardest: nodes, size of the fleet, cards, their scatter, slots, the rest."""
    if supply.nodes_ready == 0:
        return _no_nodes(demand, supply)
    where = f"{supply.tier} nodes"
    if supply.slots_total < demand.members:
        return _too_large(demand, supply, where)
    if supply.slots_bounded < demand.members:
        return _too_many(demand, supply, where)
    asked = demand.members * demand.cards
    if demand.cards and supply.slots_free_by_cards < demand.members:
        used = supply.cards_total - supply.cards_free
        kind = _cards(demand)
        if supply.cards_free < asked:
            code = ReasonCode.WAITING_FOR_CARDS
            text = f"asks {asked} {kind}: {supply.cards_free} of {supply.cards_total} are free on {where}"
        else:
            code = ReasonCode.FRAGMENTED
            text = (
                f"asks {demand.members} x {demand.cards} {kind}: {supply.cards_free} are free on {where}, "
                f"but scattered: only {supply.slots_free_by_cards} members would fit"
            )
        return reason(code, text, "cards", used=used, asked=asked, allowed=supply.cards_total)
    if supply.slots_free_bounded < demand.members:
        return _slots_taken(demand, supply, where)
    return _host_bound(demand, supply, where)


def _cards(demand: Demand) -> str:
    kind = f"{demand.accelerator} cards" if demand.accelerator else "cards of one model"
    return f"{kind} of at least {demand.card_memory_bytes} bytes" if demand.card_memory_bytes else kind


def _no_nodes(demand: Demand, supply: Supply) -> Reason:
    where = f"{'/'.join(demand.tiers)} nodes"
    text = f"no {where} are ready ({supply.nodes_known} are known): waits for nodes to announce themselves or to return"
    return reason(ReasonCode.WAITING_FOR_NODES, text, "nodes", used=0, asked=demand.members, allowed=0)


def _too_large(demand: Demand, supply: Supply, where: str) -> Reason:
    each = f"{demand.cards} {_cards(demand)}" if demand.cards else "its processors and memory"
    text = (
        f"asks {demand.members} members with {each}: the {supply.nodes_ready} ready {where} could hold "
        f"{supply.slots_total} even when empty"
    )
    return reason(
        ReasonCode.WAITING_FOR_NODES, text, "members", used=0, asked=demand.members, allowed=supply.slots_total
    )


def _too_many(demand: Demand, supply: Supply, where: str) -> Reason:
    text = (
        f"asks {demand.members} members, a node takes at most {supply.node_slots}: the {supply.nodes_ready} ready "
        f"{where} could hold {supply.slots_bounded} even when empty"
    )
    return reason(
        ReasonCode.WAITING_FOR_NODES, text, "slots", used=0, asked=demand.members, allowed=supply.slots_bounded
    )


def _slots_taken(demand: Demand, supply: Supply, where: str) -> Reason:
    """Cards would do, but too many members are there already."""
    free, total = supply.node_slots_free, supply.node_slots_total
    text = f"asks {demand.members} slots, {supply.node_slots} a node: {free} of {total} are free on {where}"
    if free >= demand.members:
        text += ", but not beside the free cards"
    code = ReasonCode.FRAGMENTED if free >= demand.members else ReasonCode.WAITING_FOR_NODES
    return reason(code, text, "slots", used=total - free, asked=demand.members, allowed=total)


def _host_bound(demand: Demand, supply: Supply, where: str) -> Reason:
    """Cards would do, but not beside processors and memory."""
    cpu_short = demand.members * demand.cpu_milli - supply.cpu_milli_free
    memory_short = demand.members * demand.memory_bytes - supply.memory_bytes_free
    if demand.cpu_milli and (cpu_short > 0 or memory_short <= 0):
        asked, total, free, name = (
            demand.members * demand.cpu_milli,
            supply.cpu_milli_total,
            supply.cpu_milli_free,
            "cpu_milli",
        )
    else:
        asked, total, free, name = (
            demand.members * demand.memory_bytes,
            supply.memory_bytes_total,
            supply.memory_bytes_free,
            "memory_bytes",
        )
    text = f"asks {demand.members} x {asked // demand.members} {name}: {free} of {total} are free on {where}"
    if free >= asked:
        text += ", but not on one node beside what else it needs"
    code = ReasonCode.FRAGMENTED if free >= asked else ReasonCode.WAITING_FOR_NODES
    return reason(code, text, name, used=max(0, total - free), asked=asked, allowed=total)
