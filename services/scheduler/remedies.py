"""What would let a waiting job start, in words, where more is known than the code of its reason tells.

In: the reason and what the plan knows beside it, nodes with their phases, cohorts. Where a node that is not ready would
do, the words name it, its state and what ends that; where no end of a job helps, none is offered.
"""

from collections.abc import Iterable, Mapping

from contracts.base import Reason, ReasonCode
from contracts.nodes import NodePhase
from services.scheduler.core.arrays import Stay
from services.scheduler.memory.rows import JobRow, NodeRow

NAMED = 4

_ENDS_OF_JOBS = {
    str(ReasonCode.WAITING_FOR_NODES): "an end of a job on nodes that could hold it",
    str(ReasonCode.WAITING_FOR_CARDS): "an end of a job that holds such cards",
    str(ReasonCode.FRAGMENTED): "an end of a job on a node that could then hold a member",
    str(ReasonCode.TOPOLOGY): "ends of jobs near to each other (or `topology` without `required`)",
}
_ENDS = {
    NodePhase.DRAINING: "is drained: `farside node uncordon {node}` ends it",
    NodePhase.RETIRED: "is retired: `farside node uncordon {node}` takes it back",
    NodePhase.QUARANTINED: "is quarantined: `farside node {node}` names the fault and its remedy",
    NodePhase.SUSPECT: "is silent: it is back when its agent reports",
    NodePhase.LOST: "is lost: it is back when its agent reports",
    NodePhase.ANNOUNCED: "has been announced: its checks before first work are awaited",
    NodePhase.CHECKED: "has passed its checks: its first heartbeat is awaited",
}
_SMALLER = {
    "card_memory_bytes": "a smaller `memory_per_card_bytes` or share, or nodes with larger cards",
    "cards_per_link": "fewer cards a member, `topology` without `required`, or nodes whose links join more",
    "slots": "fewer members, or more nodes",
    "nodes": "a node of such a tier that announces itself",
}


def hopeless(reason: Reason) -> bool:
    """Whether more is asked than there would be if nothing ran: no end of a job helps."""
    return reason.asked is not None and reason.allowed is not None and reason.asked > reason.allowed


def frees(reason: Reason, stay: Stay | None, job: JobRow, nodes: Iterable[NodeRow], cohort: tuple[str, ...]) -> str:
    """What would let the job start; empty where the code of the reason says all. `cohort`: its tenants."""
    match reason.code:
        case ReasonCode.WAITING_FOR_NODES if hopeless(reason) and stay is not None and stay.returns:
            return _back(job, nodes) + (f", or {stay.frees}" if stay.frees else "")
        case ReasonCode.WAITING_FOR_NODES if hopeless(reason):
            more = "" if stay is None else stay.frees
            return f"no end of a job would do: it takes {more or _smaller(reason)}"
        case code if code in _ENDS_OF_JOBS:
            back = _back(job, nodes)
            return f"{_ENDS_OF_JOBS[code]}, or {back}" if back else _ENDS_OF_JOBS[code]
        case ReasonCode.WAITING_FOR_QUOTA:
            return _quota(reason, None if stay is None else stay.cohort, job, cohort)
        case ReasonCode.WAITING_FOR_DATASET if job.dataset is not None:
            name, version = job.dataset
            return f"`farside dataset put FOLDER --name {name} --version {version}`, or the end of a transfer of it"
        case _:
            return "" if stay is None else stay.frees


def _back(job: JobRow, nodes: Iterable[NodeRow]) -> str:
    told = states(node for node in nodes if suits(node, job))
    return f"a return of nodes that are not ready: {told}" if told else ""


def _smaller(reason: Reason) -> str:
    resource = reason.resource or ""
    if resource.startswith("members_per_"):
        return f"fewer members, `topology` without `required`, or a larger {resource.removeprefix('members_per_')}"
    if resource == "cards" and not reason.allowed:
        return "another `accelerator`, or nodes with such cards"
    return _SMALLER.get(resource, "a smaller request, or more nodes that could hold it")


def _quota(reason: Reason, cohort: str | None, job: JobRow, tenants: tuple[str, ...]) -> str:
    if cohort is not None:
        more = f"more that cohort {cohort} may hold (`guarantee_cards` of its tenants, its `ceiling_cards`)"
        return more if hopeless(reason) else f"an end of a job of {_listed(tenants)} (cohort {cohort}), or {more}"
    field = "concurrent_jobs" if reason.resource == "jobs" else "cards"
    higher = f"a higher `{field}` in the file of tenant {job.tenant}"
    return f"a smaller request, or {higher}" if hopeless(reason) else f"an end of a job of the tenant, or {higher}"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown


# ---- nodes that are not ready ----------------------------------------------------------------------------------------


def suits(node: NodeRow, job: JobRow) -> bool:
    """Whether a node that is not ready is of a kind that the job asks for, pools aside."""
    asked = job.demand
    cards = [
        card
        for card in node.cards
        if not card.bad
        and card.memory_bytes >= max(asked.card_memory_bytes, asked.share_memory_bytes)
        and (not asked.models or card.model in asked.models)
    ]
    large = node.cpu_milli >= asked.cpu_milli and node.memory_bytes >= asked.memory_bytes
    return not node.ready and node.tier in asked.tiers and large and len(cards) >= asked.cards


def states(nodes: Iterable[NodeRow]) -> str:
    """Each node with its state and what ends that, in order of name; of many the first."""
    told = [_state(node) for node in sorted(nodes, key=lambda node: node.node)]
    return "; ".join(told[:NAMED]) + (f"; and {len(told) - NAMED} more" if len(told) > NAMED else "")


def _state(node: NodeRow) -> str:
    if node.cordoned and node.phase == NodePhase.READY:
        return f"{node.node} is cordoned: `farside node uncordon {node.node}` ends it"
    said = {str(phase): text for phase, text in _ENDS.items()}.get(node.phase, f"is {node.phase}")
    return f"{node.node} {said.format(node=node.node)}"


def kept_states(names: Iterable[str], nodes: Mapping[str, NodeRow]) -> str:
    """The states of those of some nodes that are not ready."""
    return states(nodes[name] for name in names if name in nodes and not nodes[name].ready)
