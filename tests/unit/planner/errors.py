"""How far predictions are from what was published: relative errors, predicted over published less one."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from contracts.jobs import Recompute
from libs.planner.layout import Layout
from libs.planner.memory import memory
from libs.planner.search import GIB, plan
from libs.planner.timing import CONSTANTS, Constants, iteration, iteration_flops
from libs.planner.zero3 import zero3_iteration
from tests.unit.planner.published import Row, a100s, cut, gpt, h100s, megatron, rows

H100_TFLOPS = 989
TFLOP = 1e12
PTDP_BATCH = 1536

Errors = npt.NDArray[np.float64]
STEP = 1e-4
ROUNDS = 20


def timing_errors(table: list[Row], constants: Constants = CONSTANTS) -> Errors:
    """Relative errors of both columns of iteration_seconds_a100.csv: predicted over published, less one."""
    found: list[float] = []
    for row in table:
        model, cluster, layout = gpt(row["model"], int(row["global_batch"])), a100s(int(row["gpus"])), cut(row)
        full = replace(layout, recompute=Recompute.FULL, sequence_parallel=False)
        selective = replace(layout, recompute=Recompute.SELECTIVE)
        for way, seconds in ((full, row["full_recompute_s"]), (selective, row["seq_selective_s"])):
            found.append(iteration(model, cluster, way, constants).total / float(seconds) - 1)
    return np.array(found)


def fitted(table: list[Row]) -> Constants:
    """The two free constants by least squares of relative errors (Gauss-Newton)."""
    point = np.array([0.7, 2.0])

    def errors(at: Errors) -> Errors:
        return timing_errors(table, replace(CONSTANTS, matmul=float(at[0]), traffic=float(at[1])))

    for _ in range(ROUNDS):
        here = errors(point)
        slope = np.stack([(errors(point + STEP * axis) - here) / STEP for axis in np.eye(2)], axis=1)
        point = np.asarray(point - np.linalg.lstsq(slope, here)[0], np.float64)
    return replace(CONSTANTS, matmul=float(point[0]), traffic=float(point[1]))


def left_out(model: str) -> Errors:
    """Timing errors of one model under constants fitted on the others."""
    table = rows("iteration_seconds_a100.csv")
    constants = fitted([row for row in table if row["model"] != model])
    return timing_errors([row for row in table if row["model"] == model], constants)


def memory_errors(config: Row, row: Row) -> tuple[float, float, float]:
    """Errors of parameters with optimizer, of activations kept whole, and of those under selective recompute."""
    model, layout = gpt(row["model"], int(config["global_batch"])), cut(config)
    bare = memory(model, replace(layout, sequence_parallel=False))
    selective = memory(model, replace(layout, recompute=Recompute.SELECTIVE))
    pairs = (
        (bare.weights + bare.gradients + bare.optimizer, row["params_optimizer_gib"]),
        (bare.activations, row["activations_none_gib"]),
        (selective.activations, row["activations_seq_selective_gib"]),
    )
    state, whole, less = (size / GIB / float(published) - 1 for size, published in pairs)
    return state, whole, less


@dataclass(frozen=True)
class Ranked:
    """The place of a published layout in its plan, from 1, and the error of its TFLOP/s; no place is 0."""

    place: int
    error: float


def ranked(row: Row, top: int) -> Ranked:
    """Where the layout of a row of megatron_h100.csv comes among the first `top`."""
    for place, one in enumerate(plan(megatron(row), h100s(int(row["gpus"])), top).best, 1):
        if (one.layout.tp, one.layout.pp) == (int(row["tp"]), int(row["pp"])):
            return Ranked(place, H100_TFLOPS * one.mfu / float(row["tflops_per_gpu"]) - 1)
    return Ranked(0, 0.0)


def ptdp_and_zero3(row: Row) -> tuple[float, float]:
    """Predicted TFLOP/s a card, full recompute: TP 8 and PP 12, and ZeRO-3, for a row of ptdp_vs_zero3_a100.csv."""
    cards = int(row["gpus"])
    model, cluster = gpt(row["model"], PTDP_BATCH), a100s(cards)
    flops = iteration_flops(model, recompute=True) / cards / TFLOP
    cut_up = Layout(8, 12, cards // 96, recompute=Recompute.FULL, sequence_parallel=False)
    sharded = Layout(1, 1, cards, microbatch=PTDP_BATCH // cards, recompute=Recompute.FULL)
    return flops / iteration(model, cluster, cut_up).total, flops / zero3_iteration(model, cluster, sharded).total
