"""Memory of the most loaded card, by what fills it.

Sources: Rajbhandari et al. 2020, "ZeRO" (bytes a parameter); Korthikanti et al. 2022, "Reducing Activation
Recomputation in Large Transformer Models" (activations).
"""

from dataclasses import dataclass

from contracts.jobs import Recompute
from libs.planner.layout import Layout, is_wide
from libs.planner.shapes import Attention, Transformer

BYTES = 2
"""Bytes of an activation that is kept or sent (bf16)."""


@dataclass(frozen=True)
class Memory:
    """Bytes on the most loaded card."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """All four together."""
        return self.weights + self.gradients + self.optimizer + self.activations


def shard_parameters(model: Transformer, layout: Layout) -> float:
    """Parameters of the most loaded shard: layers/pp and the embedding, divided by tp."""
    return (model.layer_parameters * model.layers / layout.pp + model.embedding_parameters) / layout.tp


def kept_core(model: Transformer, layout: Layout) -> float:
    """Bytes that the core of attention leaves in memory for one layer and microbatch: 5 a s^2 b / t; fused none."""
    if model.attention is Attention.FLASH:
        return 0.0
    return 5 * model.heads * model.sequence**2 * layout.microbatch / layout.tp


def kept_rest(model: Transformer, layout: Layout) -> float:
    """Bytes that the rest of a layer leaves for one microbatch: s b h (18 + 4 ffn/h), 34 with ffn = 4 h.

    Sequence parallelism divides all of it by t; without, 10 s b h stay whole. A gated feed-forward keeps three
    matrices of ffn where the plain one keeps two: 6 ffn/h.
    """
    tokens = model.sequence * layout.microbatch
    whole = 0 if layout.sequence_parallel else 10
    width = (6 if model.gated else 4) * model.ffn_width / model.hidden
    return tokens * model.hidden * (whole + (18 + width - whole) / layout.tp)


def kept_layer(model: Transformer, layout: Layout) -> float:
    """Bytes that one layer keeps for one microbatch until its backward pass; 2 s b h under full recompute."""
    match layout.recompute:
        case Recompute.NONE:
            return kept_rest(model, layout) + kept_core(model, layout)
        case Recompute.SELECTIVE:
            return kept_rest(model, layout)
        case Recompute.FULL:
            return float(2 * model.sequence * layout.microbatch * model.hidden)


def activations(model: Transformer, layout: Layout) -> float:
    """Bytes of activations on the most loaded stage.

    The first stage keeps min(m, p) microbatches, interleaved (v > 1) the 1 + (p - 1)/(p v) fold of p; the last keeps
    one, and the logits and what leads to them, 4 s b (h + V) / t. Full recompute works on one whole layer besides.
    """
    layers = kept_layer(model, layout) * model.layers / layout.pp
    flying = min(layout.microbatches(model), layout.pp)
    penalty = 1 + (layout.pp - 1) / (layout.pp * layout.virtual) if layout.virtual > 1 else 1.0
    logits = 4 * model.sequence * layout.microbatch * (model.hidden + model.vocabulary) / layout.tp
    anew = layout.recompute is Recompute.FULL
    work = kept_rest(model, layout) + kept_core(model, layout) if anew else 0.0
    first, last = layers * flying * penalty, layers + logits
    return work + (last if layout.pp == 1 else max(first, last))


def memory(model: Transformer, layout: Layout) -> Memory:
    """Memory of the most loaded card in bytes.

    A parameter costs 18 bytes in mixed precision (weight 2, gradient 4, master 4, Adam 8), in fp32 16; the optimizer's
    12 (8) of them are divided by dp where the layout shards them: 6 + 12/dp.
    """
    parameters = shard_parameters(model, layout)
    weight, state = (4, 8) if is_wide(layout.precision) else (2, 12)
    return Memory(
        weights=weight * parameters,
        gradients=4 * parameters,
        optimizer=state * parameters / (layout.dp if layout.sharded else 1),
        activations=activations(model, layout) * (2 if is_wide(layout.precision) else 1),
    )
