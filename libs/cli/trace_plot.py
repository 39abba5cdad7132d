"""The picture of a journey: a waterfall with a colour for each service."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from libs.journey import Row, waterfall

DOTS_PER_INCH = 130
WIDTH_INCHES, ROW_INCHES, FRAME_INCHES = 13.0, 0.24, 1.6
MAX_ROWS = 400
NS = 1e9
# Below this part of the axis a bar could not be seen; a mark stands there as well.
VISIBLE = 0.004
ERROR = "#c8322b"
# Red is for errors.
NOT_RED = (0, 1, 2, 4, 5, 6, 7, 8, 9)


def draw(job_id: str, rows: Sequence[Row], file: Path) -> None:
    """Write the picture as a PNG; of more than MAX_ROWS rows the first ones."""
    mpl.use("Agg")
    shown = rows[:MAX_ROWS]
    subplots: Any = plt.subplots  # matplotlib's types leave most of its arguments open
    height = FRAME_INCHES + ROW_INCHES * len(shown)
    figure, axes = subplots(figsize=(WIDTH_INCHES, height), layout="constrained")
    palette = colours(shown)
    _bars(axes, shown, palette)
    patches = [Patch(color=colour, label=service) for service, colour in palette.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8, frameon=False)
    part = f" (the first {len(shown)} of {len(rows)} rows)" if len(shown) < len(rows) else ""
    axes.set_title(f"Journey of job {job_id}{part}", fontsize=11, fontweight="bold", loc="left")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=DOTS_PER_INCH)
    plt.close(figure)


def colours(rows: Sequence[Row]) -> dict[str, Any]:
    """A colour for each service, in order of their names."""
    palette: Any = mpl.colormaps["tab10"]
    services = enumerate(sorted({row.service for row in rows}))
    return {service: palette(NOT_RED[index % len(NOT_RED)]) for index, service in services}


def _bars(axes: Any, rows: Sequence[Row], palette: dict[str, Any]) -> None:
    first, end = waterfall.span_of(rows) if rows else (0, 1)
    length_s = max(1, end - first) / NS
    for line, row in enumerate(rows):
        start_s = min((row.start_ns - first) / NS, length_s)
        duration_s = min(max(0, row.end_ns - row.start_ns) / NS, length_s - start_s)
        style: dict[str, Any] = {"hatch": "////", "alpha": 0.45} if row.state else {}
        colour = palette[row.service]
        edge = ERROR if row.error else colour
        axes.barh(line, duration_s, left=start_s, height=0.62, color=colour, edgecolor=edge, **style)
        if duration_s < VISIBLE * length_s:
            marker = ">" if row.start_ns > end else "|"
            axes.plot([start_s], [line], marker, color=edge, markersize=8, markeredgewidth=2)
        _label(axes, line, (start_s, start_s + duration_s, length_s), row)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(-0.01 * length_s, 1.01 * length_s)
    axes.set_yticks(range(len(rows)), [waterfall.told(row) for row in rows], fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("seconds since the submission", fontsize=8)
    axes.grid(visible=True, axis="x", alpha=0.25)


def _label(axes: Any, line: int, where: tuple[float, float, float], row: Row) -> None:
    """Node and duration beside the bar, on the side that has room."""
    start_s, end_s, length_s = where
    text = " ".join(part for part in (row.node, waterfall.duration(row.duration_ms)) if part)
    right = end_s <= 0.8 * length_s
    gap = 0.006 * length_s
    position = end_s + gap if right else start_s - gap
    axes.text(position, line, text, va="center", ha="left" if right else "right", fontsize=7, color="#444444")
