"""`farside bench`: what the scheduler's decisions are worth on public traces."""

import os
from pathlib import Path

import click

from deploy.replay import bench as replays
from deploy.replay import openb_bench
from deploy.replay.cluster import Costs
from deploy.replay.philly import SECOND_US
from libs.cli import output, words
from libs.cli import picture as picture_file
from libs.cli.manual import ManualGroup

MAX_SEEDS = 1000
MAX_CARDS = 1_000_000


def _seeds(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """`42-51` or `1,2,5-7` as numbers, in order and each once."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > len(str(MAX_SEEDS)) * 4:
            msg = f"{text!r}: {part.strip()!r} is no number and no range: write 42-51, or 1,2,5-7"
            raise click.BadParameter(msg)
        span = range(int(first), int(last or first) + 1)
        if not span or len(seeds) + len(span) > MAX_SEEDS:
            msg = f"{text!r}: {part.strip()!r} must go upwards, and all together be at most {MAX_SEEDS} seeds"
            raise click.BadParameter(msg)
        seeds.extend(span)
    return tuple(dict.fromkeys(seeds))


def progress(line: str) -> None:
    """Say how far a replay has come; also from a process of its own."""
    click.echo(line, err=True)


@click.group(cls=ManualGroup)
def bench() -> None:
    """Replay public traces through the scheduler's own decisions and print what they come to."""


@bench.command(short_help="Replay Philly's traces beside FIFO, strict priority and shortest-first.")
@click.option(
    "--traces",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with one .trace file a virtual cluster, and simulation_throughputs.json.",
)
@click.option("--cards", type=click.IntRange(1, MAX_CARDS), required=True, help="How many V100, on nodes of eight.")
@click.option(
    "--policy",
    "policies",
    type=click.Choice(replays.POLICIES),
    multiple=True,
    help="This policy only; may be repeated.",
)
@click.option(
    "--checkpoint-s", default=1800, show_default=True, type=click.IntRange(min=1), help="Between checkpoints."
)
@click.option("--grace-s", default=60, show_default=True, type=click.IntRange(min=0), help="Until a victim has left.")
@click.option("--restart-s", default=60, show_default=True, type=click.IntRange(min=0), help="Until it computes again.")
@click.option("--workers", default=os.cpu_count() or 1, type=click.IntRange(min=1), help="Policies at a time.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), callback=picture_file.checked, help="Draw it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def philly(
    traces: Path,
    cards: int,
    policies: tuple[str, ...],
    *,
    checkpoint_s: int,
    grace_s: int,
    restart_s: int,
    workers: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Replay 125 days of jobs in virtual time; each virtual cluster is a tenant with an equal guarantee.

    Farside's own policy knows neither durations nor longest runs. FIFO is strict: a job that does not fit blocks those
    behind it. Strict priority takes tenants as classes, the first by name the highest, and preempts lower ones.
    Shortest-first is told how long each job runs. All four are orders of the same `decide` with the same placement.

    Waits are all time without cards, completion is from arrival to end. Used is the computing that was kept, of all
    cards over the makespan. Jain's index is over what tenants received of their max-min share while they wanted any,
    and beside it over their mean slowdowns. Progress goes to standard error.

    Example:
      farside bench philly --traces ../shared/data/philly --cards 128 --plot philly.png

    """
    costs = Costs(checkpoint_s * SECOND_US, grace_s * SECOND_US, restart_s * SECOND_US)
    chosen = tuple(dict.fromkeys(policies)) or replays.POLICIES
    report, done = replays.run(traces, cards, costs, chosen, workers, progress)
    if plot is not None:
        from deploy.replay.picture import draw  # noqa: PLC0415 - matplotlib takes long to load and is seldom wanted

        draw(done, cards, plot)
    if as_json:
        output.as_json(report)
        return
    output.table(replays.HEADERS, replays.rows(done), empty="no policy was asked for")
    if report["refused_as_too_large"]:
        output.note(f"{words.count(report['refused_as_too_large'], 'job')} larger than the cluster left out")


@bench.command(short_help="Fill a fleet with an openb trace and see what is left unallocated.")
@click.option("--nodes", type=click.Path(path_type=Path, dir_okay=False), required=True, help="CSV file of nodes.")
@click.option("--pods", type=click.Path(path_type=Path, dir_okay=False), required=True, help="CSV file of tasks.")
@click.option("--seeds", default="42-51", show_default=True, callback=_seeds, help="Such as 42-51, or 1,2,5-7.")
@click.option(
    "--policy",
    "policies",
    type=click.Choice(openb_bench.POLICIES),
    multiple=True,
    help="This policy only; may be repeated.",
)
@click.option("--workers", default=os.cpu_count() or 1, type=click.IntRange(min=1), help="Runs at a time.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), callback=picture_file.checked, help="Draw it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def openb(
    nodes: Path,
    pods: Path,
    seeds: tuple[int, ...],
    policies: tuple[str, ...],
    *,
    workers: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Let the tasks of a trace arrive at empty nodes in an order of chance, more of them than the cards can hold.

    Nothing leaves, and what does not fit is not tried again. What stays unallocated of the cards is told after so many
    per cent of their capacity have arrived, as median, least and greatest over the seeds. Each decision is the
    scheduler's own `decide`. Farside's policy learns the mix from what has arrived; the others are told the whole list.
    Progress goes to standard error. Rates are of one process: for these give --workers 1.

    Example:
      farside bench openb --nodes nodes.csv --pods pods.csv --seeds 42-51 --plot openb.png

    """
    chosen = tuple(dict.fromkeys(policies)) or openb_bench.POLICIES
    done = openb_bench.runs((nodes, pods), seeds, chosen, workers, progress)
    if plot is not None:
        from deploy.replay.openb_picture import draw  # noqa: PLC0415 - as above

        draw(done, pods.stem, plot)
    if as_json:
        output.as_json(openb_bench.report(done))
        return
    output.table(openb_bench.HEADERS, openb_bench.lines(done), empty="no policy was asked for")
