"""`farside bench philly`: the scheduler's own plan over traces, beside the orders that it is compared with."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.replay import bench
from deploy.replay.bench import HEADERS, POLICIES, Order, replay
from deploy.replay.cli import progress
from deploy.replay.cluster import Cluster, Costs, Simulation
from deploy.replay.philly import SECOND_US, Job, read
from deploy.replay.plans import Decided, planner
from libs.cli import main
from libs.cli.errors import USAGE
from tests.data import public_data
from tests.unit.replay.traces import S, folder, job, row

COSTS = Costs(checkpoint_us=600 * S, grace_us=60 * S, restart_us=60 * S)
HOUR = 3600


def order(jobs: list[Job], cards: int, tenants: int = 2) -> Order:
    return Order(tuple(jobs), tuple(f"vc{at}" for at in range(tenants)), cards, COSTS)


def starts(jobs: list[Job], cards: int, policy: str) -> list[float]:
    """When each job first had its cards, in seconds."""
    asked = order(jobs, cards)
    lives = Simulation(jobs, cards, COSTS, planner(policy, jobs, cards, asked.tenants)).run().lives
    return [life.first_start_us / SECOND_US for life in lives]


QUEUE = [
    job("a-first", cards=6, runs=100),
    job("b-wide", at=1, cards=8, runs=300, tenant=1),
    job("c-short", at=2, cards=2, runs=50, tenant=1),
    job("d-long", at=3, cards=8, runs=400),
]


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        ("fifo", [0, 100, 400, 450]),  # what is wide blocks what is short
        ("shortest", [0, 100, 2, 400]),
        ("priority", [0, 500, 800, 100]),  # all of the first tenant goes before the second
    ],
)
def test_orders_have_known_answers(policy: str, known: list[float]) -> None:
    assert starts(QUEUE, 8, policy) == known


def test_strict_priority_preempts() -> None:
    jobs = [job("low", cards=8, runs=1000, tenant=1), job("high", at=10, cards=8, runs=100)]
    assert starts(jobs, 8, "priority") == [0, 10 + 60]
    assert starts(jobs, 8, "fifo") == [0, 1000]


def test_farside_gives_back_what_was_borrowed() -> None:
    jobs = [job("borrows", cards=8, runs=10 * HOUR), job("due", at=10, cards=4, runs=100, tenant=1)]
    assert starts(jobs, 8, "farside") == [0, 10 + 60]


def test_farside_lets_a_short_job_through_after_a_turn() -> None:
    jobs = [job("long", cards=8, runs=100 * HOUR), job("short", at=60, cards=8, runs=100)]
    assert starts(jobs, 8, "farside") == [0, 30 * HOUR // 8 + 60]


def many(count: int) -> list[Job]:
    """Jobs of two tenants in a fixed disorder, more than the cards can take at once."""
    sizes = (1, 2, 4, 8, 16, 1, 4)
    return [
        job(f"j{at:04}", at=(at * at * 37) % 5000, cards=sizes[at % 7], runs=60 + (at * 7919) % 9000, tenant=at % 2)
        for at in range(count)
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_job_is_lost_and_no_work_is_made_or_lost_unseen(policy: str) -> None:
    jobs = sorted(many(120), key=lambda one: one.arrival_us)
    its = replay(order(jobs, 20), policy)
    held = float(its.course.lasts_us @ its.course.held.sum(axis=1)) / SECOND_US / HOUR
    done = its.figures.done_card_hours
    assert done == pytest.approx(sum(one.cards * one.duration_us for one in jobs) / SECOND_US / HOUR, abs=0.001)
    assert held == pytest.approx(done + its.figures.lost_card_hours + its.figures.overhead_card_hours, abs=0.01)
    assert its.course.held.sum(axis=1).max() <= 20
    assert its.figures.placements == len(jobs) + its.figures.preemptions
    assert its.course.wanted[-1].tolist() == its.course.held[-1].tolist() == [0, 0]
    assert all(before < after for before, after in pairwise(its.course.at_us))


@pytest.mark.parametrize("policy", ["fifo", "priority", "shortest"])
def test_what_stands_behind_a_blocked_job_changes_nothing(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict orders are asked only of the jobs that can matter; asked of all that wait they decide the same."""
    asked = order(sorted(many(160), key=lambda one: one.arrival_us), 16)
    few = replay(asked, policy)
    lengths: list[int] = []

    def all_of_them(_self: Decided, cluster: Cluster, _running: object) -> list[int]:
        lengths.append(len(cluster.waiting))
        return list(cluster.waiting)

    monkeypatch.setattr(Decided, "_ahead", all_of_them)
    assert replay(asked, policy).figures == few.figures
    assert max(lengths) > 100


