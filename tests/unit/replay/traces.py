"""Jobs in few words, planners that are told what to do, and folders of traces made by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from deploy.replay.cluster import Cluster, Costs, Moves, Start, Stop
from deploy.replay.philly import RATES_FILE, SECOND_US, Job
from services.scheduler.core.arrays import Ints

S = SECOND_US
COSTS = Costs(checkpoint_us=100 * S, grace_us=10 * S, restart_us=5 * S)


def job(name: str, *, at: int = 0, cards: int = 1, runs: int, tenant: int = 0) -> Job:
    """Times in seconds."""
    return Job(name, tenant, cards, at * S, runs * S)


class Script:
    """Starts whatever fits in order of arrival, and stops jobs at the times that it is told: second -> jobs."""

    def __init__(self, stops: Mapping[int, Sequence[int]] | None = None) -> None:
        self._stops = {} if stops is None else {at * S: list(jobs) for at, jobs in stops.items()}

    def plan(self, cluster: Cluster, now_us: int) -> Moves:
        free: Ints = np.flatnonzero(cluster.card_free)
        starts: list[Start] = []
        for waiting in sorted(cluster.waiting):
            cards = cluster.jobs[waiting].cards
            if len(free) >= cards:
                starts.append(Start(waiting, free[:cards]))
                free = free[cards:]
        stops = [Stop(stopped) for stopped in self._stops.pop(now_us, [])]
        return Moves(starts, stops, min((at for at in self._stops if at > now_us), default=None))


def row(job_type: str = "LM", *, steps: str = "100", at: str = "0.0", cards: str = "1") -> str:
    return f"{job_type}\tpython3 train.py\t-n\t1\t{steps}\t{at}\t{cards}"


def folder(path: Path, traces: Mapping[str, Sequence[str]], rates: Mapping[str, float] | None = None) -> Path:
    """A folder with these trace files; jobs of type LM do 10 steps a second on one card, if nothing else is told."""
    for name, rows in traces.items():
        (path / f"{name}.trace").write_text("".join(f"{line}\n" for line in rows))
    entries = {key: {"null": rate} for key, rate in (rates or {"('LM', 1)": 10.0}).items()}
    (path / RATES_FILE).write_text(json.dumps({"v100": entries}))
    return path
