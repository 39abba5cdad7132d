"""`farside capacity`: what the fleet can promise, what of it is idle, and the assessment as a document."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from contracts import registry
from contracts.fleet import (
    Assessment,
    AssessRequest,
    CapacityQuery,
    CapacityRow,
    NodeGrade,
    RemoteLimit,
    TierCapacity,
)
from libs.cli import options, output, words
from libs.cli.manual import Manual
from libs.cli.node import money
from libs.cli.nodes import MILLI, NO_NODES, all_grades
from libs.cli.session import connected, run

REASON = "farside capacity --write"
TIER_HEADERS = ("TIER", "USABLE", "PROMISED", "PROMISABLE", "HEADROOM", "DUTY AND LIMITS")
ROW_HEADERS = (
    "TIER",
    "GRADE",
    "NODES",
    "CARDS",
    "USABLE",
    "PROMISED",
    "USED",
    "IDLE NODES, CARDS",
    "RELEASABLE NODES, CARDS",
    "IDLE COST A MONTH",
)
IDLE_HEADERS = ("NODE", "TIER", "GRADE", "CLASS", "CARDS", "IDLE SINCE", "COST A MONTH", "BUSY", "RELEASE")
KEPT_HEADERS = ("NODE", "TIER", "GRADE", "CLASS", "CARDS", "KEPT BECAUSE")
REMOTE_HEADERS = ("NODE", "LINK MBIT/S", "POWER W", "HEAT W", "CARDS AT ONCE", "BASIS")


@click.command(cls=Manual)
@click.option("--idle", is_flag=True, help="List what is idle: since when, at what cost a month, and what could go.")
@click.option(
    "--write",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the assessment to DIR as Markdown and JSON, under a version of its own if it says anything new.",
)
@click.option("--reason", default=REASON, show_default=True, help="Why it is written; kept with the version.")
@options.common
def capacity(reason: str, write: Path | None, stack: Path | None, *, idle: bool, as_json: bool) -> None:
    """Assess the fleet: cards usable, promised and used by tier and grade, idle cost, headroom, what could be released.

    USABLE are the good cards of nodes that take work: ready, neither cordoned nor draining. PROMISED is what the
    scheduler has placed, USED what of it runs. PROMISABLE is what the headroom (30 % unless configured) leaves of the
    usable cards. Where it is NOT KEPT, work still starts, but what a lost node held may find no room: bring nodes back
    (`farside nodes`), or let work end. IDLE and RELEASABLE are so many nodes, with so many cards. A node may be
    released when it is of an older generation, nothing runs or is placed there, and its tier keeps its headroom without
    it; scarce and critical nodes never are.

    Examples:
      farside capacity
      farside capacity --idle
      farside capacity --write docs/capacity

    """
    if write is not None and idle:
        msg = "--write writes the whole assessment, what is idle included: leave --idle out"
        raise click.UsageError(msg)
    found, grades = run(_ask(stack, reason if write is not None else None))
    if write is not None:
        for path in written(write, found, grades):
            output.note(f"written: {path}")
    elif as_json:
        shown = sorted(_idle(grades), key=lambda one: one.node) if idle else []
        output.as_json({"idle": shown} if idle else found)
        return
    elif idle:
        empty = "nothing is idle" if grades else NO_NODES
        output.table(IDLE_HEADERS, [idle_row(one) for one in _idle(grades)], empty=empty)
    else:
        output.table(TIER_HEADERS, [tier_row(one) for one in found.tiers], empty="")
        output.table(ROW_HEADERS, [row(one) for one in found.rows], empty=NO_NODES)
    if write is not None and as_json:
        output.as_json(found)


async def _ask(stack: Path | None, reason: str | None) -> tuple[Assessment, list[NodeGrade]]:
    async with connected(stack) as session:
        if reason is None:
            found = await session.ask(registry.QUERY_CAPACITY, CapacityQuery())
        else:
            found = await session.ask(registry.CALL_ASSESS, AssessRequest(reason=reason))
        return found, await all_grades(session)


def written(folder: Path, found: Assessment, grades: Sequence[NodeGrade]) -> list[Path]:
    """Write both documents of a version; returns their paths."""
    paths = [folder / f"capacity-v{found.version}.{ending}" for ending in ("md", "json")]
    output.write(paths[0], markdown(found, grades))
    document = {"assessment": found.model_dump(mode="json"), "nodes": [one.model_dump(mode="json") for one in grades]}
    output.write(paths[1], json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return paths


def markdown(found: Assessment, grades: Sequence[NodeGrade]) -> str:
    """The assessment as a page."""
    idle = _idle(grades)
    free, kept = [one for one in idle if one.releasable], [one for one in grades if not one.releasable]
    heads = (
        f"# Capacity, version {found.version}",
        f"Assessed at {words.moment(found.assessed_at)}. Headroom: {found.headroom_pct} % of each tier's usable cards.",
        f"Declared nodes that no agent has announced: {found.declared_absent}.",
    )
    classes = [(one.node_class, str(one.nodes), str(one.cards)) for one in found.classes]
    parts = (
        ("Tiers", TIER_HEADERS, [tier_row(one) for one in found.tiers]),
        ("By tier and grade", ROW_HEADERS, [row(one) for one in found.rows]),
        ("Classes", ("CLASS", "NODES", "CARDS"), classes),
        ("Limits of remote nodes, headroom taken off", REMOTE_HEADERS, [_remote_row(one) for one in found.remote]),
        ("Idle", IDLE_HEADERS, [idle_row(one) for one in idle]),
        ("Could be released", IDLE_HEADERS, [idle_row(one) for one in free]),
        ("Must not be released", KEPT_HEADERS, [_kept_row(one) for one in kept]),
    )
    return "\n\n".join((*heads, *(line for part in parts for line in _section(*part)))) + "\n"


def _section(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"## {title}"
    if not rows:
        yield "None."
        return
    lines = [headers, ["---"] * len(headers), *rows]
    yield "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _idle(grades: Sequence[NodeGrade]) -> list[NodeGrade]:
    """What is idle, what could go first, the longest idle first among equals."""
    found = [one for one in grades if one.idle_since is not None and (one.cards_usable or not one.cards)]
    return sorted(found, key=lambda one: (not one.releasable, one.idle_since, one.node))


def tier_row(one: TierCapacity) -> tuple[str, ...]:
    """One line of the table of tiers."""
    return (
        one.tier,
        str(one.cards_usable),
        f"{one.cards_promised_milli / MILLI:g}",
        f"{one.cards_promisable_milli / MILLI:g}",
        "kept" if one.headroom_kept else "NOT KEPT",
        "; ".join([one.duty, *one.limits]),
    )


def row(one: CapacityRow) -> tuple[str, ...]:
    """One line of the table by tier and grade."""
    return (
        one.tier,
        one.grade,
        str(one.nodes),
        str(one.cards),
        str(one.cards_usable),
        f"{one.cards_promised_milli / MILLI:g}",
        f"{one.cards_used_milli / MILLI:g}",
        f"{one.idle_nodes}, {one.idle_cards}",
        f"{one.releasable_nodes}, {one.releasable_cards}",
        ", ".join(money(cost.micro, cost.currency) for cost in one.idle_cost),
    )


def idle_row(one: NodeGrade) -> tuple[str, ...]:
    """One line of the table of what is idle."""
    cost = one.cost
    return (
        one.node,
        one.tier,
        one.grade,
        one.node_class,
        str(one.cards),
        "" if one.idle_since is None else words.moment(one.idle_since),
        "not told" if cost is None else money(cost.power_micro + cost.depreciation_micro, cost.currency),
        "" if one.utilisation_pct is None else f"{one.utilisation_pct} %",
        "possible" if one.releasable else f"no: {one.kept_because}",
    )


def _kept_row(one: NodeGrade) -> tuple[str, ...]:
    return (one.node, one.tier, one.grade, one.node_class, str(one.cards), one.kept_because)


def _remote_row(one: RemoteLimit) -> tuple[str, ...]:
    figures = (one.link_mbps, one.power_w, one.heat_w, one.cards)
    return (one.node, *("not known" if value is None else str(value) for value in figures), one.basis)
