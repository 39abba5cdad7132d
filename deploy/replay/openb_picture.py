"""The picture of a replay of an openb trace: what stays unallocated while more and more arrives."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from deploy.replay.openb_bench import PERCENT, Run
from libs.cli import picture as picture_file

SIZE_INCHES = (10.0, 6.0)
COLOURS = {"farside": "#1f6fb4", "fgd": "#e08a00", "bestfit": "#2a9d57", "random": "#8a8a8a"}
SHOWN_FROM, TOP = 60, 42.0


def draw(done: Mapping[str, Sequence[Run]], title: str, path: Path) -> None:
    """Write the picture: medians over the seeds, with a band from the least to the greatest."""
    mpl.use("Agg")
    subplots: Any = plt.subplots  # matplotlib's types leave most of its arguments open
    figure, axes = subplots(figsize=SIZE_INCHES, layout="constrained")
    for name, several in done.items():
        curves = np.array([one.unallocated for one in several])
        arrived, colour = list(range(PERCENT + 1)), COLOURS.get(name)
        middle = np.median(curves, axis=0)
        axes.plot(arrived, middle, color=colour, label=f"{name}: {middle[-1]:.2f} % at {PERCENT} %")
        axes.fill_between(arrived, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.2, linewidth=0)
    arrived = list(range(PERCENT + 1))
    axes.plot(
        arrived,
        [max(0, 100 - part) for part in arrived],
        color="#444444",
        linewidth=0.8,
        linestyle="--",
        label="all placed",
    )
    axes.set(xlim=(SHOWN_FROM, PERCENT), ylim=(0, TOP), xlabel="arrived demand, % of the cards")
    axes.set(ylabel="unallocated, % of the cards", title=f"{title}: {max(map(len, done.values()))} seeds")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    picture_file.save(figure, path)
    plt.close(figure)
