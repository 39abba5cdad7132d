"""ZeRO-3, to compare with: every card trains whole microbatches and gathers each layer's weights when it needs them.

Sources: Rajbhandari et al. 2020, "ZeRO"; measured beside tensor and pipeline parallelism by Narayanan et al. 2021.
"""

from dataclasses import replace

from libs.planner.layout import Layout, is_wide
from libs.planner.memory import BYTES, Memory, memory
from libs.planner.shapes import Cluster, Transformer
from libs.planner.timing import CONSTANTS, Constants, Machine, Times, logits_seconds, optimizer_seconds, stage_pass


def zero3_memory(model: Transformer, layout: Layout) -> Memory:
    """Memory of a card in bytes: 18 bytes a parameter over all cards, activations whole; one layer is gathered."""
    held = memory(model, replace(layout, sharded=True))
    gathered = (4 if is_wide(layout.precision) else BYTES) * model.layer_parameters
    return replace(held, weights=held.weights / layout.dp + gathered, gradients=held.gradients / layout.dp)


def zero3_iteration(model: Transformer, cluster: Cluster, layout: Layout, constants: Constants = CONSTANTS) -> Times:
    """Seconds of one iteration with tp = pp = 1.

    For each of m microbatches 2 bytes x parameters cross every card's own link three times, (n - 1)/n of them each:
    gathered for the forward pass, gathered for the backward pass, reduced as gradients. A forward pass waits for its
    weights; what belongs to the backward pass travels under it. That split was chosen with the three published rows in
    sight.
    """
    machine = Machine(model, cluster, layout, constants)
    one, count = stage_pass(machine), layout.microbatches(model)
    width = 4 if is_wide(layout.precision) else BYTES
    crossing = machine.all_reduce(width * model.parameters, layout.dp, inside=machine.fits_node(layout.dp)) / 2
    compute, again = one.compute + logits_seconds(machine), one.recompute
    hidden = count * min(2 * crossing, 2 / 3 * compute + again)
    sync = count * 3 * crossing - hidden
    return Times(count * compute, count * again, 0.0, 0.0, 0.0, sync, optimizer_seconds(machine), hidden)
