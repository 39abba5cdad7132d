"""The simulator: what becomes of jobs in virtual time, with known answers."""

import numpy as np
import pytest
from typing_extensions import override

from deploy.replay.cluster import Cluster, Costs, Moves, Planner, Simulation, Start, Stop, card_nodes, fits, members
from deploy.replay.philly import Job
from tests.unit.replay.traces import COSTS, S, Script, job


def played(jobs: list[Job], cards: int, stops: dict[int, list[int]] | None = None, costs: Costs = COSTS) -> Cluster:
    return Simulation(jobs, cards, costs, Script(stops)).run()


def test_a_job_runs_from_its_arrival_to_its_end() -> None:
    life = played([job("a", at=7, runs=30)], 1).lives[0]
    assert (life.first_start_us, life.ended_us, life.held_us, life.attempts) == (7 * S, 37 * S, 30 * S, 1)


def test_a_job_waits_for_cards() -> None:
    lives = played([job("a", cards=2, runs=30), job("b", at=5, runs=10)], 2).lives
    assert (lives[1].first_start_us, lives[1].ended_us) == (30 * S, 40 * S)


def test_a_preempted_job_loses_what_no_checkpoint_kept_and_pays_grace_and_restart() -> None:
    """150 s computed of 200, one checkpoint at 100 s; 10 s of grace; then 5 s of restart and the other 100 s."""
    life = played([job("a", runs=200), job("b", at=1, runs=300)], 1, {150: [0]}).lives[0]
    assert (life.lost_us, life.preemptions, life.attempts) == (50 * S, 1, 2)
    assert life.held_us == (150 + 10 + 5 + 100) * S
    assert life.ended_us == 265 * S  # the script starts the oldest that waits


def test_cards_of_a_victim_are_free_when_its_grace_is_over() -> None:
    lives = played([job("a", runs=200), job("b", at=1, cards=2, runs=10)], 2, {100: [0]}).lives
    assert lives[0].lost_us == 0
    assert lives[0].first_start_us == 0
    assert lives[1].first_start_us == (100 + 10 + 5 + 100) * S


def test_no_progress_before_the_restart_is_over() -> None:
    life = played([job("a", runs=200), job("b", at=1, runs=1)], 1, {100: [0], 112: [0]}).lives[0]
    assert (life.preemptions, life.lost_us) == (2, 0)
    assert life.ended_us == (100 + 10 + 2 + 10 + 5 + 100) * S


def test_what_would_end_within_its_grace_does_so() -> None:
    life = played([job("a", runs=200), job("b", at=1, runs=1)], 1, {190: [0]}).lives[0]
    assert (life.ended_us, life.preemptions, life.lost_us) == (200 * S, 0, 0)


def test_without_grace_cards_are_free_at_once() -> None:
    life = played([job("a", runs=20), job("b", at=1, runs=1)], 1, {15: [0]}, Costs(10 * S, 0, 0)).lives[0]
    assert (life.lost_us, life.held_us, life.ended_us) == (5 * S, 25 * S, 25 * S)


@pytest.mark.parametrize(
    ("cards", "spread"),
    [(1, (1, 1)), (8, (1, 8)), (9, (3, 3)), (12, (2, 6)), (13, (13, 1)), (16, (2, 8)), (64, (8, 8))],
)
def test_gangs_are_spread_over_as_few_nodes_as_divide_them(cards: int, spread: tuple[int, int]) -> None:
    assert members(cards) == spread


def test_the_last_node_is_smaller() -> None:
    assert np.bincount(card_nodes(20)).tolist() == [8, 8, 4]
    assert fits(job("a", cards=16, runs=1), 20)
    assert not fits(job("a", cards=16, runs=1), 15)
    assert fits(job("a", cards=12, runs=1), 15)
    assert not fits(job("a", cards=8, runs=1), 7)


class Fixed(Planner):
    """Always the same moves."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves

    @override
    def plan(self, cluster: Cluster, now_us: int) -> Moves:
        return self._moves


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        (Moves([Start(0, np.array([0]))]), "asks 2 cards and is given 1"),
        (Moves([Start(0, np.array([0, 1])), Start(1, np.array([1]))]), "cards that others hold"),
        (Moves(), "2 jobs wait and nothing will happen"),
        (Moves(wake_us=0), "wants to be woken at 0"),
    ],
)
def test_a_planner_that_is_wrong_is_caught(moves: Moves, said: str) -> None:
    jobs = [job("a", cards=2, runs=10), job("b", runs=10)]
    with pytest.raises(AssertionError, match=said):
        Simulation(jobs, 2, COSTS, Fixed(moves)).run()


def test_a_job_that_leaves_is_not_stopped_again() -> None:
    simulation = Simulation([job("a", runs=200), job("b", at=1, runs=1)], 1, COSTS, Script({50: [0], 55: [0]}))
    assert simulation.run().lives[0].preemptions == 1


def test_a_victim_knows_for_whom_it_leaves() -> None:
    seen: list[int | None] = []

    class Watcher(Script):
        def plan(self, cluster: Cluster, now_us: int) -> Moves:
            seen.extend(attempt.leaving_for for attempt in cluster.running.values() if attempt.stopping)
            moves = super().plan(cluster, now_us)
            return Moves(moves.starts, [Stop(stop.job, for_job=1) for stop in moves.stops], moves.wake_us)

    jobs = [job("a", runs=200), job("b", at=1, runs=1), job("c", at=52, runs=1)]
    Simulation(jobs, 1, COSTS, Watcher({50: [0]})).run()
    assert seen == [1]
