"""Predictions beside what was published: one set of constants, errors as the page of the planner states them."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from contracts.jobs import Recompute
from libs.planner.layout import Layout
from libs.planner.memory import kept_layer, memory
from libs.planner.search import GIB, plan
from libs.planner.timing import CONSTANTS, Constants, iteration, iteration_flops
from libs.planner.zero3 import zero3_iteration, zero3_memory
from tests.unit.planner.published import Row, a100s, cut, gpt, h100s, megatron, mpt, rows

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


def test_iteration_seconds() -> None:
    errors = np.abs(timing_errors(rows("iteration_seconds_a100.csv")))
    assert len(errors) == 8
    assert errors.mean() <= 0.03
    assert errors.max() <= 0.04


def test_the_constants_are_those_that_fit_best() -> None:
    best = fitted(rows("iteration_seconds_a100.csv"))
    assert best.matmul == pytest.approx(CONSTANTS.matmul, abs=0.005)
    assert best.traffic == pytest.approx(CONSTANTS.traffic, abs=0.1)


@pytest.mark.parametrize("model", ["22B", "175B", "530B", "1T"])
def test_a_model_that_was_left_out_is_predicted(model: str) -> None:
    table = rows("iteration_seconds_a100.csv")
    constants = fitted([row for row in table if row["model"] != model])
    errors = np.abs(timing_errors([row for row in table if row["model"] == model], constants))
    assert errors.mean() <= 0.05
    assert errors.max() <= 0.055


def test_memory() -> None:
    batches = {row["model"]: row for row in rows("iteration_seconds_a100.csv")}
    for row in rows("memory_gib_a100.csv"):
        config = batches[row["model"]]
        model, layout = gpt(row["model"], int(config["global_batch"])), cut(config)
        bare = memory(model, replace(layout, sequence_parallel=False))
        selective = memory(model, replace(layout, recompute=Recompute.SELECTIVE))
        state = bare.weights + bare.gradients + bare.optimizer
        assert state / GIB == pytest.approx(float(row["params_optimizer_gib"]), rel=0.1)
        assert bare.activations / GIB == pytest.approx(float(row["activations_none_gib"]), rel=0.02)
        assert selective.activations / GIB == pytest.approx(float(row["activations_seq_selective_gib"]), rel=0.03)


@pytest.mark.parametrize("index", range(9))
def test_published_h100_layouts_are_among_the_first_three(index: int) -> None:
    row = rows("megatron_h100.csv")[index]
    plans = plan(megatron(row), h100s(int(row["gpus"])), top=3)
    sizes = [(one.layout.tp, one.layout.pp) for one in plans.best]
    assert (int(row["tp"]), int(row["pp"])) in sizes
    found = plans.best[sizes.index((int(row["tp"]), int(row["pp"])))]
    assert 989 * found.mfu == pytest.approx(float(row["tflops_per_gpu"]), rel=0.25)


def test_there_are_nine_published_h100_layouts() -> None:
    assert len(rows("megatron_h100.csv")) == 9


def test_tensor_and_pipeline_parallelism_beats_zero3_where_published() -> None:
    for row in rows("ptdp_vs_zero3_a100.csv"):
        cards = int(row["gpus"])
        model, cluster = gpt(row["model"], 1536), a100s(cards)
        flops = iteration_flops(model, recompute=True) / cards / 1e12
        full = Layout(8, 12, cards // 96, recompute=Recompute.FULL, sequence_parallel=False)
        sharded = Layout(1, 1, cards, microbatch=1536 // cards, recompute=Recompute.FULL)
        ptdp = flops / iteration(model, cluster, full).total
        zero3 = flops / zero3_iteration(model, cluster, sharded).total
        assert ptdp > zero3
        assert ptdp == pytest.approx(float(row["ptdp_tp8"]), rel=0.05)
        assert zero3 == pytest.approx(float(row["zero3"]), rel=0.1)
        assert zero3_memory(model, sharded).total < cluster.usable_bytes
        plans = plan(model, cluster)
        assert plans.zero3 is not None
        assert plans.zero3.times.total > plans.best[-1].times.total


def test_generations_come_in_their_order() -> None:
    """Batch and layout of these were not published: the order holds, and the gain within a third."""
    for row in rows("generations_tokens_per_s_per_gpu.csv"):
        model = mpt(row["model"], 512)
        older, newer = plan(model, a100s(64)), plan(model, h100s(64))
        gain = newer.best[0].tokens_per_s / older.best[0].tokens_per_s
        assert gain == pytest.approx(float(row["h100"]) / float(row["a100_80"]), rel=0.35)


def test_what_is_kept_of_a_layer_as_the_paper_counts_it() -> None:
    model = gpt("175B", 64)
    tokens = 2048 * 12288
    whole = Layout(8, 8, 1)
    assert kept_layer(model, whole) == tokens * (34 + 5 * 96 * 2048 / 12288) / 8
    assert kept_layer(model, replace(whole, recompute=Recompute.SELECTIVE)) == tokens * 34 / 8
    assert kept_layer(model, replace(whole, recompute=Recompute.FULL)) == 2 * tokens


def test_flops_as_the_paper_counts_them() -> None:
    model = gpt("175B", 64)
    flops = 64 * 2048 * 96 * 12288**2
    assert iteration_flops(model) == pytest.approx(72 * flops * (1 + 2048 / (6 * 12288) + 51200 / (12 * 96 * 12288)))
    anew = 96 * flops * (1 + 2048 / (6 * 12288) + 51200 / (16 * 96 * 12288))
    assert iteration_flops(model, recompute=True) == pytest.approx(anew)
