"""The frame of all benchmarks: interleaved rounds, medians, and one JSON object in the end.

What is compared is measured in the same rounds, one after another, so that a machine that gets slower meanwhile slows
all of it. `value` and the peers are medians over the rounds, `spread` the least and the greatest value, and a `ratio`
above 1 means that Farside is better than what it is compared with.
"""

import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
CPU_INFO = Path("/proc/cpuinfo")
DIGITS = 4

Measure = Callable[[], Awaitable[float]]
Samples = Mapping[str, list[float]]


@dataclass(frozen=True)
class Case:
    """One figure: what it is, its value in each round, and those of its peers.

    `ratio_to` names the peer (or `limit`) that it is compared with; `lower_is_better` says so of times. `more` is added
    to the common fields.
    """

    what: str
    unit: str
    values: list[float]
    peers: Samples = field(default_factory=dict[str, list[float]])
    limit: float | None = None
    ratio_to: str | None = None
    lower_is_better: bool = False
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def shown(self) -> dict[str, Any]:
        """The case in the common shape."""
        peers = {name: median(values) for name, values in self.peers.items()}
        return {
            "what": self.what,
            "value": short(median(self.values)),
            "unit": self.unit,
            "peers": {name: short(value) for name, value in peers.items()},
            "limit": self.limit,
            "ratio": self._ratio(peers),
            "ratio_to": self.ratio_to,
            "spread": [short(min(self.values)), short(max(self.values))],
            **self.more,
        }

    def _ratio(self, peers: Mapping[str, float]) -> float | None:
        if self.ratio_to is None:
            return None
        other = self.limit if self.ratio_to == "limit" else peers[self.ratio_to]
        assert other is not None, f"the case is compared with a limit and has none: {self.what}"
        value = median(self.values)
        return short(other / value if self.lower_is_better else value / other)


async def interleaved(measures: Mapping[str, Measure], rounds: int) -> dict[str, list[float]]:
    """The values of each measure, all of them taken in turn, `rounds` times."""
    taken: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(1, rounds + 1):
        for name, measure in measures.items():
            taken[name].append(await measure())
            say(f"round {number} of {rounds}  {name:<16}{taken[name][-1]:12,.4g}")
    return taken


def percentile(values: list[float], share: float) -> float:
    """The least value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def say(line: str) -> None:
    """Tell the progress."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def report(bench: str, cases: Mapping[str, Case]) -> dict[str, Any]:
    """What a benchmark prints."""
    return {
        "bench": bench,
        "commit": commit(),
        "machine": {"cpu": _cpu(), "cores": psutil.cpu_count() or 1},
        "cases": {name: case.shown() for name, case in cases.items()},
    }


def commit() -> str:
    """The commit that is checked out, with a `+` where files differ from it."""
    head, changes = _git("rev-parse", "--short=12", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    return f"{head}+" if changes else head


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _cpu() -> str:
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def short(value: float) -> float:
    """As many digits as mean something."""
    return float(f"{value:.{DIGITS}g}")
