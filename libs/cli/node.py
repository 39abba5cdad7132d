"""`farside node`: all there is about one node, and an operator's orders about it."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import ParamSpec, TypeVar

import click
from typing_extensions import override

from contracts import registry
from contracts.fleet import FaultTold, HistoryQuery, NodeQuery, NodeReply
from contracts.health import CardHealth
from contracts.nodes import NodeOrder, NodeState
from contracts.registry import Message
from libs.cli import options, output, words
from libs.cli.errors import CliError, UnreachableError
from libs.cli.manual import Manual, ManualGroup
from libs.cli.nodes import MILLI, cards
from libs.cli.session import Session, connected, every, run
from libs.kit.ids import new_id

P = ParamSpec("P")
T = TypeVar("T")

MAX_REASON = 1024
ORDER_TIMEOUT_S = 15.0
ACTOR = "operator"
TOLD_BY = (
    registry.NODES_GRADED,
    registry.NODES_SUSPECT,
    registry.NODES_LOST,
    registry.NODES_RETURNED,
    registry.NODES_QUARANTINED,
    registry.NODES_RELEASED,
)


class NodeGroup(ManualGroup):
    """`farside node NAME` is short for `farside node show NAME`."""

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = not args or args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if known else ["show", *args])


@click.group(cls=NodeGroup)
def node() -> None:
    """Show one node, its faults and its history; cordon, drain, uncordon, check and retire it.

    `farside node NAME` is short for `farside node show NAME`.
    """


# ---- shown -----------------------------------------------------------------------------------------------------------


@node.command(cls=Manual)
@click.argument("name")
@click.option("--history", is_flag=True, help="Show every change instead: who, when and why, newest first.")
@options.common
def show(name: str, stack: Path | None, *, history: bool, as_json: bool) -> None:
    """Show node NAME: facts, faults, checks, clock, grade, cost, and what differs from its declaration.

    Examples:
      farside node central-1
      farside node central-1 --history --json

    """
    run(_history(name, stack, as_json=as_json) if history else _show(name, stack, as_json=as_json))


async def _show(name: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await session.ask(registry.QUERY_NODE, NodeQuery(node=name))
    if as_json:
        output.as_json(found)
        return
    now = datetime.now(UTC)
    output.record([("node", name), *_stands(found, now), *_hardware(found), *_worth(found), *_compared(found)])
    if found.faults:
        headers = ("FAULT", "CARD", "REMEDY", "EFFECT", "MESSAGE")
        output.table(headers, [_fault(one) for one in found.faults], empty="")
    if found.report is not None and found.report.cards:
        headers = ("CARD", "UUID", "BUSY", "MEMORY USED", "TEMPERATURE", "POWER", "XIDS", "REMAPPED", "SLOWED BY")
        output.table(headers, [_card(card) for card in found.report.cards], empty="")


def _stands(found: NodeReply, now: datetime) -> list[tuple[str, str]]:
    state = found.state
    if state is None:
        return [("state", "declared, and no agent has announced it")]
    checks = [f"{one.name} {one.verdict}{f' ({one.detail})' if one.detail else ''}" for one in found.checks]
    return [
        ("state", f"{state.state} for {words.age(state.since, now)}{' (cordoned)' if state.cordoned else ''}"),
        ("reason", state.reason),
        ("order", found.order),
        ("checks", ", ".join(checks)),
        ("clock", "not known yet" if found.skew_ms is None else _clock(found.skew_ms)),
        ("work", words.count(len(state.attempts), "attempt") if state.attempts else ""),
        ("version", str(state.version)),
    ]


def _clock(skew_ms: int) -> str:
    return f"{abs(skew_ms) / MILLI:.3f} s {'ahead' if skew_ms > 0 else 'behind'} at the least"


def _hardware(found: NodeReply) -> list[tuple[str, str]]:
    if found.state is None:
        return []
    facts = found.state.facts
    limits = "" if found.state.limits is None else _figures(found.state.limits.model_dump(exclude_none=True))
    return [
        ("tier", facts.tier),
        ("place", f"zone {facts.zone}{f', rack {facts.rack}' if facts.rack else ''}"),
        ("cards", cards(found.state)),
        ("processors", f"{facts.cpu_milli / MILLI:g}"),
        ("memory", words.size(facts.memory_bytes)),
        ("generation", facts.generation or ""),
        ("card link", "" if facts.card_link is None else _figures(facts.card_link.model_dump(exclude_none=True))),
        ("node link", "" if facts.node_link is None else _figures(facts.node_link.model_dump(exclude_none=True))),
        ("limits", limits),
    ]


def _worth(found: NodeReply) -> list[tuple[str, str]]:
    grade = found.grade
    if grade is None:
        return []
    days = [f"{one.day} {one.utilisation_pct} %" for one in found.days[:7]]
    cost = grade.cost
    return [
        ("grade", f"{grade.grade} ({grade.score / MILLI:.3f}), {grade.node_class}"),
        *(("because", reason) for reason in grade.reasons),
        ("promised", f"{grade.cards_promised_milli / MILLI:g} cards, {grade.cards_used_milli / MILLI:g} of them used"),
        ("idle since", "" if grade.idle_since is None else words.moment(grade.idle_since)),
        ("release", "possible" if grade.releasable else f"no: {grade.kept_because}"),
        ("cost", "" if cost is None else f"{money(cost.power_micro + cost.depreciation_micro, cost.currency)} a month"),
        ("utilisation", ", ".join(days)),
    ]


def _compared(found: NodeReply) -> list[tuple[str, str]]:
    declared = found.declared
    if declared is None:
        return [("declared", "no")]
    differs = [("differs", difference) for difference in declared.differences]
    return differs or [("declared", "as announced" if declared.announced else "not announced")]


def _figures(values: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def money(micro: int, currency: str) -> str:
    """`24700.00 CNY`."""
    return f"{micro / 1_000_000:.2f} {currency.upper()}"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _fault(one: FaultTold) -> tuple[str, ...]:
    effect = "held by the breaker" if one.held else "out of the pool"
    return (one.code, _number(one.card), one.remedy, effect, one.message)


def _card(card: CardHealth) -> tuple[str, ...]:
    rows = card.remapped_rows
    return (
        str(card.index),
        card.uuid,
        "" if card.utilisation_pct is None else f"{card.utilisation_pct} %",
        "" if card.memory_used_bytes is None else words.size(card.memory_used_bytes),
        "" if card.temperature_c is None else f"{card.temperature_c} C",
        "" if card.power_mw is None else f"{card.power_mw / MILLI:.0f} W",
        ", ".join(f"{xid.code} ({xid.count})" for xid in card.xids),
        "" if rows is None else f"{rows.corrected or 0} + {rows.uncorrected or 0}{' pending' if rows.pending else ''}",
        ", ".join(card.clock_events),
    )


async def _history(name: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await every(
            lambda cursor: session.ask(registry.QUERY_HISTORY, HistoryQuery(node=name, cursor=cursor)),
            lambda page: page.changes,
        )
    if as_json:
        output.as_json({"node": name, "changes": found})
        return
    headers = ("VERSION", "AT", "EVENT", "STATE", "CAUSE", "BY", "REASON")
    rows = [
        (_number(one.version), words.moment(one.at), one.event, one.state or "", one.cause, one.actor, one.reason)
        for one in found
    ]
    output.table(headers, rows, empty=f"node {name} has no history")


# ---- orders ----------------------------------------------------------------------------------------------------------


def _order(message: Message[NodeOrder], name: str, reason: str, stack: Path | None, *, as_json: bool) -> None:
    if not 0 < len(reason) <= MAX_REASON:
        msg = f"--reason has {len(reason)} characters: say why in 1 to {MAX_REASON}"
        raise click.BadParameter(msg)
    state = run(_send(message, name, reason, stack))
    if as_json:
        output.as_json(state)
    else:
        output.note(f"node {name} is {state.state}{' (cordoned)' if state.cordoned else ''}: {state.reason}")


async def _send(message: Message[NodeOrder], name: str, reason: str, stack: Path | None) -> NodeState:
    """Send an order and wait for what inventory tells of it; what stands so already is told at once."""
    async with connected(stack) as session:
        before = await session.ask(registry.QUERY_NODE, NodeQuery(node=name))
        state = standing(before, message.name, name)
        if before.standing in _STANDS_SO.get(message.name, ()):
            output.note(already(before, name))
            return state
        since = await session.next_sequence(registry.NODES_GRADED)
        body = NodeOrder(node=name, reason=reason)
        await session.publish(message, body, key=name, subject=name, actor=ACTOR, id=new_id())
        return await _told(session, message, name, since, state.version)


def standing(found: NodeReply, order: str, name: str) -> NodeState:
    """The node as it stands. Raises CliError where the order can have no effect."""
    if found.state is None:
        msg = f"no agent has announced node {name}: it is declared only, and takes no work (`farside nodes import`)"
        raise CliError(msg)
    if found.standing == "retired" and order in {"cordon", "drain"}:
        msg = f"node {name} is retired, and takes no work: `farside node uncordon {name}` first if it is to come back"
        raise CliError(msg)
    return found.state


def already(found: NodeReply, name: str) -> str:
    """What is said where an order changes nothing."""
    if not found.order:
        return f"node {name} is {found.standing} already: nothing was sent"
    return f"node {name} is {found.standing} already ({found.order}): nothing was sent, the new reason is not kept"


async def _told(session: Session, message: Message[NodeOrder], name: str, since: int, version: int) -> NodeState:
    event = await session.first(
        TOLD_BY,
        name,
        since,
        lambda event: event.body.version > version and event.actor == ACTOR,
        ORDER_TIMEOUT_S,
    )
    if event is None:
        msg = (
            f"inventory has said nothing of the order to {message.name} node {name} within {ORDER_TIMEOUT_S:.0f} s: "
            f"`farside node {name} --history` and `farside deadletter list` show what became of it"
        )
        raise UnreachableError(msg)
    return event.body


_STANDS_SO = {
    "cordon": ("cordoned",),
    "drain": ("draining",),
    "uncordon": ("free",),
    "retire": ("retiring", "retired"),
}
"""The standings in which an order changes nothing."""


def _ordering(function: Callable[P, T]) -> Callable[P, T]:
    """NAME, the reason and the common options."""
    reason = click.option("--reason", required=True, help="Why; kept in the node's history.")
    return click.argument("name")(reason(options.common(function)))


@node.command(cls=Manual)
@_ordering
def cordon(name: str, reason: str, stack: Path | None, *, as_json: bool) -> None:
    """Give node NAME no new work; what runs there runs on.

    Example:
      farside node cordon central-1 --reason "disk to be swapped"

    """
    _order(registry.NODES_CORDON, name, reason, stack, as_json=as_json)


@node.command(cls=Manual)
@_ordering
def drain(name: str, reason: str, stack: Path | None, *, as_json: bool) -> None:
    """Give node NAME no new work and move away what runs there.

    Example:
      farside node drain central-1 --reason "rack 7 loses power at noon"

    """
    _order(registry.NODES_DRAIN, name, reason, stack, as_json=as_json)


@node.command(cls=Manual)
@_ordering
def uncordon(name: str, reason: str, stack: Path | None, *, as_json: bool) -> None:
    """Let node NAME take work again: ends a cordon, a drain and a retirement. Faults stand until they are mended.

    Example:
      farside node uncordon central-1 --reason "disk swapped"

    """
    _order(registry.NODES_UNCORDON, name, reason, stack, as_json=as_json)


@node.command(cls=Manual)
@_ordering
def retire(name: str, reason: str, stack: Path | None, *, as_json: bool) -> None:
    """Drain node NAME and take it out of the fleet once nothing runs there; no silence of it is told any more.

    Example:
      farside node retire old-7 --reason "sold with its rack"

    """
    _order(registry.NODES_RETIRE, name, reason, stack, as_json=as_json)


@node.command(cls=Manual)
@_ordering
def check(name: str, reason: str, stack: Path | None, *, as_json: bool) -> None:
    """Say that what was faulty of node NAME is mended: its next report decides whether it takes work again.

    Agents report at their start and every FARSIDE_REPORT_S (300 s unless set); until then the node is announced, and
    takes no work.

    Example:
      farside node check central-1 --reason "card 1 reseated"

    """
    _order(registry.NODES_CHECK, name, reason, stack, as_json=as_json)
