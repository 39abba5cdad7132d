"""Why a job stays, in words and figures: its shape against what the fleet could give, its tenant against its bounds."""

from contracts.base import Reason, ReasonCode
from services.scheduler.core.arrays import CARD, NEVER, Demand, PreemptWhy
from services.scheduler.core.fairness import Short
from services.scheduler.core.packing import Supply
from services.scheduler.core.words import reason, waiting_for_quota

# ---- bounds of tenants -----------------------------------------------------------------------------------------------


def beyond(tenant: str, short: Short) -> Reason:
    """A bound of the tenant, or of the cohort that it borrows from, is in the way; amounts of cards are rounded up."""
    if short.resource != "cards":
        return waiting_for_quota(tenant, short.resource, short.used, short.asked, short.allowed)
    used, asked, allowed = (
        -(-amount // CARD) for amount in (short.used, short.asked, min(short.allowed, NEVER - CARD))
    )
    if short.whose is None:
        return waiting_for_quota(tenant, "cards", used, asked, allowed)
    text = (
        f"tenant {tenant} asks {cards(short.asked)} cards beyond its guarantee: cohort {short.whose} has "
        f"{cards(short.used)} of {cards(short.allowed)} in use: waits for jobs of the cohort to end"
    )
    return reason(ReasonCode.WAITING_FOR_QUOTA, text, "cards", used=used, asked=asked, allowed=allowed)


def behind(tenant: str, first: str, asked: int, used: int, limit: int) -> Reason:
    """It would fit its tenant's limit, but then an earlier and larger job of the tenant would never."""
    text = (
        f"tenant {tenant} has {cards(used)} of {cards(limit)} cards in use, {cards(asked)} more asked: what is left is "
        f"kept for its earlier job {first}"
    )
    figures = {"used": -(-used // CARD), "asked": -(-asked // CARD), "allowed": -(-limit // CARD)}
    return reason(ReasonCode.RESERVED, text, "cards", **figures)


def cards(millionths: int) -> str:
    """An amount of cards in words: whole ones without decimals."""
    return f"{millionths / CARD:g}" if millionths % CARD else f"{millionths // CARD}"


# ---- turns -----------------------------------------------------------------------------------------------------------


def reserved(owner: str, asked: int) -> Reason:
    """It fits, but the room is kept."""
    text = f"asks {cards(asked)} cards: nodes with room for it are kept for job {owner}, and it might not end before"
    return reason(ReasonCode.RESERVED, text, "cards", asked=-(-asked // CARD))


def blocked(first: str, asked: int) -> Reason:
    """Strict order: what comes before must go first."""
    text = f"asks {cards(asked)} cards: job {first} comes before it and does not fit yet"
    return reason(ReasonCode.RESERVED, text, "cards", asked=-(-asked // CARD))


def leaving(victims: int, asked: int) -> Reason:
    """Victims were told to go."""
    who = "1 job told to leave for it saves its" if victims == 1 else f"{victims} jobs told to leave for it save their"
    text = f"asks {cards(asked)} cards: {who} work"
    return reason(ReasonCode.WAITING_FOR_PREEMPTION, text, "cards", asked=-(-asked // CARD))


def told_to_leave(why: PreemptWhy, tenant: str, job: str | None, held: int) -> Reason:
    """What a victim is told."""
    because = _WHY[why].format(job=job, tenant=tenant)
    text = f"its {cards(held)} cards {because}: it goes on later from its newest checkpoint"
    return reason(ReasonCode.PREEMPTED, text, "cards", asked=-(-held // CARD))


_WHY = {
    PreemptWhy.PRIORITY: "go to job {job} of a higher class",
    PreemptWhy.GUARANTEE: "were borrowed beyond the guarantee of tenant {tenant} and go back to job {job}",
    PreemptWhy.TURN: "were held long: the turn goes to job {job}",
    PreemptWhy.QUOTA: "are above the lowered limit of tenant {tenant}",
    PreemptWhy.CONSOLIDATION: "make room for job {job}, and it has room elsewhere",
    PreemptWhy.DRAIN: "are in a pool that is no longer for tenant {tenant}",
}


# ---- the fleet -------------------------------------------------------------------------------------------------------


def explain(demand: Demand, supply: Supply) -> Reason:
    """The constraint that binds, first the hardest: nodes, size of the fleet, cards, their scatter, slots, the rest."""
    if supply.nodes_ready == 0:
        return _no_nodes(demand, supply)
    where = f"{supply.tier} nodes"
    if supply.slots_total < demand.members:
        return _too_large(demand, supply, where)
    if supply.slots_bounded < demand.members:
        return _too_many(demand, supply, where)
    return _taken(demand, supply, where)


def _taken(demand: Demand, supply: Supply, where: str) -> Reason:
    """An empty fleet would hold it."""
    if demand.cards and supply.slots_free_by_cards < demand.members:
        return _share_bound(demand, supply, where) if _fraction(demand) else _card_bound(demand, supply, where)
    if supply.slots_free_bounded < demand.members:
        return _slots_taken(demand, supply, where)
    if supply.slots_free >= demand.members:
        return _scattered(demand, supply, where)
    return _limit_bound(demand, supply, where) or _host_bound(demand, supply, where)


def _fraction(demand: Demand) -> bool:
    return demand.cards == 1 and (demand.share < CARD or demand.share_memory_bytes > 0)


def _kind(demand: Demand) -> str:
    kind = f"{'/'.join(model.upper() for model in demand.models)} cards" if demand.models else "cards of one model"
    return f"{kind} of at least {demand.card_memory_bytes} bytes" if demand.card_memory_bytes else kind


def _no_nodes(demand: Demand, supply: Supply) -> Reason:
    where = f"{'/'.join(demand.tiers)} nodes"
    text = f"no {where} are ready ({supply.nodes_known} are known): waits for nodes to announce themselves or to return"
    return reason(ReasonCode.WAITING_FOR_NODES, text, "nodes", used=0, asked=demand.members, allowed=0)


def _too_large(demand: Demand, supply: Supply, where: str) -> Reason:
    text = (
        f"asks {demand.members} members with {_each(demand)}: the {supply.nodes_ready} ready {where} could hold "
        f"{supply.slots_total} even when empty"
    )
    amounts = {"used": 0, "asked": demand.members, "allowed": supply.slots_total}
    return reason(ReasonCode.WAITING_FOR_NODES, text, "members", **amounts)


def _each(demand: Demand) -> str:
    """What one member asks of a node, as it was asked: it may be that no node has it."""
    parts: list[str] = []
    if demand.cards:
        part = f"a share of {_part(demand)} on" if _fraction(demand) else f"{demand.cards}"
        parts.append(f"{part} {_kind(demand)}")
    if demand.cpu_milli:
        parts.append(f"{demand.cpu_milli} cpu_milli")
    if demand.memory_bytes:
        parts.append(f"{demand.memory_bytes} bytes of memory")
    return ", ".join(parts) or "a slot"


def _part(demand: Demand) -> str:
    return f"{demand.share_memory_bytes} bytes" if demand.share_memory_bytes else cards(demand.share)


def _too_many(demand: Demand, supply: Supply, where: str) -> Reason:
    text = (
        f"asks {demand.members} members, a node takes at most {supply.node_slots}: the {supply.nodes_ready} ready "
        f"{where} could hold {supply.slots_bounded} even when empty"
    )
    amounts = {"used": 0, "asked": demand.members, "allowed": supply.slots_bounded}
    return reason(ReasonCode.WAITING_FOR_NODES, text, "slots", **amounts)


def _card_bound(demand: Demand, supply: Supply, where: str) -> Reason:
    asked, free, total = demand.members * demand.cards, supply.cards_free, supply.cards_total
    code = ReasonCode.WAITING_FOR_CARDS
    text = f"asks {asked} {_kind(demand)}: {free} of {total} are free on {where}"
    if free >= asked:
        code = ReasonCode.FRAGMENTED
        text = (
            f"asks {demand.members} x {demand.cards} {_kind(demand)}: {free} are free on {where}, "
            f"but scattered: only {supply.slots_free_by_cards} members would fit"
        )
    return reason(code, text, "cards", used=total - free, asked=asked, allowed=total)


def _share_bound(demand: Demand, supply: Supply, where: str) -> Reason:
    """Parts of cards, in millionths of one card."""
    asked, free, total = demand.members * supply.share, supply.share_free, supply.cards_total * CARD
    code = ReasonCode.FRAGMENTED if free >= asked else ReasonCode.WAITING_FOR_CARDS
    text = f"asks {demand.members} x {cards(supply.share)} {_kind(demand)}: {cards(free)} are free on {where}"
    if free >= asked:
        text += f", but scattered: only {supply.slots_free_by_cards} members would fit on one card each"
    return reason(code, text, "card_millionths", used=total - free, asked=asked, allowed=total)


def _slots_taken(demand: Demand, supply: Supply, where: str) -> Reason:
    """Cards would do, but too many members are there already."""
    free, total = supply.node_slots_free, supply.node_slots_total
    text = f"asks {demand.members} slots, {supply.node_slots} a node: {free} of {total} are free on {where}"
    if free >= demand.members:
        text += ", but not beside the free cards"
    code = ReasonCode.FRAGMENTED if free >= demand.members else ReasonCode.WAITING_FOR_NODES
    return reason(code, text, "slots", used=max(0, total - free), asked=demand.members, allowed=total)


def _scattered(demand: Demand, supply: Supply, where: str) -> Reason:
    """All members find a place, but not near enough to each other."""
    code, near = (
        (ReasonCode.TOPOLOGY, f"within one {demand.level}") if demand.level else (ReasonCode.FRAGMENTED, "together")
    )
    text = f"asks {demand.members} members {near}: {supply.slots_free} would fit on {where}, but scattered"
    amounts = {"used": supply.slots_free, "asked": demand.members, "allowed": supply.slots_bounded}
    return reason(code, text, "members", **amounts)


def _limit_bound(demand: Demand, supply: Supply, where: str) -> Reason | None:
    """The assessed limits of remote nodes: what their power, heat or link allows besides what runs there."""
    if supply.slots_free_by_link < demand.members:
        each, free, name = demand.link_mbps, supply.link_mbps_free, "link_mbps"
    elif supply.slots_free_by_limits < demand.members:
        each, free, name = demand.cards * supply.share, supply.budget_free, "card_millionths"
    else:
        return None
    asked = demand.members * each
    if asked > free:
        text = f"asks {asked} {name}: the assessed limits of {where} leave {max(0, free)}"
        return reason(ReasonCode.WAITING_FOR_NODES, text, name, asked=asked, allowed=max(0, free))
    text = (
        f"asks {demand.members} x {each} {name}: the assessed limits of {where} leave it, but not on one node beside "
        "what else it needs"
    )
    return reason(ReasonCode.FRAGMENTED, text, name, asked=asked)


def _host_bound(demand: Demand, supply: Supply, where: str) -> Reason:
    """Cards would do, but not beside processors and memory."""
    cpu, memory = demand.members * demand.cpu_milli, demand.members * demand.memory_bytes
    cpu_short, memory_short = cpu - supply.cpu_milli_free, memory - supply.memory_bytes_free
    asked, total, free, name = memory, supply.memory_bytes_total, supply.memory_bytes_free, "memory_bytes"
    if demand.cpu_milli and (cpu_short > 0 or memory_short <= 0):
        asked, total, free, name = cpu, supply.cpu_milli_total, supply.cpu_milli_free, "cpu_milli"
    text = f"asks {demand.members} x {asked // demand.members} {name}: {free} of {total} are free on {where}"
    if free >= asked:
        text += ", but not on one node beside what else it needs"
    code = ReasonCode.FRAGMENTED if free >= asked else ReasonCode.WAITING_FOR_NODES
    return reason(code, text, name, used=max(0, total - free), asked=asked, allowed=total)
