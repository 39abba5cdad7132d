"""Time of one training iteration, by what it is spent on.

Sources: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters" (FLOPs, bubble,
messages); Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models" (what is computed
anew, and the timings that the constants were fitted on).

What is hidden: gradients and weights of the data parallel group travel under the passes of one microbatch, the last
backward and the first forward. Tensor and pipeline parallel messages are not hidden.
"""

from dataclasses import dataclass, fields
from functools import cached_property

from contracts.jobs import Recompute
from libs.planner.layout import Layout, is_wide
from libs.planner.memory import BYTES, kept_core, kept_rest, memory, shard_parameters
from libs.planner.shapes import Cluster, Link, Transformer


@dataclass(frozen=True)
class Constants:
    """What the formulas leave open: one set for every model, layout and card.

    Fitted, by least squares of relative errors on the eight published A100 timings of Korthikanti et al., table 5
    (tests/unit/planner/test_published.py fits them anew, and also on three of its four models to predict the fourth):

    - `matmul`: share of the peak that large matrix products reach.
    - `traffic`: bytes moved through a card's memory in a forward pass for each byte of activations it makes.

    Stated, not fitted:

    - `layer_s`: seconds that a layer's forward pass loses to launches and to waves that do not fill the card. So a
      layer of F FLOPs reaches `matmul` F / (F + F0) of the peak, F0 = `matmul` x peak x `layer_s`.
    - `card_link`, `node_link`: share of the nominal bandwidth that collectives reach inside and between nodes.
    """

    matmul: float = 0.77
    traffic: float = 3.0
    layer_s: float = 2e-4
    card_link: float = 0.8
    node_link: float = 0.7


CONSTANTS = Constants()


@dataclass(frozen=True)
class Times:
    """Seconds of one iteration. `hidden` is communication under compute, in no sum."""

    compute: float
    recompute: float
    tp: float
    pp: float
    bubble: float
    dp: float
    optimizer: float
    hidden: float

    @property
    def total(self) -> float:
        """Seconds from one optimizer step to the next."""
        return sum(getattr(self, field.name) for field in fields(self)) - self.hidden


@dataclass(frozen=True)
class Machine:
    """A cluster as one layout meets it: effective rates in FLOP/s and bytes/s."""

    model: Transformer
    cluster: Cluster
    layout: Layout
    constants: Constants = CONSTANTS

    @cached_property
    def flops(self) -> float:
        """FLOP/s of large matrix products. Raises ValueError where the card has no figure for the precision."""
        precision = self.layout.precision
        peak = self.cluster.card.peak_tflops.of(precision)
        if peak is None:
            msg = f"card.peak_tflops has no {precision}: add the figure to the cluster {self.cluster.name}"
            raise ValueError(msg)
        return peak * self.constants.matmul

    @property
    def memory(self) -> float:
        """Bytes a second between a card and its memory."""
        return self.cluster.card.memory_gb_s * 1e9

    def moved(self, size: float) -> float:
        """Seconds to make `size` bytes of activations."""
        width = 2 if is_wide(self.layout.precision) else 1
        return self.constants.traffic * size * width / self.memory

    def all_reduce(self, size: float, ranks: int, *, inside: bool) -> float:
        """Seconds of a ring all-reduce of `size` bytes: 2 (n - 1)/n x S / bandwidth, and 2 (n - 1) latencies."""
        if ranks == 1:
            return 0.0
        bandwidth, latency = self.link(inside=inside)
        return 2 * (ranks - 1) * (size / ranks / bandwidth + latency)

    def send(self, size: float, *, inside: bool) -> float:
        """Seconds for `size` bytes from one card to another."""
        bandwidth, latency = self.link(inside=inside)
        return size / bandwidth + latency

    def link(self, *, inside: bool) -> tuple[float, float]:
        """Effective bytes/s and seconds of latency, inside a node or between nodes."""
        link: Link = self.cluster.card_link if inside else self.cluster.node_link
        share = self.constants.card_link if inside else self.constants.node_link
        return link.gb_s * 1e9 * share, link.latency_us * 1e-6

    def fits_node(self, cards: int) -> bool:
        """Whether a group that spans `cards` neighbouring cards stays inside a node."""
        return cards <= self.cluster.cards_per_node


@dataclass(frozen=True)
class Pass:
    """Seconds of one microbatch on one stage, both directions: compute, what is computed anew, TP messages."""

    compute: float
    recompute: float
    tp: float

    @property
    def total(self) -> float:
        """All three together."""
        return self.compute + self.recompute + self.tp


