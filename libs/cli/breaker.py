"""`farside breaker`: what inventory holds back while many nodes are silent at once."""

from pathlib import Path

import click

from contracts import registry
from contracts.requests import BreakerRelease, BreakerReleased
from libs.cli import options, output
from libs.cli.manual import Manual, ManualGroup
from libs.cli.session import connected, run

MAX_REASON = 1024


@click.group(cls=ManualGroup)
def breaker() -> None:
    """Release the jobs of nodes that fell silent together.

    Many nodes silent at once are more likely a cut network than dead machines. Inventory's breaker then opens: the
    nodes are lost, their jobs are shown as unreachable with the reason breaker_open, and nothing is requeued. It closes
    by itself when enough nodes are back.
    """


@breaker.command(cls=Manual)
@click.argument("reason")
@options.common
def release(reason: str, stack: Path | None, *, as_json: bool) -> None:
    """Requeue the jobs that the breaker holds; REASON is kept in the history of each node.

    Do it once you know that the nodes are dead or have ended what ran there.

    Examples:
      farside breaker release "rack 7 has no power"

    """
    if not 0 < len(reason) <= MAX_REASON:
        msg = f"REASON has {len(reason)} characters: say in 1 to {MAX_REASON} why the jobs may be requeued"
        raise click.BadParameter(msg)
    released = run(_release(reason, stack))
    if as_json:
        output.as_json(released)
    elif not released.was_open:
        output.note("the breaker is closed: it holds nothing")
    else:
        output.note(f"the breaker is closed; the jobs of {released.released} lost nodes are requeued")


async def _release(reason: str, stack: Path | None) -> BreakerReleased:
    async with connected(stack) as session:
        return await session.ask(registry.CALL_RELEASE, BreakerRelease(reason=reason))
