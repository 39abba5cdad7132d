"""Which layouts are proposed, and what is said of the others."""

from dataclasses import replace

import pytest

from contracts.jobs import Recompute
from libs.planner.layout import Layout, check
from libs.planner.memory import memory
from libs.planner.search import Cause, Plans, extra_compute_pct, plan
from libs.planner.shapes import Attention, Card, Cluster, Link, Peaks, Precision, Transformer
from libs.planner.timing import iteration

CARD = Card(memory_gib=80, memory_gb_s=3350, peak_tflops=Peaks(bf16=989, fp8=1979))
CLUSTER = Cluster(
    name="c",
    nodes=8,
    cards_per_node=8,
    card=CARD,
    card_link=Link(gb_s=450, latency_us=2),
    node_link=Link(gb_s=50, latency_us=10),
)
MODEL = Transformer(name="m", layers=48, hidden=6144, heads=64, vocabulary=51200, sequence=2048, global_batch=256)


def with_memory(gib: float) -> Cluster:
    return CLUSTER.model_copy(update={"card": CARD.model_copy(update={"memory_gib": gib})})


def causes(plans: Plans) -> set[Cause]:
    return {one.cause for one in plans.lost}


def test_candidates_fit_use_all_cards_and_come_quickest_first() -> None:
    plans = plan(MODEL, CLUSTER, top=5)
    times = [one.times.total for one in plans.best]
    assert times == sorted(times)
    assert len(times) == 5
    for one in plans.best:
        check(MODEL, CLUSTER, one.layout)
        assert one.memory.total <= CLUSTER.usable_bytes
        assert one.tokens_per_s == pytest.approx(256 * 2048 / one.times.total)


def test_each_of_three_sizes_comes_once_and_no_slower_one_is_proposed() -> None:
    plans = plan(MODEL, CLUSTER)
    sizes = [(one.layout.tp, one.layout.pp, one.layout.dp) for one in plans.best]
    sizes += [(one.tp, one.pp, one.dp) for one in plans.lost]
    assert len(set(sizes)) == len(sizes)
    slower = [one.candidate for one in plans.lost if one.cause is Cause.SLOWER]
    assert min(one.times.total for one in slower if one is not None) >= plans.best[-1].times.total


def test_tensor_parallelism_stays_inside_a_node() -> None:
    plans = plan(MODEL, CLUSTER)
    assert {one.layout.tp for one in plans.best} <= {1, 2, 4, 8}
    across = [one for one in plans.lost if one.cause is Cause.ACROSS_NODES]
    assert {one.tp for one in across} == {16}
    assert across[0].why == "tensor parallel over 16 cards crosses nodes of 8"


def test_groups_that_would_straddle_nodes_cross_them() -> None:
    plans = plan(MODEL, CLUSTER.model_copy(update={"cards_per_node": 6}), top=20)
    assert {one.layout.tp for one in plans.best} == {1, 2}


def test_what_does_not_fit_says_by_how_much() -> None:
    plans = plan(MODEL, with_memory(12))
    lost = next(one for one in plans.lost if one.cause is Cause.MEMORY)
    assert lost.candidate is not None
    asked = lost.candidate.memory.total / 2**30
    assert lost.why == f"asks {asked:.1f} GiB a card of 8.0 usable, even with full recompute: {asked - 8:.1f} too many"


def test_recompute_waits_for_confirmed_headroom() -> None:
    tight = with_memory(14)
    refused = plan(MODEL, tight)
    needy = [one for one in refused.lost if one.cause is Cause.HEADROOM]
    assert all(one.layout.recompute is Recompute.NONE for one in refused.best)
    assert "headroom confirmed: 0 %" in needy[0].why
    confirmed = plan(MODEL, tight.model_copy(update={"compute_headroom_pct": 40}), top=20)
    full = [one for one in confirmed.best if one.layout.recompute is Recompute.FULL]
    assert {(one.tp, one.pp) for one in needy} <= {(one.layout.tp, one.layout.pp) for one in full}
    assert all(extra_compute_pct(one) <= 40 for one in full)


def test_recompute_is_not_taken_where_memory_is_enough() -> None:
    free = CLUSTER.model_copy(update={"compute_headroom_pct": 100})
    assert plan(MODEL, free).best[0].layout.recompute is Recompute.NONE


