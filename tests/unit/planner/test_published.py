"""Predictions beside what was published: one set of constants, errors as the page of the planner states them."""

from dataclasses import replace

import numpy as np
import pytest

from contracts.jobs import Recompute
from libs.planner.layout import Layout
from libs.planner.memory import kept_layer
from libs.planner.search import plan
from libs.planner.timing import CONSTANTS, iteration_flops
from tests.unit.planner.errors import fitted, left_out, memory_errors, ptdp_and_zero3, ranked, timing_errors
from tests.unit.planner.published import a100s, gpt, h100s, mpt, rows


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
    errors = np.abs(left_out(model))
    assert errors.mean() <= 0.05
    assert errors.max() <= 0.055


def test_memory() -> None:
    configs = {row["model"]: row for row in rows("iteration_seconds_a100.csv")}
    table = rows("memory_gib_a100.csv")
    assert len(table) == 4
    for row in table:
        state, whole, selective = memory_errors(configs[row["model"]], row)
        assert abs(state) <= 0.1
        assert abs(whole) <= 0.02
        assert abs(selective) <= 0.03


@pytest.mark.parametrize("index", range(9))
def test_published_h100_layouts_are_among_the_first_three(index: int) -> None:
    found = ranked(rows("megatron_h100.csv")[index], top=3)
    assert found.place > 0
    assert abs(found.error) <= 0.25


def test_there_are_nine_published_h100_layouts() -> None:
    assert len(rows("megatron_h100.csv")) == 9


def test_tensor_and_pipeline_parallelism_beats_zero3_where_published() -> None:
    for row in rows("ptdp_vs_zero3_a100.csv"):
        ptdp, zero3 = ptdp_and_zero3(row)
        assert ptdp > zero3
        assert ptdp == pytest.approx(float(row["ptdp_tp8"]), rel=0.05)
        assert zero3 == pytest.approx(float(row["zero3"]), rel=0.1)


def test_a_plan_says_so_too() -> None:
    for row in rows("ptdp_vs_zero3_a100.csv"):
        plans = plan(gpt(row["model"], 1536), a100s(int(row["gpus"])))
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
