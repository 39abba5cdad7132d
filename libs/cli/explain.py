"""What the scheduler says of a job that waits, in words: what binds, how much is short, whose turn, and until when."""

from collections.abc import Sequence
from datetime import UTC, datetime

from contracts.base import Reason, ReasonCode
from contracts.queue import DryRunReply, ExplainReply, Forecast, Leaving
from libs.cli import output, words

HEADERS = ("NODE", "CARDS", "LEAVES", "JOB", "TENANT")
ANOTHER = "of another tenant"
TOLD = frozenset({"constraint", "short", "position", "waiting", "forecast", "leaving", "tenant_share_milli"})

FREES = {
    ReasonCode.ON_HOLD: "`farside job release JOB`",
    ReasonCode.TENANT_SUSPENDED: "an operator, who takes `suspended` out of the tenant's file",
    ReasonCode.WAITING_FOR_QUOTA: "an end of a job under the same quota, or a higher quota",
    ReasonCode.WAITING_FOR_DATASET: "`farside dataset put` with its name and version, or the end of a transfer of it",
    ReasonCode.WAITING_FOR_NODES: "a node of a fitting tier that comes up or back, or an end of a job on one",
    ReasonCode.WAITING_FOR_CARDS: "an end of a job that holds such cards",
    ReasonCode.FRAGMENTED: "an end of a job on a node that could then hold a member",
    ReasonCode.TOPOLOGY: "ends of jobs near to each other, or `topology` without `required`",
    ReasonCode.RESERVED: "the start of the job that it is kept for, or a `max_runtime_s` that ends before that start",
    ReasonCode.WAITING_FOR_WINDOW: "the next opening of its window",
    ReasonCode.WAITING_FOR_PREEMPTION: "the end of those that are leaving, within their grace",
    ReasonCode.BREAKER_OPEN: "nodes that come back, or `farside breaker release`",
    ReasonCode.NOT_CLAIMED: "a node that takes it up",
    ReasonCode.NODE_LOST: "its turn: it goes on elsewhere",
    ReasonCode.NODE_DRAINING: "its turn: it goes on elsewhere",
    ReasonCode.PREEMPTED: "its turn: it goes on from its newest checkpoint",
    ReasonCode.MEMBER_FAILED: "its turn: a new attempt while `retries` are left",
}


def frees(said: ExplainReply | DryRunReply) -> str:
    """What would let the job start, as the scheduler says or by its reason."""
    if said.frees:
        return said.frees
    words = frees_by_code(said.reason)
    return words.replace("JOB", said.job_id) if isinstance(said, ExplainReply) else words


def frees_by_code(reason: Reason | None) -> str:
    """By the reason alone; nothing for one that this version does not know."""
    return FREES.get(reason.code, "") if reason is not None and isinstance(reason.code, ReasonCode) else ""


def lines(said: ExplainReply | DryRunReply) -> list[tuple[str, str]]:
    """Names with values for a job that waits."""
    reason = said.reason
    resource = reason.resource if reason is not None else None
    return [
        ("binds", said.constraint or ""),
        ("short", words.amount(said.short, resource) if said.short is not None else ""),
        ("frees", frees(said)),
        ("priority", said.priority or ""),
        ("share", share(said.tenant_share_milli)),
        ("turn", f"{said.position} of {words.count(said.waiting, 'waiting job')}" if said.position else ""),
        ("expected", expected(said.forecast)),
        ("kept for it", ", ".join(said.forecast.nodes) if said.forecast is not None else ""),
        ("as of", words.moment(said.as_of)),
    ]


def share(milli: int | None) -> str:
    """What decides between tenants."""
    if milli is None:
        return ""
    return f"{words.percent(milli)} of what all tenants used of late and hold, by weight; in a class the least is first"


def expected(forecast: Forecast | None) -> str:
    """When a job may start and what that rests on."""
    if forecast is None:
        return "nothing tells"
    start = words.moment(forecast.starts_at) if forecast.starts_at is not None else "nothing tells"
    return f"{start}: {forecast.basis.removeprefix('not known: ')}" if forecast.basis else start


def show_leaving(leaving: Sequence[Leaving]) -> None:
    """Print who holds what is short, the first to leave first; nothing where nobody does."""
    if leaving:
        output.note("\nwho holds what is short")
        output.table(HEADERS, [leaving_row(one) for one in leaving], empty="")


def leaving_row(one: Leaving) -> tuple[str, ...]:
    """One attempt that holds what is short."""
    leaves = words.moment(one.leaves_at) if one.leaves_at is not None else "open"
    stopping = f"{leaves}, stopping" if one.stopping else leaves
    return one.node, words.amount(one.card_milli, "card_milli"), stopping, one.job_id or ANOTHER, one.tenant or ""


def as_json(said: ExplainReply | DryRunReply) -> dict[str, object]:
    """What `--json` adds to the reason."""
    told = said.model_dump(mode="json", include={*TOLD})
    return {**told, "frees": frees(said) or None, "as_of": said.as_of.astimezone(UTC).isoformat()}


def soon(forecast: Forecast | None, now: datetime) -> str:
    """How far off the expected start is: `in 5m`, `now`, or nothing where nothing tells."""
    if forecast is None or forecast.starts_at is None:
        return ""
    ahead = (forecast.starts_at - now).total_seconds()
    return f"in {words.age(now, forecast.starts_at)}" if ahead >= 1 else "now"