def test_the_quickest_allowed_precision_is_taken() -> None:
    both = MODEL.model_copy(update={"precisions": (Precision.BF16, Precision.FP8)})
    assert plan(MODEL, CLUSTER).best[0].layout.precision is Precision.BF16
    assert plan(both, CLUSTER).best[0].layout.precision is Precision.FP8


def test_a_precision_that_no_card_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"precisions is \[tf32\]: the cards of c have a peak for bf16, fp8 only"):
        plan(MODEL.model_copy(update={"precisions": (Precision.TF32,)}), CLUSTER)


def test_wide_numbers_take_twice_the_activations() -> None:
    layout = Layout(8, 1, 8)
    narrow, wide = memory(MODEL, layout), memory(MODEL, replace(layout, precision=Precision.FP32))
    assert (wide.weights, wide.activations) == (2 * narrow.weights, 2 * narrow.activations)
    assert wide.optimizer == pytest.approx(narrow.optimizer * 8 / 12)


def test_a_sharded_optimizer_costs_6_and_12_over_dp() -> None:
    held = memory(MODEL, Layout(8, 1, 8))
    parameters = MODEL.parameters / 8
    assert held.weights + held.gradients + held.optimizer == pytest.approx(parameters * (6 + 12 / 8))


def test_the_parts_of_a_time_are_its_total() -> None:
    spent = iteration(MODEL, CLUSTER, Layout(4, 4, 4))
    parts = spent.compute + spent.recompute + spent.tp + spent.pp + spent.bubble + spent.dp + spent.optimizer
    assert spent.total == pytest.approx(parts)
    assert spent.bubble == pytest.approx((spent.compute + spent.tp + spent.pp) * 3 / 64, rel=0.05)
    halved = iteration(MODEL, CLUSTER, Layout(4, 4, 4, virtual=2))
    assert halved.bubble == pytest.approx(spent.bubble / 2, rel=0.02)


def test_one_card_sends_nothing() -> None:
    one = CLUSTER.model_copy(update={"nodes": 1, "cards_per_node": 1})
    small = MODEL.model_copy(update={"hidden": 512, "heads": 8, "layers": 4})
    spent = plan(small, one).best[0].times
    assert (spent.tp, spent.pp, spent.bubble, spent.dp, spent.hidden) == (0, 0, 0, 0, 0)


def test_grouped_heads_and_gates_count() -> None:
    llama = Transformer(
        name="llama",
        layers=80,
        hidden=8192,
        heads=64,
        kv_heads=8,
        ffn=28672,
        gated=True,
        vocabulary=32000,
        sequence=4096,
        global_batch=512,
    )
    assert llama.parameters == pytest.approx(68.7e9, rel=0.005)
    assert {one.layout.tp for one in plan(llama, CLUSTER, top=20).best} <= {1, 2, 4, 8}


def test_attention_in_separate_steps_keeps_its_matrix() -> None:
    separate = MODEL.model_copy(update={"attention": Attention.STANDARD})
    layout = Layout(8, 1, 8)
    assert memory(separate, layout).activations > memory(MODEL, layout).activations
    selective = replace(layout, recompute=Recompute.SELECTIVE)
    assert memory(separate, selective).activations == memory(MODEL, layout).activations


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(8, 1, 4), "dp is 4: with tp 8 and pp 1 that is 32 cards, c has 64"),
        (Layout(16, 1, 4), "tp is 16: groups must lie inside nodes of 8 cards"),
        (Layout(1, 64, 1), "pp is 64: 48 layers do not make 64 stages"),
        (Layout(1, 16, 4, virtual=2), "pp is 16: 48 layers do not make 16 stages of 2 equal pieces"),
        (Layout(8, 1, 8, microbatch=3), "microbatch is 3: global_batch, 256, does not divide by dp x microbatch, 24"),
        (Layout(2, 4, 8, microbatch=16, virtual=2), "virtual is 2: 2 microbatches do not divide by pp 4"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(layout: Layout, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(MODEL, CLUSTER, layout)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="tp is 8: 12 heads do not divide by it"):
        check(MODEL.model_copy(update={"heads": 12}), CLUSTER, Layout(8, 1, 8))
