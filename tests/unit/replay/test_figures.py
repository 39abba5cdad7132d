"""Figures of a replay: known answers, and sums that must agree."""

import numpy as np
import pytest

from deploy.replay.cluster import Simulation
from deploy.replay.figures import SECOND_US, curves, figures, jain, max_min, received_of_deserved, spread
from tests.unit.replay.traces import COSTS, Script, job


def test_jain() -> None:
    assert jain([1.0, 1.0, 1.0]) == 1.0
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([2.0, 1.0]) == pytest.approx(0.9)
    assert jain([0.0, 0.0]) == 1.0
    assert jain([]) == 1.0


@pytest.mark.parametrize(
    ("wanted", "share"),
    [
        ([10, 10, 10], [4, 4, 4]),
        ([1, 10, 10], [1, 5.5, 5.5]),
        ([10, 1, 2], [9, 1, 2]),
        ([0, 0, 100], [0, 0, 12]),
        ([1, 2, 3], [1, 2, 3]),
    ],
)
def test_max_min_shares_of_twelve_cards(wanted: list[int], share: list[float]) -> None:
    assert max_min(np.array([wanted]), 12).tolist() == [share]


def test_spread() -> None:
    times = spread(np.arange(101) * SECOND_US)
    assert (times.mean_s, times.median_s, times.p95_s, times.max_s) == (50.0, 50.0, 95.0, 100.0)


def test_two_tenants_one_after_the_other() -> None:
    """Four cards: tenant 0 has them for 100 s, while both want all; then tenant 1 for 100 s alone."""
    jobs = [job("a", cards=4, runs=100), job("b", cards=4, runs=100, tenant=1)]
    cluster = Simulation(jobs, 4, COSTS, Script()).run()
    course = curves(cluster, 2)
    assert course.at_us.tolist() == [0, 100 * SECOND_US, 200 * SECOND_US]
    assert course.wanted.tolist() == [[4, 4], [0, 4], [0, 0]]
    assert course.held.tolist() == [[4, 0], [0, 4], [0, 0]]
    assert received_of_deserved(course, 4).tolist() == [400 / 200, 400 / 600]
    its = figures(cluster, 2)
    assert (its.wait.mean_s, its.wait.max_s, its.completion.mean_s, its.makespan_s) == (50.0, 100.0, 150.0, 200.0)
    assert its.utilisation == 1.0
    assert its.jain == pytest.approx(0.8)
    assert its.jain_slowdown == pytest.approx(0.9)


def test_a_tenant_that_wants_nothing_is_owed_nothing() -> None:
    cluster = Simulation([job("a", cards=1, runs=100)], 4, COSTS, Script()).run()
    its = figures(cluster, 3)
    assert its.received_of_deserved == (1.0, 1.0, 1.0)
    assert its.jain == 1.0
    assert its.utilisation == 0.25


def test_held_is_done_and_lost_and_overhead() -> None:
    jobs = [job("a", cards=2, runs=200), job("b", at=1, runs=300), job("c", at=40, cards=2, runs=30, tenant=1)]
    cluster = Simulation(jobs, 2, COSTS, Script({150: [0], 500: [1]})).run()
    its = figures(cluster, 2)
    held_us = int((curves(cluster, 2).lasts_us @ curves(cluster, 2).held).sum())
    assert its.preemptions == 2
    hours = its.done_card_hours + its.lost_card_hours + its.overhead_card_hours
    assert hours * 3600 == pytest.approx(held_us / SECOND_US, abs=3600 * 0.002)
    assert its.placements == len(jobs) + its.preemptions
