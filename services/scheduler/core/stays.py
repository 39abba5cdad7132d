"""Why a job stays, in words and figures: its shape against what the fleet could give, its tenant against its bounds."""

from contracts.base import Reason, ReasonCode
from services.scheduler.core.arrays import CARD, NEVER, Demand, Level, PreemptWhy
from services.scheduler.core.fairness import Short
from services.scheduler.core.packing import Supply
from services.scheduler.core.packing.supply import Lack
from services.scheduler.core.words import amount_of, kept_in, pools_of, reason, size, waiting_for_quota

US_PER_S = 1_000_000

# ---- bounds of tenants -----------------------------------------------------------------------------------------------


def beyond(tenant: str, short: Short) -> Reason:
    """A bound of the tenant, or of the cohort that it borrows from, is in the way."""
    if short.resource != "cards":
        return waiting_for_quota(tenant, short.resource, short.used, short.asked, short.allowed)
    allowed = min(short.allowed, NEVER - CARD)
    if short.whose is None:
        text = (
            f"tenant {tenant} has {cards(short.used)} of {count(allowed)} in use, {cards(short.asked)} more asked: "
            "waits for its own jobs"
        )
    else:
        text = (
            f"tenant {tenant} asks {count(short.asked)}, more than its guarantee leaves: cohort {short.whose} has "
            f"{cards(short.used)} of {cards(allowed)} in use: waits for jobs of the cohort to end"
        )
    return _cards_reason(ReasonCode.WAITING_FOR_QUOTA, text, used=short.used, asked=short.asked, allowed=allowed)


def behind(tenant: str, first: str, asked: int, used: int, limit: int) -> Reason:
    """It would fit its tenant's limit, but then an earlier and larger job of the tenant would never."""
    text = (
        f"tenant {tenant} has {cards(used)} of {count(limit)} in use, {cards(asked)} more asked: what is left is "
        f"kept for its earlier job {first}"
    )
    return _cards_reason(ReasonCode.RESERVED, text, used=used, asked=asked, allowed=limit)


