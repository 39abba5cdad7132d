"""`farside plan`: how to cut a model over the cards of a cluster, by predicted time, and why the others lost."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from contracts.base import Model
from contracts.jobs import Recompute
from libs.cli import joblayout, options, output, words
from libs.cli.errors import CliError, FileError
from libs.cli.manual import Manual
from libs.cli.yamlfile import load, read
from libs.kit.yamlfile import Form
from libs.planner.layout import Layout, check
from libs.planner.search import GIB, Candidate, Cause, Loser, Plans, cost, fewer_nodes, judged, plan
from libs.planner.shapes import Cluster, Precision, Size, Transformer

TOP = 3
SHOWN_LOST = 12
MODEL_FILE = Form(Transformer, "model file", "name, layers, hidden, heads, vocabulary, sequence and global_batch")
CLUSTER_FILE = Form(Cluster, "cluster file", "name, nodes, cards_per_node, card, card_link and node_link")


class Stated(Model):
    """A layout as `--layout` states it; the cards that tp and pp leave are data parallel."""

    tp: Size
    pp: Size = 1
    dp: Size | None = None
    microbatch: Size = 1
    virtual: Size = 1
    recompute: Recompute = Recompute.NONE
    precision: Precision = Precision.BF16
    sequence_parallel: bool = True
    sharded: bool = True

    def layout(self, cards: int) -> Layout:
        """The layout on so many cards."""
        sizes = self.model_dump()
        sizes["dp"] = self.dp or max(1, cards // (self.tp * self.pp))
        return Layout(**sizes)


LAYOUT = Form(Stated, "layout", "tp")

CHOICE = ("RANK", "TP", "PP", "DP", "MICROBATCH", "VIRTUAL", "RECOMPUTE", "PRECISION")
SPEED = ("ITERATION S", "TOKENS/S", "TOKENS/S/CARD", "MFU %")
MEMORY = ("RANK", "WEIGHTS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS", "TOTAL", "USABLE")
TIMES = ("RANK", "COMPUTE", "RECOMPUTE", "TP", "PP", "BUBBLE", "DP", "OPTIMIZER", "TOTAL", "HIDDEN")


@click.command("plan", cls=Manual)
@click.option("--model", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Model file (YAML).")
@click.option("--cluster", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Cluster file (YAML).")
@click.option("--top", type=click.IntRange(1, 20), default=TOP, show_default=True, help="Propose at most so many.")
@click.option(
    "--write",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="JOB",
    help="Put the sizes of the first into the field `parallel` of this job file.",
)
@click.option("--layout", metavar="SIZES", help='Cost this layout instead: "tp: 8, pp: 2, microbatch: 4".')
@options.json_flag
def plan_(model: Path, cluster: Path, top: int, write: Path | None, layout: str | None, *, as_json: bool) -> None:
    """Propose tensor, pipeline and data parallel sizes for a model on all cards of a cluster.

    Candidates keep tensor parallelism inside a node and fit the memory of the most loaded card; the quickest by
    predicted time is first, with its memory in GiB and its seconds by what they are spent on. HIDDEN is communication
    under compute. Recompute is proposed only where the cluster file confirms compute_headroom_pct. docs/planner.md has
    the fields of both files, the formulas, and how far predictions were from published timings. It needs no stack.

    Examples:
      farside plan --model examples/planner/gpt-70b.yaml --cluster examples/planner/h100-96.yaml
      farside plan --model model.yaml --cluster cluster.yaml --write job.yaml
      farside plan --model model.yaml --cluster cluster.yaml --layout "tp: 8, pp: 2, virtual: 6, recompute: full" --json

    Exit status: 0 a plan; 1 nothing fits; 2 a mistake in a file.

    """
    shape, fleet = load(model, MODEL_FILE), load(cluster, CLUSTER_FILE)
    try:
        plans = plan(shape, fleet, top) if layout is None else _stated(shape, fleet, layout)
    except ValueError as error:
        msg = f"{model}: {error}" if layout is None else f"--layout: {error}"
        raise FileError(msg) from None
    if as_json:
        output.as_json(report(shape, fleet, plans))
    else:
        _show(shape, fleet, plans)
    if not plans.best:
        raise CliError(nothing_fits(shape, fleet, plans, cluster))
    if write is not None:
        joblayout.write(write, plans.best[0].layout)


def _stated(model: Transformer, cluster: Cluster, text: str) -> Plans:
    """A plan of the one layout that was stated."""
    layout = read("--layout", f"{{{text.strip().strip('{}')}}}", LAYOUT).layout(cluster.cards)
    check(model, cluster, layout)
    return judged(cost(model, cluster, layout), cluster)


def report(model: Transformer, cluster: Cluster, plans: Plans) -> dict[str, Any]:
    """What `--json` prints: GiB, seconds, tokens a second."""
    return {
        "model": model.name,
        "parameters": model.parameters,
        "cluster": cluster.name,
        "cards": cluster.cards,
        "usable_memory_gib": cluster.usable_bytes / GIB,
        "candidates": [{"rank": rank, **_figures(one)} for rank, one in enumerate(plans.best, 1)],
        "lost": [_loser(one) for one in plans.lost],
        "zero3": None if plans.zero3 is None else _figures(plans.zero3),
    }


def _figures(one: Candidate) -> dict[str, Any]:
    layout, times = one.layout, asdict(one.times)
    hidden = times.pop("hidden")
    memory = {name: size / GIB for name, size in asdict(one.memory).items()}
    return {
        **asdict(layout),
        "iteration_s": one.times.total,
        "tokens_per_s": one.tokens_per_s,
        "tokens_per_s_per_card": one.tokens_per_s / layout.cards,
        "mfu_pct": 100 * one.mfu,
        "memory_gib": {**memory, "total": one.memory.total / GIB},
        "time_s": times,
        "hidden_s": hidden,
    }


def _loser(one: Loser) -> dict[str, Any]:
    told = {"tp": one.tp, "pp": one.pp, "dp": one.dp, "cause": one.cause, "why": one.why}
    return told if one.candidate is None else {**told, **_figures(one.candidate)}


def _show(model: Transformer, cluster: Cluster, plans: Plans) -> None:
    output.note(
        f"{model.name}: {model.parameters / 1e9:.1f} billion parameters, {model.global_batch} sequences of "
        f"{model.sequence} tokens an iteration; {cluster.name}: {cluster.cards} cards"
    )
    if plans.best:
        ranked = [(str(rank), one) for rank, one in enumerate(plans.best, 1)]
        output.table((*CHOICE, *SPEED), [(rank, *_choice(one), *_speed(one)) for rank, one in ranked], empty="")
        output.note("\nGiB on the most loaded card")
        output.table(MEMORY, [(rank, *_memory(one, cluster)) for rank, one in ranked], empty="")
        output.note("\nseconds of an iteration")
        output.table(TIMES, [(rank, *_times(one)) for rank, one in ranked], empty="")
    if plans.zero3 is not None:
        output.note(f"\nZeRO-3 over all cards in their place: {beside(plans.zero3, plans.best)}")
    if plans.lost:
        output.note("\nnot proposed")
        rows = [(str(one.tp), str(one.pp), str(one.dp), one.why) for one in plans.lost[:SHOWN_LOST]]
        output.table(("TP", "PP", "DP", "WHY"), rows, empty="")
    if len(plans.lost) > SHOWN_LOST:
        output.note(f"and {words.count(len(plans.lost) - SHOWN_LOST, 'other')}; --json has all")


def _choice(one: Candidate) -> tuple[str, ...]:
    layout = one.layout
    sizes = (layout.tp, layout.pp, layout.dp, layout.microbatch, layout.virtual)
    return (*(str(size) for size in sizes), layout.recompute, layout.precision)


def _speed(one: Candidate) -> tuple[str, ...]:
    each = one.tokens_per_s / one.layout.cards
    return f"{one.times.total:.3f}", f"{one.tokens_per_s:,.0f}", f"{each:,.0f}", f"{100 * one.mfu:.1f}"


def _memory(one: Candidate, cluster: Cluster) -> tuple[str, ...]:
    held = one.memory
    sizes = (held.weights, held.gradients, held.optimizer, held.activations, held.total, cluster.usable_bytes)
    return tuple(f"{size / GIB:.1f}" for size in sizes)


def _times(one: Candidate) -> tuple[str, ...]:
    spent = one.times
    parts = (spent.compute, spent.recompute, spent.tp, spent.pp, spent.bubble, spent.dp, spent.optimizer)
    return tuple(f"{seconds:.3f}" for seconds in (*parts, spent.total, spent.hidden))


def beside(zero3: Candidate, best: Sequence[Candidate]) -> str:
    """What sharded data parallel training would take, and how that compares with the first of the plan, in words."""
    seconds = zero3.times.total
    if not best:
        return f"{seconds:.3f} s"
    more = 100 * (seconds / best[0].times.total - 1)
    return f"{seconds:.3f} s, {abs(more):.1f} % {'slower' if more >= 0 else 'quicker'} than the first"


def nothing_fits(model: Transformer, cluster: Cluster, plans: Plans, file: Path) -> str:
    """Why there is no plan, and the remedy that is nearest."""
    causes: Mapping[Cause, Loser] = {one.cause: one for one in reversed(plans.lost)}
    if not causes:
        fewer = fewer_nodes(model, cluster)
        remedy = "change one of them, or nodes" if fewer is None else f"{fewer} nodes could all be used"
        return (
            f"no sizes use all {cluster.cards} cards of {file}: tp must divide heads ({model.heads}), pp layers "
            f"({model.layers}) and dp global_batch ({model.global_batch}); {remedy}"
        )
    if Cause.HEADROOM in causes:
        one = min((one for one in plans.lost if one.cause is Cause.HEADROOM), key=_seconds)
        return (
            f"nothing fits {file} without recompute; tp {one.tp}, pp {one.pp}, dp {one.dp} {one.why}. Measure what "
            f"share of the compute runs leave idle and write it as compute_headroom_pct, or add nodes"
        )
    if Cause.MEMORY in causes:
        one = min((one for one in plans.lost if one.cause is Cause.MEMORY), key=_bytes)
        return f"nothing fits {file}: the nearest, tp {one.tp}, pp {one.pp}, dp {one.dp}, {one.why}; add nodes"
    return f"nothing fits {file}: {plans.lost[0].why}; add nodes, or cards to a node"


def _seconds(one: Loser) -> float:
    assert one.candidate is not None, "its figures are why it lost"
    return one.candidate.times.total


def _bytes(one: Loser) -> float:
    assert one.candidate is not None, "its figures are why it lost"
    return one.candidate.memory.total
