"""`farside breaker`: what inventory holds back while many nodes are silent, or found faulty, at once."""

from pathlib import Path

import click

from contracts import registry
from contracts.fleet import BreakersQuery, BreakersReply, FaultReset, FaultResetReply
from contracts.requests import BreakerRelease, BreakerReleased
from libs.cli import options, output, words
from libs.cli.manual import Manual, ManualGroup
from libs.cli.session import connected, run

MAX_REASON = 1024


@click.group(cls=ManualGroup)
def breaker() -> None:
    """Show inventory's two breakers; release what they hold.

    silence: many nodes silent at once are more likely a cut network than dead machines. The breaker then opens: the
    nodes are lost, their jobs are shown as unreachable with the reason breaker_open, and nothing is requeued. It closes
    by itself when enough nodes are back; `release` closes it by hand.

    faults: many nodes found faulty within a short time are more likely one wrong measure. New faults are then kept
    without effect until `reset`.
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


@breaker.command(cls=Manual)
@options.common
def status(stack: Path | None, *, as_json: bool) -> None:
    """Show which breaker is open, since when, why, and how many nodes it holds something of.

    Example:
      farside breaker status

    """
    found = run(_status(stack))
    if as_json:
        output.as_json(found)
        return
    rows = [
        (
            one.kind,
            "open" if one.is_open else "closed",
            "" if one.opened_at is None else words.moment(one.opened_at),
            str(one.nodes),
            one.reason,
        )
        for one in found.breakers
    ]
    output.table(("BREAKER", "STATE", "SINCE", "NODES HELD", "REASON"), rows, empty="")


async def _status(stack: Path | None) -> BreakersReply:
    async with connected(stack) as session:
        return await session.ask(registry.QUERY_BREAKERS, BreakersQuery())


@breaker.command(cls=Manual)
@click.argument("reason")
@click.option("--enforce", is_flag=True, help="Let the faults that are held take effect instead of setting them aside.")
@options.common
def reset(reason: str, stack: Path | None, *, enforce: bool, as_json: bool) -> None:
    """Close the breaker of faults; REASON is kept in the history of each node it held something of.

    What it held is set aside, and comes back only when it is reported anew. With --enforce it takes effect: the cards
    and nodes leave the pool.

    Examples:
      farside breaker reset "a wrong driver was rolled out, and rolled back"
      farside breaker reset "the room was too hot, the cards are damaged" --enforce

    """
    if not 0 < len(reason) <= MAX_REASON:
        msg = f"REASON has {len(reason)} characters: say in 1 to {MAX_REASON} why the breaker is reset"
        raise click.BadParameter(msg)
    done = run(_reset(reason, stack, enforce=enforce))
    if as_json:
        output.as_json(done)
    elif not done.was_open:
        output.note("the breaker of faults is closed: it holds nothing")
    else:
        what = "take effect" if enforce else "are set aside"
        output.note(f"the breaker of faults is closed; the faults of {words.count(done.nodes, 'node')} {what}")


async def _reset(reason: str, stack: Path | None, *, enforce: bool) -> FaultResetReply:
    async with connected(stack) as session:
        return await session.ask(registry.CALL_RESET, FaultReset(reason=reason, enforce=enforce))
