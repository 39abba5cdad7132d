"""The picture of a journey: a waterfall with a colour for each service."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from libs.cli import picture
from libs.journey import Row, waterfall

WIDTH_INCHES, ROW_INCHES, FRAME_INCHES = 13.0, 0.24, 1.6
MAX_ROWS, LONGEST_WORDS, LONGEST_NODES, LEGEND_COLUMNS = 400, 60, 40, 8
NS = 1e9
# Below this part of the axis a bar could not be seen; a mark stands there as well.
VISIBLE = 0.004
GAP = 0.009
ERROR, GREY = "#c8322b", "#444444"
# Red is for errors.
NOT_RED = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#222222")
# The axis counts in the largest unit of which it shows at least this many.
UNITS, AT_LEAST = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0)), 3


def draw(job_id: str, rows: Sequence[Row], file: Path) -> None:
    """Write the picture; of more than MAX_ROWS rows the first ones."""
    mpl.use("Agg")
    figure = figure_of(job_id, rows)
    picture.save(figure, file)
    plt.close(figure)


def figure_of(job_id: str, rows: Sequence[Row]) -> Any:
    """The picture as a figure of matplotlib."""
    shown = rows[:MAX_ROWS]
    subplots: Any = plt.subplots  # matplotlib's types leave most of its arguments open
    height = FRAME_INCHES + ROW_INCHES * len(shown)
    figure, axes = subplots(figsize=(WIDTH_INCHES, height), layout="constrained")
    palette = colours(shown)
    labels = _bars(axes, shown, palette)
    patches = [Patch(color=colour, label=service) for service, colour in palette.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=LEGEND_COLUMNS, fontsize=8, frameon=False)
    part = f" (the first {len(shown)} of {len(rows)} rows)" if len(shown) < len(rows) else ""
    axes.set_title(f"Journey of job {job_id}{part}", fontsize=11, fontweight="bold", loc="left")
    figure.draw_without_rendering()
    for label, bar in labels:
        _move_into(axes, label, bar)
    return figure


def colours(rows: Sequence[Row]) -> dict[str, str]:
    """A colour for each service, in order of their names."""
    services = enumerate(sorted({row.service for row in rows}))
    return {service: NOT_RED[index % len(NOT_RED)] for index, service in services}


def _bars(axes: Any, rows: Sequence[Row], palette: dict[str, str]) -> list[tuple[Any, tuple[float, float]]]:
    """The bars; returned are their labels, each with start and end of its bar."""
    first, end = waterfall.span_of(rows) if rows else (0, 1)
    unit, seconds = _unit(max(1, end - first) / NS)
    scale, length = NS * seconds, max(1, end - first) / (NS * seconds)
    labels: list[tuple[Any, tuple[float, float]]] = []
    for line, row in enumerate(rows):
        start = min((row.start_ns - first) / scale, length)
        extent = min(max(0, row.end_ns - row.start_ns) / scale, length - start)
        style: dict[str, Any] = {"hatch": "////", "alpha": 0.45} if row.state else {}
        edge = ERROR if row.error else palette[row.service]
        axes.barh(line, extent, left=start, height=0.62, color=palette[row.service], edgecolor=edge, **style)
        if extent < VISIBLE * length:
            marker = ">" if row.start_ns > end else "|"
            axes.plot([start], [line], marker, color=edge, markersize=8, markeredgewidth=2)
        text = axes.text(start + extent + GAP * length, line, _label(row), va="center", fontsize=7, color=GREY)
        text.set_in_layout(False)
        labels.append((text, (start, start + extent)))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(-0.01 * length, 1.01 * length)
    axes.set_yticks(range(len(rows)), [_short(waterfall.told(row), LONGEST_WORDS) for row in rows], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel(f"{unit} since the submission", fontsize=8)
    axes.grid(visible=True, axis="x", alpha=0.25)
    return labels


def _unit(length_s: float) -> tuple[str, float]:
    return next((unit for unit in UNITS if length_s >= AT_LEAST * unit[1]), UNITS[-1])


def _label(row: Row) -> str:
    """Node and duration."""
    return " ".join(part for part in (_short(row.node, LONGEST_NODES), waterfall.duration(row.duration_ms)) if part)


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _move_into(axes: Any, label: Any, bar: tuple[float, float]) -> None:
    """A label stands behind its bar; without room there before it, and without room there too on the bar."""
    inside, gap = axes.get_window_extent(), label.get_position()[0] - bar[1]
    if label.get_window_extent().x1 <= inside.x1:
        return
    label.set(x=bar[0] - gap, ha="right")
    if label.get_window_extent().x0 < inside.x0:
        label.set(x=bar[1] - gap, bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.0})