def core_flops(model: Transformer, layout: Layout) -> float:
    """FLOPs of attention's core for one layer and microbatch, forward, on one card: 4 b s^2 h / t."""
    return 4 * layout.microbatch * model.sequence**2 * model.hidden / layout.tp


def dense_flops(model: Transformer, layout: Layout) -> float:
    """FLOPs of a layer's matrices for one microbatch, forward, on one card: 24 b s h^2 / t."""
    return 2 * layout.microbatch * model.sequence * model.layer_parameters / layout.tp


def iteration_flops(model: Transformer, *, recompute: bool = False) -> float:
    """FLOPs of one iteration on all cards: 72 B s l h^2 (1 + s/(6 h) + V/(12 l h)); with full recompute 96 and V/16."""
    one = Layout(1, 1, 1, microbatch=1)
    layers = model.layers * (dense_flops(model, one) + core_flops(model, one))
    logits = 2 * model.sequence * model.embedding_parameters
    return model.global_batch * ((4 if recompute else 3) * layers + 3 * logits)


def stage_pass(machine: Machine) -> Pass:
    """One microbatch through the layers of one stage, forward and backward, backward at twice the forward's compute."""
    model, layout = machine.model, machine.layout
    layers = model.layers / layout.pp
    core = core_flops(model, layout) / machine.flops + machine.moved(kept_core(model, layout))
    rest = dense_flops(model, layout) / machine.flops + machine.moved(kept_rest(model, layout))
    forward = core + rest + machine.constants.layer_s
    size = BYTES * layout.microbatch * model.sequence * model.hidden
    message = machine.all_reduce(size, layout.tp, inside=machine.fits_node(layout.tp))
    full = layout.recompute is Recompute.FULL
    again = {Recompute.NONE: 0.0, Recompute.SELECTIVE: core, Recompute.FULL: forward}[layout.recompute]
    return Pass(layers * 3 * forward, layers * again, layers * message * (6 if full else 4))


def logits_seconds(machine: Machine) -> float:
    """Seconds of one microbatch on the output matrix, both directions: 6 b s h V / t FLOPs; it paces the pipeline."""
    model, layout = machine.model, machine.layout
    tokens = layout.microbatch * model.sequence
    return 6 * tokens * model.embedding_parameters / layout.tp / machine.flops


def data_parallel_seconds(machine: Machine) -> float:
    """Seconds of the data parallel group's messages: all-reduce of 4 bytes x parameters/(tp pp)."""
    layout = machine.layout
    size = 4 * shard_parameters(machine.model, layout)
    return machine.all_reduce(size, layout.dp, inside=machine.fits_node(layout.tp * layout.dp))


def pipeline_seconds(machine: Machine) -> float:
    """Seconds that one microbatch's messages to and from the next stage take: 2 v x b s h / t (scatter-gather)."""
    model, layout = machine.model, machine.layout
    if layout.pp == 1:
        return 0.0
    size = BYTES * layout.microbatch * model.sequence * model.hidden / layout.tp
    return 2 * layout.virtual * machine.send(size, inside=machine.fits_node(layout.cards))


def optimizer_seconds(machine: Machine) -> float:
    """Seconds of the optimizer's step: weights, gradients and state are read and written once; sharded with it."""
    held = memory(machine.model, machine.layout)
    share = machine.layout.dp if machine.layout.sharded else 1
    return 2 * ((held.weights + held.gradients) / share + held.optimizer) / machine.memory


def iteration(model: Transformer, cluster: Cluster, layout: Layout, constants: Constants = CONSTANTS) -> Times:
    """Seconds of one iteration: m microbatches on the slowest stage, and (p - 1)/v more of them as the bubble.

    Narayanan et al. 2021, section 2.2: the bubble's share is (p - 1)/(v m).
    """
    machine = Machine(model, cluster, layout, constants)
    one, count = stage_pass(machine), layout.microbatches(model)
    pipeline = pipeline_seconds(machine)
    sync = data_parallel_seconds(machine)
    hidden = min(sync, one.total)
    return Times(
        compute=count * (one.compute + logits_seconds(machine)),
        recompute=count * one.recompute,
        tp=count * one.tp,
        pp=count * pipeline,
        bubble=(layout.pp - 1) / layout.virtual * (one.total + pipeline),
        dp=sync - hidden,
        optimizer=optimizer_seconds(machine),
        hidden=hidden,
    )
