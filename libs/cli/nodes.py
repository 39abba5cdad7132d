"""`farside nodes`: the fleet as inventory sees it, its grades, and the fleet as declared."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from contracts import registry
from contracts.fleet import (
    MAX_DECLARED,
    Declared,
    DeclaredLink,
    DeclaredNode,
    DeclaredQuery,
    DeclareReply,
    DeclareRequest,
    GradesQuery,
    NodeGrade,
)
from contracts.nodes import CardSource, Link, LinkCharge, LinkKind, NodeFacts, NodeState
from contracts.requests import NodesQuery
from libs.cli import fleetfile, options, output, words
from libs.cli.manual import ManualGroup
from libs.cli.session import Session, connected, every, run

MILLI = 1000
NO_NODES = "no node has announced itself yet: start an agent on each"
_WEIGHT = re.compile(r" \(weight [0-9.]+\)")
HEADERS = ("NODE", "TIER", "ZONE", "STATE", "SINCE", "CARDS", "WORK", "NOTE")
DECLARED_HEADERS = ("NODE", "TIER", "ZONE", "SINCE", "CARDS", "MEMORY", "ANNOUNCED", "DIFFERENCES")
GRADE_HEADERS = ("NODE", "TIER", "GRADE", "CLASS", "CARDS", "PROMISED", "BUSY", "RELEASE", "REASONS")
FORMATS = {"csv": fleetfile.as_csv, "json": fleetfile.as_json}


async def all_nodes(session: Session) -> list[NodeState]:
    """Every node, in order of name."""
    return await every(
        lambda cursor: session.ask(registry.QUERY_NODES, NodesQuery(cursor=cursor)), lambda page: page.nodes
    )


async def all_declared(session: Session) -> list[Declared]:
    """Every declared node, in order of name."""
    return await every(
        lambda cursor: session.ask(registry.QUERY_DECLARED, DeclaredQuery(cursor=cursor)), lambda page: page.nodes
    )


async def all_grades(session: Session) -> list[NodeGrade]:
    """The grade of every node, in order of name."""
    return await every(
        lambda cursor: session.ask(registry.QUERY_GRADES, GradesQuery(cursor=cursor)), lambda page: page.grades
    )


@click.group(cls=ManualGroup, invoke_without_command=True)
@click.option("--grade", is_flag=True, help="Show grade, class and what could be given away, with the reasons.")
@click.option("--declared", is_flag=True, help="Show the declared nodes instead, and how what is announced differs.")
@options.common
@click.pass_context
def nodes(ctx: click.Context, stack: Path | None, *, grade: bool, declared: bool, as_json: bool) -> None:
    """List the nodes of the fleet with tier, health and cards.

    A node takes work while it is ready. Before that it is announced (its checks are awaited) and checked. It may be
    suspect (silent for a while), lost (silent past its lease: its work goes elsewhere), quarantined (faulty), draining
    or retired (by order). SINCE is how long it has been so. Cards marked "declared" come from the node's own
    configuration, the others from its driver. PROMISED are cards that the scheduler has placed work on; REASONS are the
    factors of a grade, of which `farside node NAME` has the weights.

    \b
    Examples:
      farside nodes
      farside nodes --grade
      farside nodes import fleet.csv --reason "spring audit"
    """
    if ctx.invoked_subcommand is None:
        if grade and declared:
            msg = "--grade is of nodes that are announced, --declared of what is written down: give one of them"
            raise click.UsageError(msg)
        listed = _grades if grade else _declared if declared else _nodes
        run(listed(stack, as_json=as_json))
    elif grade or declared or stack is not None or as_json:
        msg = f"options before {ctx.invoked_subcommand} belong to the list: put them after it"
        raise click.UsageError(msg)


async def _nodes(stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await all_nodes(session)
        absent = [one for one in await all_declared(session) if not one.announced]
    if as_json:
        output.as_json({"nodes": found, "declared": absent})
        return
    now = datetime.now(UTC)
    output.table(HEADERS, [row(node, now) for node in found], empty=NO_NODES)
    if absent:
        output.note(f"{words.count(len(absent), 'declared node')} without an agent: `farside nodes --declared`")


def row(node: NodeState, now: datetime) -> tuple[str, ...]:
    """One line of the table."""
    facts = node.facts
    bad = f" (not usable: {', '.join(map(str, node.bad_cards))})" if node.bad_cards else ""
    note = f"{node.reason}{' (requeue held)' if node.requeue_held else ''}"
    return (
        node.node,
        facts.tier,
        facts.zone,
        f"{node.state}{' (cordoned)' if node.cordoned and node.state == 'ready' else ''}",
        words.age(node.since, now),
        f"{cards(node)}{bad}",
        str(len(node.attempts)) if node.attempts else "",
        note,
    )


async def _declared(stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await all_declared(session)
    if as_json:
        output.as_json({"declared": found})
        return
    now = datetime.now(UTC)
    output.table(
        DECLARED_HEADERS, [declared_row(one, now) for one in found], empty="no node is declared: `farside nodes import`"
    )


def declared_row(one: Declared, now: datetime) -> tuple[str, ...]:
    """One line of the table of declarations."""
    node = one.node
    return (
        node.node,
        node.tier,
        node.zone or "",
        words.age(one.declared_at, now),
        f"{node.cards} x {node.card_model or 'card'}" if node.cards else "",
        words.size(node.memory_bytes),
        "yes" if one.announced else "no",
        "; ".join(one.differences),
    )


def cards(node: NodeState) -> str:
    """`2 x H100 80.0 GiB (declared)`; what the driver says has no mark."""
    kinds = Counter((card.model, card.memory_bytes, card.source) for card in node.facts.cards)
    return ", ".join(
        f"{count} x {model} {words.size(memory)}{'' if source == CardSource.NVML else f' ({source})'}"
        for (model, memory, source), count in kinds.items()
    )


# ---- grades ----------------------------------------------------------------------------------------------------------


async def _grades(stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await all_grades(session)
    if as_json:
        output.as_json({"grades": found})
        return
    output.table(GRADE_HEADERS, [grade_row(one) for one in found], empty=NO_NODES)


def grade_row(one: NodeGrade) -> tuple[str, ...]:
    """One line of the table of grades."""
    return (
        one.node,
        one.tier,
        f"{one.grade} {one.score / MILLI:.3f}",
        f"{one.node_class}{', scarce' if one.scarce and one.node_class != 'scarce' else ''}",
        f"{one.cards_usable} of {one.cards}",
        f"{one.cards_promised_milli / MILLI:g}",
        "" if one.utilisation_pct is None else f"{one.utilisation_pct} %",
        "possible" if one.releasable else f"no: {one.kept_because}",
        _WEIGHT.sub("", "; ".join(one.reasons)),
    )


# ---- files -----------------------------------------------------------------------------------------------------------


@nodes.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--reason", required=True, help="Why the fleet is declared so; kept in the history of each node.")
@click.option("--without-cards", is_flag=True, help="Take nodes that have no cards as well.")
@click.option("--replace", is_flag=True, help="Withdraw the declarations of nodes that are not in FILE.")
@options.common
def import_(  # one option each
    file: Path, reason: str, stack: Path | None, *, without_cards: bool, replace: bool, as_json: bool
) -> None:
    """Declare the nodes of FILE: what should be there, whether or not an agent has announced it.

    A declared node takes no work until its agent announces it; then what both say is compared (`farside node NAME`),
    and what the agent does not know (rack, links, costs, limits) is filled in. FILE is CSV with a header, in the form
    of `farside nodes export` or of the openb node list (sn,cpu_milli,memory_mib,gpu,model), or JSON. One broken row and
    nothing is declared; each mistake is told.

    Examples:
      farside nodes import fleet.csv --reason "spring audit"

    """
    found = fleetfile.read(file, without_cards=without_cards)
    told = run(_import(found, reason, stack, replace=replace))
    if as_json:
        output.as_json(told)
    else:
        done = f"{told.added} added, {told.changed} changed, {told.unchanged} as before, {told.withdrawn} withdrawn"
        output.note(f"{words.count(len(found), 'node')} read: {done}")


async def _import(found: Sequence[DeclaredNode], reason: str, stack: Path | None, *, replace: bool) -> DeclareReply:
    sums: Counter[str] = Counter()
    async with connected(stack) as session:
        named = {node.node for node in found}
        known = [one.node.node for one in await all_declared(session)] if replace else []
        gone = [name for name in known if name not in named]
        requests = [
            DeclareRequest(nodes=list(found[at : at + MAX_DECLARED]), reason=reason)
            for at in range(0, len(found), MAX_DECLARED)
        ] + [
            DeclareRequest(withdrawn=gone[at : at + MAX_DECLARED], reason=reason)
            for at in range(0, len(gone), MAX_DECLARED)
        ]
        for request in requests:
            sums.update((await session.ask(registry.CALL_DECLARE, request)).model_dump())
    return DeclareReply.model_validate({name: sums[name] for name in DeclareReply.model_fields})


@nodes.command("export")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="csv", help="What to write.")
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), help="A file [default: standard output].")
@options.common
def export(form: str, to: Path | None, stack: Path | None, *, as_json: bool) -> None:
    """Write the ledger as CSV or JSON: every node announced or declared, in the form that `farside nodes import` takes.

    Of a node that is announced its agent's words are written, not what was declared: imported again, they become the
    declaration. `farside nodes --declared` shows where both differ. What is seen of a node (state, grade, class, cards
    promised, utilisation, idle since) follows its facts; an import leaves these out.

    Examples:
      farside nodes export --to fleet.csv
      farside nodes export --format json

    """
    text = FORMATS["json" if as_json else form](run(_export(stack)))
    if to is None:
        click.echo(text, nl=False)
    else:
        output.write(to, text)


async def _export(stack: Path | None) -> list[tuple[DeclaredNode, Mapping[str, object]]]:
    async with connected(stack) as session:
        announced = await all_nodes(session)
        grades = {one.node: one for one in await all_grades(session)}
        absent = [one for one in await all_declared(session) if not one.announced]
    rows: list[tuple[DeclaredNode, Mapping[str, object]]] = [
        (written(node.facts), _seen(node, grades.get(node.node))) for node in announced
    ]
    rows += [(one.node, {"state": "declared"}) for one in absent]
    return sorted(rows, key=lambda item: item[0].node)


def _seen(node: NodeState, grade: NodeGrade | None) -> dict[str, object]:
    seen: dict[str, object] = {"state": str(node.state), "grade": node.grade, "node_class": node.node_class}
    if grade is not None:
        seen["cards_promised_milli"] = grade.cards_promised_milli
        seen["utilisation_pct"] = grade.utilisation_pct
        seen["idle_since"] = None if grade.idle_since is None else grade.idle_since.isoformat()
    return {name: value for name, value in seen.items() if value is not None}


def written(facts: NodeFacts) -> DeclaredNode:
    """What is announced, in the words of a declaration; of cards of several models, the most frequent."""
    models = Counter(card.model for card in facts.cards).most_common(1)
    return DeclaredNode(
        node=facts.node,
        tier=facts.tier,
        zone=facts.zone,
        rack=facts.rack,
        cpu_milli=facts.cpu_milli,
        memory_bytes=facts.memory_bytes,
        cards=len(facts.cards),
        card_model=models[0][0] if models else None,
        card_memory_bytes=min((card.memory_bytes for card in facts.cards), default=None),
        generation=facts.generation,
        card_link=_link(facts.card_link),
        node_link=_link(facts.node_link),
        link_mbps=facts.link_mbps,
        cost=facts.cost,
        power_limit_w=facts.power_limit_w,
        heat_limit_w=facts.heat_limit_w,
    )


def _link(link: Link | None) -> DeclaredLink | None:
    """A link whose kind has a word; one of a newer agent that has none here cannot be written down."""
    if link is None or not isinstance(link.kind, LinkKind):
        return None
    charge = link.charge if isinstance(link.charge, LinkCharge) else None
    return DeclaredLink.model_validate(link.model_dump() | {"charge": charge})
