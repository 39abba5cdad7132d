"""What every benchmark relies on: rounds in turn, medians, ratios the right way round, one shape."""

import json
import subprocess
import sys

import pytest

from tests.bench.frame import ROOT, Case, interleaved, percentile, report

FIELDS = {"what", "value", "unit", "peers", "limit", "ratio", "ratio_to", "spread"}


async def test_measures_are_taken_in_turn() -> None:
    taken: list[str] = []

    async def measure(name: str) -> float:
        taken.append(name)
        return float(len(taken))

    values = await interleaved({"a": lambda: measure("a"), "b": lambda: measure("b")}, 2)
    assert taken == ["a", "b", "a", "b"]
    assert values == {"a": [1, 3], "b": [2, 4]}


def test_a_case_shows_medians_spread_and_its_ratio_to_a_peer() -> None:
    case = Case("what", "1/s", [30.0, 10.0, 20.00004], {"raw": [100.0, 80.0, 90.0]}, ratio_to="raw", more={"p99": 7})
    assert case.shown() == {
        "what": "what",
        "value": 20.0,
        "unit": "1/s",
        "peers": {"raw": 90.0},
        "limit": None,
        "ratio": 0.2222,
        "ratio_to": "raw",
        "spread": [10.0, 30.0],
        "p99": 7,
    }


@pytest.mark.parametrize(("lower_is_better", "ratio"), [(False, 0.5), (True, 2.0)])
def test_a_ratio_is_higher_when_farside_is_better(lower_is_better: bool, ratio: float) -> None:  # noqa: FBT001
    case = Case("what", "s", [5.0], limit=10.0, ratio_to="limit", lower_is_better=lower_is_better)
    assert case.shown()["ratio"] == ratio


def test_a_case_that_is_compared_with_nothing_has_no_ratio() -> None:
    assert Case("what", "s", [5.0]).shown()["ratio"] is None


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1)) == (50, 99, 100)
    assert percentile([7.0], 0.99) == 7


def test_a_report_says_what_was_measured_where() -> None:
    shown = report("bus", {"b": Case("what", "1/s", [1.0])})
    assert set(shown) == {"bench", "commit", "machine", "cases"}
    assert shown["machine"]["cores"] >= 1
    assert len(shown["commit"].rstrip("+")) == 12


@pytest.mark.timeout(300)
def test_the_bench_of_heartbeats_runs_and_calls_nobody_silent() -> None:
    command = [sys.executable, "-m", "tests.bench", "heartbeats", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert set(cases) == {"rate", "lag", "suspects", "most"}
    assert all(set(case) >= FIELDS for case in cases.values())
    assert cases["suspects"]["spread"] == [0, 0]
    assert all(cases[name]["value"] > 0 for name in ("rate", "lag", "most"))
    assert set(cases["rate"]["cores"]) == {"postgres", "nats", "scheduler", "inventory", "nodes"}


@pytest.mark.timeout(300)
def test_the_bench_of_the_bus_runs_and_prints_one_object() -> None:
    command = [sys.executable, "-m", "tests.bench", "bus", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert set(cases) == {"b", "c1", "c2", "lat1", "lat50"}
    assert all(set(case) >= FIELDS for case in cases.values())
    assert all(case["value"] > 0 for case in cases.values())
    assert {name: case["ratio_to"] for name, case in cases.items() if case["ratio"] is not None} == {
        "b": "raw fetch-100 + ack",
        "c1": "raw fetch-100 + ack",
        "c2": "raw durable publish, 256 in flight",
    }