def _cards_reason(code: ReasonCode, text: str, **millionths: int) -> Reason:
    """In whole cards where all amounts are, else in millionths of one."""
    if any(amount % CARD for amount in millionths.values()):
        return reason(code, text, "card_millionths", **millionths)
    return reason(code, text, "cards", **{name: amount // CARD for name, amount in millionths.items()})


def cards(millionths: int) -> str:
    """An amount of cards in words: whole ones without decimals."""
    return f"{millionths / CARD:g}" if millionths % CARD else f"{millionths // CARD}"


def count(millionths: int) -> str:
    """`1 card`, `0.5 cards`, `2 cards`."""
    return f"{cards(millionths)} card{'' if millionths == CARD else 's'}"


# ---- turns -----------------------------------------------------------------------------------------------------------


def reserved(owner: str, demand: Demand, asked: int) -> Reason:
    """It fits, but the room is kept. `asked`: millionths of cards."""
    return _turn(
        ReasonCode.RESERVED,
        demand,
        asked,
        f"nodes with room for it are kept for job {owner}, and it might not end before",
    )


def blocked(first: str, demand: Demand, asked: int) -> Reason:
    """Strict order: what comes before must go first."""
    return _turn(ReasonCode.RESERVED, demand, asked, f"job {first} comes before it and does not fit yet")


def before(opens_us: int, now_us: int) -> str:
    """What lets it start beside room that is kept from `opens_us` on."""
    start, left_s = "the start of the job that it is kept for", (opens_us - now_us) // US_PER_S
    if left_s <= 0 or opens_us == NEVER:
        return start
    return f"{start}, or a `max_runtime_s` of at most {left_s}"


def leaving(gone: int, demand: Demand, asked: int) -> Reason:
    """Jobs go from where it is to run, for it or by their owners' wish."""
    who = "1 job there is" if gone == 1 else f"{gone} jobs there are"
    return _turn(ReasonCode.WAITING_FOR_PREEMPTION, demand, asked, f"{who} leaving")


def _turn(code: ReasonCode, demand: Demand, asked: int, why: str) -> Reason:
    """What it asks, of cards or else of processors, memory or slots, and who comes first."""
    if asked:
        return _cards_reason(code, f"asks {count(asked)}: {why}", asked=asked)
    for resource, each in (("cpu_milli", demand.cpu_milli), ("memory_bytes", demand.memory_bytes), ("slots", 1)):
        if each:
            amount = demand.members * each
            return reason(code, f"asks {amount_of(resource, amount)}: {why}", resource, asked=amount)
    raise AssertionError(demand)


def told_to_leave(why: PreemptWhy, tenant: str, job: str | None, held: int) -> Reason:
    """What a victim is told."""
    one = held in {0, CARD}
    be, go, make = ("is", "goes", "makes") if one else ("are", "go", "make")
    because = _WHY[why].format(job=job, tenant=tenant, be=be, was="was" if one else "were", go=go, make=make)
    text = f"its {count(held) if held else 'place'} {because}: it goes on later from its newest checkpoint"
    return _cards_reason(ReasonCode.PREEMPTED, text, asked=held)


_WHY = {
    PreemptWhy.PRIORITY: "{go} to job {job} of a higher class",
    PreemptWhy.GUARANTEE: "{was} borrowed beyond the guarantee of tenant {tenant} and {go} back to job {job}",
    PreemptWhy.TURN: "{was} held long: the turn goes to job {job}",
    PreemptWhy.QUOTA: "{be} above the lowered limit of tenant {tenant}",
    PreemptWhy.CONSOLIDATION: "{make} room for job {job}, and it has room elsewhere",
    PreemptWhy.DRAIN: "{be} in a pool that is no longer for tenant {tenant}",
}


# ---- the fleet -------------------------------------------------------------------------------------------------------


def explain(demand: Demand, supply: Supply) -> Reason:
    """The constraint that binds, first the hardest: nodes, what they hold when empty, cards, scatter, the rest."""
    if supply.nodes_ready == 0:
        return _no_nodes(demand, supply)
    if supply.lack is not None:
        return _never(demand, supply, supply.lack)
    return _taken(demand, supply, f"{supply.tier} nodes")


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


def _kind(demand: Demand, number: int = 0) -> str:
    """`A100/H100 cards of at least 40 GiB`."""
    noun = "card" if number == 1 else "cards"
    kind = f"{'/'.join(model.upper() for model in demand.models)} {noun}" if demand.models else noun
    if not demand.models and demand.cards > 1:
        kind = f"{noun} of one model"
    return f"{kind} of at least {size(demand.card_memory_bytes)}" if demand.card_memory_bytes else kind


def remedy(supply: Supply) -> str:
    """What would let it start where nodes are there, and a file keeps it from them; empty where none does."""
    if supply.pools:
        return f"{pools_of(supply.pools)} under `pools` in the tenant's file, or other `pools` in the policy file"
    if supply.lack is None or not supply.lack.unknown:
        return ""
    column = "rack" if supply.lack.near == Level.RACK else "card_link.kind"
    return f"`farside nodes import` with `{column}` of these nodes, or `topology` without `required`"


def _no_nodes(demand: Demand, supply: Supply) -> Reason:
    where, waits = f"{' or '.join(demand.tiers)} nodes", "waits for nodes to announce themselves or to return"
    text = f"no {where} are ready ({supply.nodes_known} are known): {waits}"
    if supply.pools:
        text = f"no {where} that its tenant may use are ready ({supply.nodes_known} are known): {kept_in(supply.pools)}"
    text = f"asks {_asked(demand)}: {text}"
    return reason(ReasonCode.WAITING_FOR_NODES, text, "nodes", used=0, asked=demand.members, allowed=0)


def _each(demand: Demand) -> str:
    """What one member asks of a node, as it was asked: it may be that no node has it."""
    parts: list[str] = []
    if demand.cards:
        part = f"a share of {_part(demand)} on one" if _fraction(demand) else f"{demand.cards}"
        parts.append(f"{part} {_kind(demand, demand.cards)}")
    parts.extend(
        amount_of(resource, each)
        for resource, each in (
            ("cpu_milli", demand.cpu_milli),
            ("memory_bytes", demand.memory_bytes),
            ("link_mbps", demand.link_mbps),
        )
        if each
    )
    return ", ".join(parts) or "a slot"


def _asked(demand: Demand) -> str:
    return _each(demand) if demand.members == 1 else f"{demand.members} members with {_each(demand)} each"


def _times(demand: Demand) -> str:
    """`3 x `; nothing for one member."""
    return "" if demand.members == 1 else f"{demand.members} x "


def _part(demand: Demand) -> str:
    return size(demand.share_memory_bytes) if demand.share_memory_bytes else cards(demand.share)


# ---- what no end of a job would change: asked > allowed --------------------------------------------------------------


def _never(demand: Demand, supply: Supply, lack: Lack) -> Reason:
    """The ready nodes would not hold it even if nothing ran there; those that are not ready might."""
    out = supply.nodes_known - supply.nodes_ready
    text = f"asks {_asked(demand)}{_within(demand)}: {_could(supply, lack)}"
    if out and supply.known >= demand.members:
        text += f"; with the {out} not ready they would"
    elif out:
        text += f", nor would the {out} not ready help"
    if supply.pools:
        text += f"; {kept_in(supply.pools)}"
    return reason(ReasonCode.WAITING_FOR_NODES, text, lack.resource, used=0, asked=lack.asked, allowed=lack.allowed)


def _within(demand: Demand) -> str:
    """How near to each other they must be."""
    return f" within one {_AREAS[demand.level]}" if demand.level is not None and demand.level_required else ""


_AREAS = {Level.LINK: "card link", Level.NODE: "node", Level.RACK: "rack", Level.ZONE: "zone"}


def _could(supply: Supply, lack: Lack) -> str:
    """What there is, even when empty."""
    nodes = f"the {supply.nodes_ready} ready {supply.tier} node{'' if supply.nodes_ready == 1 else 's'}"
    nodes += " that its tenant may use" if supply.pools else ""
    if lack.unknown:
        return f"no {_AREAS[Level(lack.near or '')]} is known of {nodes}: declare it with `farside nodes import`"
    have, amount = "has" if supply.nodes_ready == 1 else "have", amount_of(lack.resource, lack.allowed)
    match lack.resource, lack.near:
        case "card_memory_bytes", _:
            said = f"the largest of such cards on {nodes} have {size(lack.allowed)}"
        case "cards", None if lack.allowed == 0:
            said = f"{nodes} {have} no such card"
        case "cards_per_link", _:
            said = f"the largest card link of {nodes} joins {lack.allowed}"
        case _, "limit":
            where = "on one node" if lack.each else "in all"
            said = f"the assessed limits of {nodes} allow {amount} {where} even when empty"
        case _, str(area):
            said = f"the largest {_AREAS[Level(area)]} of {nodes} holds {members_of(lack.allowed)} even when empty"
        case "members", None:
            said = f"{nodes} could hold {members_of(lack.allowed)} even when empty"
        case _:
            where = "on one node at most" if lack.each else "in all"
            said = f"{nodes} {have} {amount} {where}, even when empty"
    return said


def members_of(number: int) -> str:
    """`1 member`, `2 members`."""
    return f"{number} member{'' if number == 1 else 's'}"


def only(number: int) -> str:
    """`no member`, `only 2 members`."""
    return f"only {members_of(number)}" if number else "no member"


# ---- what others hold ------------------------------------------------------------------------------------------------


def _card_bound(demand: Demand, supply: Supply, where: str) -> Reason:
    asked, free, total = demand.members * demand.cards, supply.cards_free, supply.cards_total
    code = ReasonCode.WAITING_FOR_CARDS
    text = f"asks {asked} {_kind(demand, asked)}: {free} of {total} are free on {where}"
    if free >= asked:
        code = ReasonCode.FRAGMENTED
        text = (
            f"asks {_times(demand)}{demand.cards} {_kind(demand, demand.cards)}: {free} are free on {where}, "
            f"but scattered: {only(supply.slots_free_by_cards)} would fit"
        )
    return reason(code, text, "cards", used=total - free, asked=asked, allowed=total)


def _share_bound(demand: Demand, supply: Supply, where: str) -> Reason:
    """Parts of cards, in millionths of one card."""
    asked, free, total = demand.members * supply.share, supply.share_free, supply.cards_total * CARD
    code = ReasonCode.FRAGMENTED if free >= asked else ReasonCode.WAITING_FOR_CARDS
    text = (
        f"asks {_times(demand)}{cards(supply.share)} of one {_kind(demand, 1)}: {cards(free)} of {cards(total)} are "
        f"free on {where}"
    )
    if free >= asked:
        text += f", but scattered: {only(supply.slots_free_by_cards)} would fit on one card each"
    return reason(code, text, "card_millionths", used=total - free, asked=asked, allowed=total)


def _slots_taken(demand: Demand, supply: Supply, where: str) -> Reason:
    """Cards would do, but too many members are there already."""
    free, total = supply.node_slots_free, supply.node_slots_total
    text = (
        f"asks {amount_of('slots', demand.members)}, {supply.node_slots} a node: {free} of {total} are free on {where}"
    )
    if free >= demand.members:
        text += ", but not beside the free cards"
    code = ReasonCode.FRAGMENTED if free >= demand.members else ReasonCode.WAITING_FOR_NODES
    return reason(code, text, "slots", used=max(0, total - free), asked=demand.members, allowed=total)


def _scattered(demand: Demand, supply: Supply, where: str) -> Reason:
    """All members find a place, but not near enough to each other; the most that one area holds now."""
    level = demand.level if demand.level_required else None
    code = ReasonCode.FRAGMENTED if level is None else ReasonCode.TOPOLOGY
    near = "together" if level is None else f"within one {_AREAS[level]}"
    best = f"the most that fit {near}" if level is None else f"the {_AREAS[level]} with the most room takes"
    text = (
        f"asks {_asked(demand)} {near}: {supply.slots_free} would fit on {where}, but scattered: {best} "
        f"{supply.near_free} now, {supply.near_empty} when empty"
    )
    resource = "members" if level is None else f"members_per_{level}"
    used = max(0, supply.near_empty - supply.near_free)
    return reason(code, text, resource, used=used, asked=demand.members, allowed=supply.near_empty)


def _limit_bound(demand: Demand, supply: Supply, where: str) -> Reason | None:
    """The assessed limits of remote nodes: what their power, heat or link allows besides what runs there."""
    if supply.slots_free_by_link < demand.members:
        each, free, total, name = demand.link_mbps, supply.link_mbps_free, supply.link_mbps_total, "link_mbps"
    elif supply.slots_free_by_limits < demand.members:
        each, free, total = demand.cards * supply.share, supply.budget_free, supply.budget_total
        name = "card_millionths"
    else:
        return None
    asked, free = demand.members * each, max(0, free)
    if asked > free:
        text = (
            f"asks {amount_of(name, asked)}: the assessed limits of {where} leave {amount_of(name, free)} of "
            f"{amount_of(name, total)}"
        )
        return reason(ReasonCode.WAITING_FOR_NODES, text, name, used=max(0, total - free), asked=asked, allowed=total)
    text = (
        f"asks {_times(demand)}{amount_of(name, each)}: the assessed limits of {where} leave it, but not on one "
        "node beside what else it needs"
    )
    return reason(ReasonCode.FRAGMENTED, text, name, asked=asked)


def _host_bound(demand: Demand, supply: Supply, where: str) -> Reason:
    """Cards would do, but not beside processors and memory."""
    cpu, memory = demand.members * demand.cpu_milli, demand.members * demand.memory_bytes
    cpu_short, memory_short = cpu - supply.cpu_milli_free, memory - supply.memory_bytes_free
    asked, total, free, name = memory, supply.memory_bytes_total, supply.memory_bytes_free, "memory_bytes"
    if demand.cpu_milli and (cpu_short > 0 or memory_short <= 0):
        asked, total, free, name = cpu, supply.cpu_milli_total, supply.cpu_milli_free, "cpu_milli"
    most, there = supply.cpu_milli_most if name == "cpu_milli" else supply.memory_bytes_most
    said = f"{_of(name, free, total)} are free on {where}"
    if demand.members == 1 and free < asked and there and (most, there) != (free, total):
        said = f"{_of(name, most, there)} are free where most are, {_of(name, free, total)} in all, on {where}"
        free, total = most, there
    text = f"asks {_times(demand)}{amount_of(name, asked // demand.members)}: {said}"
    if free >= asked:
        text += ", but not on one node beside what else it needs"
    code = ReasonCode.FRAGMENTED if free >= asked else ReasonCode.WAITING_FOR_NODES
    return reason(code, text, name, used=max(0, total - free), asked=asked, allowed=total)


def _of(resource: str, free: int, total: int) -> str:
    """`3 of 4`, `16 GiB of 64 GiB`."""
    return f"{size(free)} of {size(total)}" if resource == "memory_bytes" else f"{free} of {total}"
