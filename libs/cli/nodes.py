"""`farside nodes`: the fleet as inventory sees it."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import click

from contracts import registry
from contracts.nodes import NodeState
from contracts.requests import NodesQuery
from libs.cli import options, output, words
from libs.cli.manual import Manual
from libs.cli.session import Session, connected, run

MAX_PAGES = 1000


async def all_nodes(session: Session) -> list[NodeState]:
    """Every node, in order of name."""
    found: list[NodeState] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await session.ask(registry.QUERY_NODES, NodesQuery(cursor=cursor))
        found += page.nodes
        cursor = page.cursor
        if cursor is None:
            break
    return found


@click.command(cls=Manual)
@options.common
def nodes(stack: Path | None, *, as_json: bool) -> None:
    """List the nodes of the fleet with tier, health and cards.

    A node is ready, suspect (silent for a while: no new work) or lost (silent past its lease: its work goes elsewhere).
    SINCE is how long it has been so. Cards marked "declared" come from the node's own configuration, "nvml" from its
    driver.

    Examples:
      farside nodes
      farside nodes --json | python -m json.tool

    """
    run(_nodes(stack, as_json=as_json))


async def _nodes(stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await all_nodes(session)
    if as_json:
        output.as_json({"nodes": found})
        return
    now = datetime.now(UTC)
    headers = ("NODE", "TIER", "ZONE", "STATE", "SINCE", "CARDS", "MEMORY", "WORK", "NOTE")
    output.table(headers, [row(node, now) for node in found], empty="no node has announced itself yet")


def row(node: NodeState, now: datetime) -> tuple[str, ...]:
    """One line of the table."""
    facts = node.facts
    note = f"{node.reason}{' (requeue held)' if node.requeue_held else ''}"
    return (
        node.node,
        facts.tier,
        facts.zone,
        node.state,
        words.age(node.since, now),
        cards(node),
        words.size(facts.memory_bytes),
        str(len(node.attempts)) if node.attempts else "",
        note,
    )


def cards(node: NodeState) -> str:
    """`2 x H100 80.0 GiB (declared)`."""
    kinds = Counter((card.model, card.memory_bytes, card.source) for card in node.facts.cards)
    return ", ".join(
        f"{count} x {model} {words.size(memory)} ({source})" for (model, memory, source), count in kinds.items()
    )
