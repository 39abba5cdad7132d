"""The picture of the demo: loss by step with checkpoints, death and resume, and steps by time with the gap between."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.transforms import blended_transform_factory

from deploy.demo.findings import COMPARED_LOSSES, Losses
from libs.cli import picture as picture_file

SIZE_INCHES = (11.0, 7.5)
ZOOM_STEPS = 40
FIRST, SECOND, UNINTERRUPTED = "#1f6fb4", "#2a9d57", "#8a8a8a"
DEATH, RESUME, CHECKPOINT = "#c8322b", "#2a9d57", "#e08a00"


@dataclass(frozen=True)
class Attempt:
    """One attempt as seen from outside: losses by step, and (seconds since submission, step) of its reports."""

    number: int
    node: str
    losses: Losses
    reports: list[tuple[float, int]]


@dataclass(frozen=True)
class Picture:
    """Everything the picture shows; times in seconds since submission."""

    attempts: list[Attempt]
    reference: Losses
    checkpoints: list[tuple[float, int]]
    killed_at_step: int
    killed_at_s: float
    lost_at_s: float
    resumed_from_step: int
    resumed_at_s: float
    max_loss_difference: float
    final_accuracy: float


def draw(picture: Picture, path: Path) -> None:
    """Write the picture as a PNG."""
    mpl.use("Agg")
    subplots: Any = plt.subplots  # matplotlib's types leave most of its arguments open
    figure, (upper, lower) = subplots(2, 1, figsize=SIZE_INCHES, height_ratios=(3, 2), layout="constrained")
    figure.suptitle("A training job that outlives its node", fontsize=15, fontweight="bold")
    _losses(upper, picture)
    _times(lower, picture)
    picture_file.save(figure, path)
    plt.close(figure)


def _losses(axes: Any, picture: Picture) -> None:
    _curves(axes, picture, (0, max(picture.reference)))
    _marks(axes, picture)
    axes.set_yscale("log")
    axes.set_xlabel("training step")
    axes.set_ylabel("loss (cross-entropy)")
    axes.set_xlim(0, max(picture.reference))
    axes.legend(loc="upper right", framealpha=0.95)
    same = f"the {COMPARED_LOSSES} losses after the resume differ from the uninterrupted run by"
    accuracy = f"accuracy on held-out digits {picture.final_accuracy:.1%}"
    axes.set_title(f"{same} at most {picture.max_loss_difference:.1g}; {accuracy}", fontsize=10)
    axes.grid(visible=True, which="major", alpha=0.25)
    _zoom(axes, picture)


def _curves(axes: Any, picture: Picture, span: tuple[int, int]) -> None:
    """The three curves over one another, the widest below, so that each stays visible where all are the same."""
    curves = [(picture.reference, UNINTERRUPTED, 4.0, 0.35, "uninterrupted run")]
    for attempt, colour, width in zip(picture.attempts, (FIRST, SECOND), (1.2, 0.7), strict=False):
        curves.append((attempt.losses, colour, width, 1.0, f"attempt {attempt.number} on {attempt.node}"))
    for losses, colour, width, alpha, label in curves:
        points = [(step, loss) for step, loss in sorted(losses.items()) if span[0] <= step <= span[1]]
        if points:
            steps, values = zip(*points, strict=True)
            axes.plot(steps, values, color=colour, linewidth=width, alpha=alpha, label=label)


def _zoom(axes: Any, picture: Picture) -> None:
    """The steps around the death and the resume, enlarged."""
    first, last = picture.resumed_from_step - ZOOM_STEPS, picture.killed_at_step + ZOOM_STEPS
    inset = axes.inset_axes((0.44, 0.60, 0.33, 0.33))
    _curves(inset, picture, (first, last))
    inset.axvline(picture.killed_at_step, color=DEATH, linewidth=1.3)
    inset.axvline(picture.resumed_from_step, color=RESUME, linewidth=1.3, linestyle="--")
    inset.set_yscale("log")
    inset.set_xlim(first, last)
    inset.tick_params(labelsize=8, which="both", labelleft=False)
    inset.set_title("around the death: steps done twice have the same loss twice", fontsize=8)


def _marks(axes: Any, picture: Picture) -> None:
    below = blended_transform_factory(axes.transData, axes.transAxes)
    committed = sorted({step for _, step in picture.checkpoints})
    heights = [0.03] * len(committed)
    axes.plot(
        committed, heights, "^", color=CHECKPOINT, transform=below, markersize=9, label="checkpoint", clip_on=False
    )
    axes.axvspan(picture.resumed_from_step, picture.killed_at_step, color=DEATH, alpha=0.08)
    death = f"node killed at step {picture.killed_at_step}"
    axes.axvline(picture.killed_at_step, color=DEATH, linewidth=1.6, label=death)
    resume = f"resumed from step {picture.resumed_from_step}"
    axes.axvline(picture.resumed_from_step, color=RESUME, linewidth=1.6, linestyle="--", label=resume)


def _times(axes: Any, picture: Picture) -> None:
    for attempt, colour in zip(picture.attempts, (FIRST, SECOND), strict=False):
        if attempt.reports:
            seconds, steps = zip(*attempt.reports, strict=True)
            axes.plot(seconds, steps, color=colour, linewidth=2, marker=".", markersize=4)
    seconds = [when for when, _ in picture.checkpoints]
    axes.plot(seconds, [step for _, step in picture.checkpoints], "^", color=CHECKPOINT, markersize=8)
    axes.axvspan(picture.killed_at_s, picture.resumed_at_s, color=DEATH, alpha=0.08)
    top = max(picture.reference)
    events = (
        (picture.killed_at_s, "killed", DEATH),
        (picture.lost_at_s, "declared lost", DEATH),
        (picture.resumed_at_s, "resumes", RESUME),
    )
    for when, words, colour in events:
        axes.axvline(when, color=colour, linewidth=1.3, linestyle="-" if words == "killed" else "--")
        axes.text(when, top * 0.97, f" {words} ", color=colour, rotation=90, va="top", ha="right", fontsize=9)
    axes.set_xlabel("seconds since the job was submitted")
    axes.set_ylabel("training step")
    axes.set_ylim(0, top * 1.03)
    axes.set_xlim(left=0)
    axes.grid(visible=True, alpha=0.25)
