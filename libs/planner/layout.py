"""What the planner chooses: how a model is cut over cards, and how often activations are kept or computed anew."""

from dataclasses import dataclass

from contracts.jobs import Recompute
from libs.planner.shapes import Cluster, Precision, Transformer


def is_wide(precision: Precision) -> bool:
    """Whether activations and weights take four bytes, not two."""
    return precision in {Precision.FP32, Precision.TF32}


@dataclass(frozen=True)
class Layout:
    """One way to train: sizes of the tensor, pipeline and data parallel groups, and what goes with them.

    `virtual` is the number of pieces of the model on each pipeline stage (interleaved schedule, 1 without),
    `microbatch` is in sequences. With `sharded` the optimizer's state is divided over the data parallel group; with
    `sequence_parallel` norms and dropouts are divided over the tensor parallel group as well.
    """

    tp: int
    pp: int
    dp: int
    microbatch: int = 1
    virtual: int = 1
    recompute: Recompute = Recompute.NONE
    precision: Precision = Precision.BF16
    sequence_parallel: bool = True
    sharded: bool = True

    @property
    def cards(self) -> int:
        """Cards in use."""
        return self.tp * self.pp * self.dp

    def microbatches(self, model: Transformer) -> int:
        """Microbatches that each pipeline works through in one iteration."""
        return model.global_batch // (self.dp * self.microbatch)


def check(model: Transformer, cluster: Cluster, layout: Layout) -> None:
    """Raise ValueError, which names size, value and remedy, where `layout` cannot train `model` on all of `cluster`."""
    tp, pp, dp, each = layout.tp, layout.pp, layout.dp, layout.microbatch
    if cluster.cards_per_node % tp:
        msg = f"tp is {tp}: groups must lie inside nodes of {cluster.cards_per_node} cards; take a divisor of that"
        raise ValueError(msg)
    if model.heads % tp:
        msg = f"tp is {tp}: {model.heads} heads do not divide by it; take a divisor of heads"
        raise ValueError(msg)
    if layout.cards != cluster.cards:
        msg = f"dp is {dp}: with tp {tp} and pp {pp} that is {layout.cards} cards, {cluster.name} has {cluster.cards}"
        raise ValueError(msg)
    if model.layers % pp or model.layers // pp % layout.virtual:
        msg = f"pp is {pp}: {model.layers} layers do not make {pp} stages of {layout.virtual} equal pieces (virtual)"
        raise ValueError(msg)
    if model.global_batch % (dp * each):
        msg = (
            f"microbatch is {each}: global_batch, {model.global_batch}, does not divide by dp x microbatch, {dp * each}"
        )
        raise ValueError(msg)
    if layout.virtual > 1 and layout.microbatches(model) % pp:
        msg = f"virtual is {layout.virtual}: {layout.microbatches(model)} microbatches do not divide by pp {pp}; take 1"
        raise ValueError(msg)
