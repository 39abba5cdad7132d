"""Planner: how far its predictions are from what was published, in per cent; nothing is timed here.

`time` are iteration seconds on A100, `left_out` the same for each model under constants fitted on the others, `memory`
GiB a card, `rank` the worst place of a published H100 layout in its plan, `zero3` TP and PP beside sharded data.
"""

import pytest

from libs.cli.errors import FileError
from tests.bench.frame import Case, short
from tests.unit.planner.errors import left_out, memory_errors, ptdp_and_zero3, ranked, timing_errors
from tests.unit.planner.published import rows

TIMES = "iteration_seconds_a100.csv"
TOP = 20


async def run(*, quick: bool) -> dict[str, Case]:
    """Every case; `quick` makes no difference to what takes a second."""
    del quick
    try:
        return {
            "time": _errors("iteration seconds, mean error", list(timing_errors(rows(TIMES))), 5),
            "left_out": _errors("the same, of models not fitted on", _left_out(), None),
            "memory": _errors("GiB a card, mean error", _memory(), 10),
            "rank": _rank(),
            "tflops": _errors("TFLOP/s of H100 layouts, mean error", [ranked(row, TOP).error for row in _h100()], None),
            "zero3": _zero3(),
        }
    except pytest.skip.Exception as missing:
        raise FileError(str(missing)) from None


def _h100() -> list[dict[str, str]]:
    return rows("megatron_h100.csv")


def _errors(what: str, errors: list[float], limit: float | None) -> Case:
    """The mean of absolute errors, with each of them and the worst."""
    sizes = [100 * abs(error) for error in errors]
    more = {"worst": short(max(sizes)), "rows": [short(100 * error) for error in errors]}
    to = "limit" if limit is not None else None
    return Case(what, "%", [sum(sizes) / len(sizes)], limit=limit, ratio_to=to, lower_is_better=True, more=more)


def _left_out() -> list[float]:
    return [error for row in rows(TIMES) for error in left_out(row["model"])]


def _memory() -> list[float]:
    configs = {row["model"]: row for row in rows(TIMES)}
    return [error for row in rows("memory_gib_a100.csv") for error in memory_errors(configs[row["model"]], row)]


def _rank() -> Case:
    places = [float(ranked(row, TOP).place or TOP + 1) for row in _h100()]
    what = "place of a published H100 layout in its plan, the worst"
    return Case(what, "place", [max(places)], limit=3, ratio_to="limit", lower_is_better=True, more={"rows": places})


def _zero3() -> Case:
    found = [ptdp_and_zero3(row) for row in rows("ptdp_vs_zero3_a100.csv")]
    more = {"rows": [[short(ptdp), short(zero3)] for ptdp, zero3 in found]}
    what = "TFLOP/s with TP and PP over those with ZeRO-3, the least"
    return Case(what, "", [min(ptdp / zero3 for ptdp, zero3 in found)], limit=1, ratio_to="limit", more=more)
