"""The picture of a journey: every label can be read."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from matplotlib import pyplot as plt

from libs.cli import trace_plot
from libs.journey import Row

NODES = ", ".join(f"node-{number}" for number in range(20))
SECOND = 10**9


def row(start: float, end: float, node: str = "node-1", service: str = "agent") -> Row:
    return Row(round(start * SECOND), round(end * SECOND), service, node, "x", "run attempt 1", state="killed")


def draw(rows: list[Row]) -> Any:
    [axes] = trace_plot.figure_of("a job", rows).axes
    return axes


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.mark.parametrize("count", [20, 60])
def test_no_label_lies_over_another_or_over_the_names_of_rows(count: int) -> None:
    spots = [(0, 100), (0, 99), (1, 100), (50, 99), (98, 100), (0, 0), (100, 100), (30, 40)]
    rows = [row(*spots[index % 8], node="node-1" if index % 3 else NODES) for index in range(count)]
    axes = draw(rows)
    inside, labels = axes.get_window_extent(), [text.get_window_extent() for text in axes.texts]
    assert len(labels) == count
    assert all(inside.x0 <= label.x0 and label.x1 <= inside.x1 for label in labels)
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(labels))
    assert max(tick.get_window_extent().x1 for tick in axes.get_yticklabels()) < inside.x0


def test_a_long_journey_counts_in_larger_units() -> None:
    for length, unit in ((100, "seconds"), (1000, "minutes"), (20_000, "hours")):
        assert draw([row(0, length)]).get_xlabel() == f"{unit} since the submission"


def test_ten_services_have_ten_colours() -> None:
    palette = trace_plot.colours([row(0, 1, service=f"service-{number}") for number in range(10)])
    assert len(set(palette.values())) == 10
