"""`farside bench`: what the scheduler's decisions are worth on public traces."""

import os
from pathlib import Path

import click

from deploy.replay import bench as replays
from deploy.replay.cluster import Costs
from deploy.replay.philly import SECOND_US
from libs.cli import output
from libs.cli import picture as picture_file
from libs.cli.manual import ManualGroup


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
@click.option("--cards", type=click.IntRange(min=1), required=True, help="How many V100, on nodes of eight.")
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
    and beside it over their mean slowdowns.

    Example:
      farside bench philly --traces ../shared/data/philly --cards 128 --plot philly.png

    """
    costs = Costs(checkpoint_s * SECOND_US, grace_s * SECOND_US, restart_s * SECOND_US)
    chosen = tuple(dict.fromkeys(policies)) or replays.POLICIES
    report, done = replays.run(traces, cards, costs, chosen, workers)
    if plot is not None:
        from deploy.replay.picture import draw  # noqa: PLC0415 - matplotlib takes long to load and is seldom wanted

        draw(done, cards, plot)
    if as_json:
        output.as_json(report)
        return
    output.table(replays.HEADERS, replays.rows(done), empty="no policy was asked for")
    if report["refused_as_too_large"]:
        output.note(f"{report['refused_as_too_large']} jobs are larger than the cluster and were left out")
