"""The picture of a replay: how long jobs waited under each policy, and how many cards were in use over time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from deploy.replay.bench import DAY_S, HOUR_S, Replay
from deploy.replay.figures import Floats
from deploy.replay.philly import SECOND_US
from libs.cli import picture as picture_file

SIZE_INCHES = (11.0, 8.0)
COLOURS = {"farside": "#1f6fb4", "fifo": "#8a8a8a", "priority": "#e08a00", "shortest": "#2a9d57"}
LEAST_WAIT_H = 0.01
MOMENTS = 1500


def draw(replays: Mapping[str, Replay], cards: int, path: Path) -> None:
    """Write the picture."""
    mpl.use("Agg")
    subplots: Any = plt.subplots  # matplotlib's types leave most of its arguments open
    figure, (upper, lower) = subplots(2, 1, figsize=SIZE_INCHES, layout="constrained")
    figure.suptitle(f"Philly's traces on {cards} cards", fontsize=14, fontweight="bold")
    for name, one in replays.items():
        _waits(upper, name, one)
        _cards(lower, name, one)
    upper.set(xscale="log", xlabel="hours without cards", ylabel="part of all jobs", ylim=(0, 1.01))
    upper.set_title(f"waits; those below {LEAST_WAIT_H} h stand at the left edge", fontsize=10)
    lower.set(xlabel="days", ylabel="cards in use")
    lower.set_title("cards in use, means over equal spans", fontsize=10)
    lower.axhline(cards, color="#c8322b", linewidth=0.8, linestyle="--")
    for axes in (upper, lower):
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=9)
    picture_file.save(figure, path)
    plt.close(figure)


def _waits(axes: Any, name: str, one: Replay) -> None:
    hours = np.maximum(np.sort(np.array(one.waits_s)) / HOUR_S, LEAST_WAIT_H)
    axes.step(hours, np.arange(1, len(hours) + 1) / len(hours), where="post", color=COLOURS[name], label=name)


def _cards(axes: Any, name: str, one: Replay) -> None:
    """Means over spans: the integral of the step function at their edges, and its differences."""
    at_us, held = one.course.at_us.astype(np.float64), one.course.held.sum(axis=1)
    integral = np.append(0.0, np.cumsum(held[:-1] * np.diff(at_us)))
    edges: Floats = np.linspace(float(at_us[0]), float(at_us[-1]), MOMENTS + 1)
    means = np.diff(np.interp(edges, at_us, integral)) / np.diff(edges)
    axes.plot(edges[1:] / SECOND_US / DAY_S, means, color=COLOURS[name], linewidth=0.9, label=name)
