"""Which layouts are worth a try, which of them fit, and in what order they come; why each of the others lost."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from contracts.jobs import Recompute
from libs.planner.layout import Layout
from libs.planner.memory import Memory, memory
from libs.planner.shapes import Attention, Cluster, Precision, Transformer
from libs.planner.timing import CONSTANTS, Constants, Times, iteration, iteration_flops
from libs.planner.zero3 import zero3_iteration, zero3_memory

MICROBATCHES = (1, 2, 4, 8)
MAX_VIRTUAL = 8
GIB = 2**30
MAX_PP = 256
MAX_FEWER = 512


class Cause(StrEnum):
    """Why a layout lost."""

    SLOWER = "slower"
    MEMORY = "memory"
    HEADROOM = "compute_headroom"
    ACROSS_NODES = "tp_across_nodes"


@dataclass(frozen=True)
class Candidate:
    """A layout that may be used: bytes on its most loaded card, seconds of an iteration, tokens a second of all cards.

    `mfu` is the share of the cards' peak that the model's own FLOPs reach (what is computed anew is not counted).
    """

    layout: Layout
    memory: Memory
    times: Times
    tokens_per_s: float
    mfu: float


@dataclass(frozen=True)
class Loser:
    """A layout that is not proposed and why; `candidate` where its figures are known."""

    tp: int
    pp: int
    dp: int
    cause: Cause
    why: str
    candidate: Candidate | None = None


@dataclass(frozen=True)
class Plans:
    """Proposed layouts, quickest first, and the rest. `zero3` is what sharded data parallel training would take."""

    best: list[Candidate]
    lost: list[Loser]
    zero3: Candidate | None


def plan(model: Transformer, cluster: Cluster, top: int = 3, constants: Constants = CONSTANTS) -> Plans:
    """Rank the layouts of `model` on all cards of `cluster`, one for each (tp, pp, dp), at most `top` proposed.

    `best` is empty where nothing fits. Raises ValueError where the card has no figure for any precision of the model.
    """
    precisions = _precisions(model, cluster)
    fitting: list[Candidate] = []
    lost: list[Loser] = []
    for tp, pp, dp in sizes(model, cluster):
        if not _inside(tp, cluster):
            why = f"tensor parallel over {tp} cards crosses nodes of {cluster.cards_per_node}"
            lost.append(Loser(tp, pp, dp, Cause.ACROSS_NODES, why))
            continue
        tried = [cost(model, cluster, layout, constants) for layout in variants(model, tp, pp, dp, precisions)]
        found = _choose(tried, cluster)
        fitting += [found] if isinstance(found, Candidate) else []
        lost += [found] if isinstance(found, Loser) else []
    fitting.sort(key=_order)
    slower = [_slower(candidate, fitting[0]) for candidate in fitting[top:]]
    return Plans(fitting[:top], slower + lost, _zero3(model, cluster, precisions, constants))


def _precisions(model: Transformer, cluster: Cluster) -> list[Precision]:
    known = cluster.card.peak_tflops.known
    found = [precision for precision in model.precisions if precision in known]
    if not found:
        msg = (
            f"precisions is [{', '.join(model.precisions)}]: the cards of {cluster.name} have a peak for "
            f"{', '.join(known)} only; allow one of these, or add its figure to card.peak_tflops"
        )
        raise ValueError(msg)
    return found


def sizes(model: Transformer, cluster: Cluster) -> Iterator[tuple[int, int, int]]:
    """Every (tp, pp, dp) that uses all cards.

    tp is a power of two that divides heads (and kv_heads), hidden, the feed-forward and the sequence, up to twice a
    node, so that the first that crosses nodes is named; pp divides the layers, dp the batch.
    """
    for tp in _powers(2 * cluster.cards_per_node):
        if cluster.cards % tp or any(size % tp for size in _divided(model)):
            continue
        for pp in range(1, min(model.layers, MAX_PP) + 1):
            dp, rest = divmod(cluster.cards, tp * pp)
            if rest == 0 and dp and model.layers % pp == 0 and model.global_batch % dp == 0:
                yield tp, pp, dp


def fewer_nodes(model: Transformer, cluster: Cluster) -> int | None:
    """The most nodes, less than the cluster has, that can all be used; None where none of the next ones can."""
    for nodes in range(cluster.nodes - 1, max(0, cluster.nodes - MAX_FEWER), -1):
        fewer = cluster.model_copy(update={"nodes": nodes})
        if any(_inside(tp, fewer) for tp, _, _ in sizes(model, fewer)):
            return nodes
    return None


def _divided(model: Transformer) -> tuple[int, ...]:
    return model.kv_heads or model.heads, model.hidden, model.ffn_width, model.sequence


def _powers(limit: int) -> Iterator[int]:
    power = 1
    while power <= limit:
        yield power
        power *= 2


def _inside(tp: int, cluster: Cluster) -> bool:
    """Whether every tensor parallel group lies inside one node."""
    return cluster.cards_per_node % tp == 0


def variants(model: Transformer, tp: int, pp: int, dp: int, precisions: list[Precision]) -> Iterator[Layout]:
    """Every layout of these sizes: microbatch, interleaving, recompute, precision."""
    modes = [Recompute.NONE, Recompute.FULL]
    if model.attention is Attention.STANDARD:
        modes.insert(1, Recompute.SELECTIVE)
    for microbatch in MICROBATCHES:
        count, rest = divmod(model.global_batch, dp * microbatch)
        if rest:
            continue
        for virtual in range(1, MAX_VIRTUAL + 1) if pp > 1 and count % pp == 0 else (1,):
            if (model.layers // pp) % virtual == 0:
                for mode in modes:
                    for precision in precisions:
                        yield Layout(tp, pp, dp, microbatch, virtual, mode, precision)


def cost(model: Transformer, cluster: Cluster, layout: Layout, constants: Constants = CONSTANTS) -> Candidate:
    """What one layout takes, whether or not it fits. Raises ValueError where the card has no peak for its precision."""
    return _candidate(model, cluster, layout, memory(model, layout), iteration(model, cluster, layout, constants))


def _candidate(model: Transformer, cluster: Cluster, layout: Layout, held: Memory, times: Times) -> Candidate:
    seconds = times.total
    peak = cluster.card.peak_tflops.of(layout.precision)
    assert peak is not None, "chosen among the precisions that have one"
    mfu = iteration_flops(model) / (seconds * peak * layout.cards)
    return Candidate(layout, held, times, model.global_batch * model.sequence / seconds, mfu)


def _order(candidate: Candidate) -> tuple[float, int, int]:
    return candidate.times.total, candidate.layout.pp, candidate.layout.tp


def extra_compute_pct(candidate: Candidate) -> float:
    """How much compute its recompute adds, in per cent of the compute without."""
    return 100 * candidate.times.recompute / candidate.times.compute


def _choose(tried: list[Candidate], cluster: Cluster) -> Candidate | Loser | None:
    """The quickest variant that fits and whose recompute the measured headroom covers, else why there is none."""
    fitting = [candidate for candidate in tried if candidate.memory.total <= cluster.usable_bytes]
    covered = [candidate for candidate in fitting if extra_compute_pct(candidate) <= cluster.compute_headroom_pct]
    if covered:
        return min(covered, key=_order)
    if fitting:
        return _needs_headroom(min(fitting, key=_order), cluster)
    return _too_large(min(tried, key=lambda candidate: candidate.memory.total), cluster) if tried else None


def judged(candidate: Candidate, cluster: Cluster) -> Plans:
    """A plan of one layout only: proposed if it fits; recompute that was asked for needs no headroom."""
    if candidate.memory.total <= cluster.usable_bytes:
        return Plans([candidate], [], None)
    return Plans([], [_too_large(candidate, cluster)], None)


def _lose(candidate: Candidate, cause: Cause, why: str) -> Loser:
    layout = candidate.layout
    return Loser(layout.tp, layout.pp, layout.dp, cause, why, candidate)


def _needs_headroom(candidate: Candidate, cluster: Cluster) -> Loser:
    why = (
        f"fits only with {candidate.layout.recompute} recompute, {extra_compute_pct(candidate):.0f} % more compute; "
        f"headroom confirmed: {cluster.compute_headroom_pct:g} %"
    )
    return _lose(candidate, Cause.HEADROOM, why)


def _too_large(candidate: Candidate, cluster: Cluster) -> Loser:
    asked, usable = candidate.memory.total / GIB, cluster.usable_bytes / GIB
    recompute = candidate.layout.recompute
    mode = "" if recompute is Recompute.NONE else f", even with {recompute} recompute"
    why = f"asks {asked:.1f} GiB a card of {usable:.1f} usable{mode}: {asked - usable:.1f} too many"
    return _lose(candidate, Cause.MEMORY, why)


SPENT = {
    "compute": "compute",
    "recompute": "recompute",
    "tp": "tensor parallel messages",
    "pp": "pipeline messages",
    "bubble": "the bubble",
    "dp": "data parallel messages",
    "optimizer": "the optimizer",
}


def _slower(candidate: Candidate, best: Candidate) -> Loser:
    more = 100 * (candidate.times.total / best.times.total - 1)
    lost = {name: getattr(candidate.times, name) - getattr(best.times, name) for name in SPENT}
    worst = max(lost, key=lambda name: lost[name])
    why = f"slower by {more:.1f} %, most of it {SPENT[worst]}: {lost[worst]:.3g} s more"
    return _lose(candidate, Cause.SLOWER, why)


def _zero3(model: Transformer, cluster: Cluster, precisions: list[Precision], constants: Constants) -> Candidate | None:
    """The quickest way to train with sharded data parallelism over all cards, None where none fits."""
    if model.global_batch % cluster.cards:
        return None
    tried: list[Candidate] = []
    for layout in variants(model, 1, 1, cluster.cards, precisions):
        held, times = zero3_memory(model, layout), zero3_iteration(model, cluster, layout, constants)
        tried.append(_candidate(model, cluster, layout, held, times))
    found = _choose(tried, cluster)
    return found if isinstance(found, Candidate) else None