def test_each_tenth_of_the_jobs_is_told() -> None:
    said: list[str] = []
    replay(order(sorted(many(25), key=lambda one: one.arrival_us), 16), "fifo", said.append)
    assert said == [f"fifo       {tenth * 10:3} % of 25 jobs have ended" for tenth in range(1, 11)]


def test_the_same_trace_gives_the_same_figures() -> None:
    asked = order(sorted(many(80), key=lambda one: one.arrival_us), 16)
    first, second = replay(asked, "farside"), replay(asked, "farside")
    assert first.figures == second.figures
    assert first.waits_s == second.waits_s


def test_the_command_reports_every_policy(tmp_path: Path) -> None:
    rows = [row(steps="36000", at=f"{at * 60}.0", cards=f"{2 ** (at % 4)}") for at in range(12)]
    there = folder(tmp_path, {"a": rows, "b": [*rows, row(cards="64")]})
    result = CliRunner().invoke(
        main.cli, ["bench", "philly", "--traces", str(there), "--cards", "8", "--workers", "1", "--json"]
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["jobs"], report["refused_as_too_large"], report["tenants"]) == (24, 1, ["a", "b"])
    assert list(report["policies"]) == list(POLICIES)
    assert set(report["farside_to"]) == set(POLICIES) - {"farside"}
    fifo, own = report["policies"]["fifo"], report["policies"]["farside"]
    ratio = report["farside_to"]["fifo"]["wait_mean_s"]
    assert ratio == pytest.approx(own["wait"]["mean_s"] / fifo["wait"]["mean_s"], abs=1e-4)


def test_the_command_prints_a_table_and_draws(tmp_path: Path) -> None:
    there = folder(tmp_path, {"a": [row(cards="4"), row(at="1", cards="8")], "b": [row(cards="64")]})
    picture = tmp_path / "philly.png"
    arguments = [
        "--traces",
        str(there),
        "--cards",
        "8",
        "--policy",
        "farside",
        "--workers",
        "1",
        "--plot",
        str(picture),
    ]
    result = CliRunner().invoke(main.cli, ["bench", "philly", *arguments])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split("  ")[0] == HEADERS[0]
    assert sum(line.startswith("farside") for line in result.stdout.splitlines()) == 1
    assert "1 job larger than the cluster left out" in result.stderr
    assert "farside    100 % of" in result.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("rows", "cards", "said"),
    [
        ([row(), row(steps="many")], "8", "a.trace, line 2: total steps 'many' is no number"),
        ([row(cards="8")], "4", "--cards 4: none of 1 jobs fits"),
    ],
)
def test_the_command_names_what_is_wrong(tmp_path: Path, rows: list[str], cards: str, said: str) -> None:
    there = folder(tmp_path, {"a": rows})
    result = CliRunner().invoke(main.cli, ["bench", "philly", "--traces", str(there), "--cards", cards])
    assert result.exit_code == USAGE
    assert said in result.output


def test_policies_run_side_by_side_as_one_after_the_other(tmp_path: Path) -> None:
    there = folder(tmp_path, {"a": [row(cards="8"), row(cards="8")]})
    both = [bench.run(there, 8, COSTS, ("farside", "fifo"), workers, progress)[1] for workers in (1, 2)]
    for policy in ("farside", "fifo"):
        assert both[0][policy].figures == both[1][policy].figures


def test_farside_beats_fifo_on_the_first_weeks_of_philly() -> None:
    """The whole traces are for `farside bench philly`; these jobs take seconds."""
    trace = read(public_data("philly"))
    asked = Order(trace.jobs[:300], trace.tenants, 64, replace(COSTS, checkpoint_us=1800 * S))
    own, fifo = (replay(asked, policy).figures for policy in ("farside", "fifo"))
    assert own.wait.mean_s < fifo.wait.mean_s
    assert own.wait.p95_s < fifo.wait.p95_s
    assert own.completion.mean_s < fifo.completion.mean_s
    assert own.completion.p95_s < fifo.completion.p95_s
    assert own.jain > fifo.jain
    assert own.utilisation > fifo.utilisation - 0.005
