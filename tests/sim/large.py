"""One large world: many nodes, very many jobs, few faults, and figures of how it went.

Jobs come one by one as they are due and are dropped to counters some minutes after their end, their sums checked; so
memory holds what is alive and little else.
"""

import gc
import resource
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np

from contracts.base import Priority, Tier
from contracts.jobs import JobSpec
from services.scheduler.core.model import Job
from services.scheduler.core.quota import Quotas, Tenant
from tests.sim.faults import Rates
from tests.sim.loop import SECOND
from tests.sim.machine import Work
from tests.sim.names import job_id, job_number
from tests.sim.quick import quick_replace
from tests.sim.settings import Times
from tests.sim.story import Broken
from tests.sim.workload import KINDS, Ask, Scene, Trouble, node
from tests.sim.world import World

TENANTS = 50
CARDS = 8
CHUNK = 4096
TOLD_MS = 300 * SECOND
BEGIN_MS = 60 * SECOND
MOST_MS = 30 * 24 * 3600 * SECOND
LONGEST_S = 3600
MEDIAN_S = 120
SPREAD = 0.9
CLOSING_MS = 2000
TROUBLE_SHARE = 0.03  # of the nodes, for each hour that jobs come in
RARE = Rates(
    drop=2e-4,
    duplicate=5e-4,
    delay=5e-4,
    rollback=2e-4,
    ack_lost=2e-4,
    republish=2e-4,
    request_lost=5e-4,
    reply_lost=5e-4,
    store_away=1e-3,
    slow_plan=0.01,
    outbox_slow=5e-4,
)
LARGE = Times(
    heartbeat_s=60,
    suspect_s=180,
    lease_s=240,
    tick_s=30,
    cycle_s=5,
    usage_period_s=3600,
    reconcile_grace_s=60,
    keep_s=300,
)
# cards of each member, thousandths of a card, members, processors, how many of a hundred jobs are like that
SHAPES = (
    (1, 1000, 1, 4000, 46),
    (1, 500, 1, 2000, 14),
    (1, 250, 1, 1000, 8),
    (2, 1000, 1, 8000, 14),
    (4, 1000, 1, 16_000, 8),
    (8, 1000, 1, 32_000, 5),
    (8, 1000, 2, 32_000, 3),
    (1, 1000, 4, 4000, 2),
)


@dataclass(frozen=True)
class Size:
    """How large the world is; `load` is what is asked of the cards as a share of all."""

    nodes: int
    jobs: int
    seed: int
    load: float


class LargeRun:
    """Runs one large world; `tell` hears of progress."""

    def __init__(self, size: Size, tell: Callable[[str], None]) -> None:
        self._size = size
        self._tell = tell
        self._rng = np.random.Generator(np.random.PCG64(size.seed))
        self._waits = array("I", bytes(4 * (size.jobs + 1)))
        self._templates = _templates()
        self._gap_ms = _mean_card_ms() / (size.nodes * CARDS * size.load)
        self._last_ms = BEGIN_MS + int(self._gap_ms * size.jobs)
        self._begun = 0
        self._next_ms = float(BEGIN_MS)
        self._drawn: list[tuple[int, int, float, float, float]] = []
        self._busy_ms = 0.0
        self._world = World(self._scene(), size.seed, rates=RARE, times=LARGE, silent=True, lean=True)
        self._world.truth.waited = self._waited

    def run(self) -> dict[str, Any]:
        """All jobs until they have ended; the figures."""
        gc.disable()  # there are no cycles to speak of, and millions of rows to look through
        began, world = process_time(), self._world
        world.plan()
        world.loop.at(BEGIN_MS, self._arrive)
        world.loop.after(TOLD_MS, self._progress, began)
        broken: list[str] = []
        try:
            with quick_replace():
                while self._begun < self._size.jobs or world.truth.finished < self._size.jobs:
                    if not world.loop.step(MOST_MS):
                        break
                world.truth.all_ended(world.scheduler.jobs)
                world.settle()
        except Broken as error:
            broken.append(str(error))
        finally:
            gc.enable()
        return self._figures(process_time() - began, broken)

    def _scene(self) -> Scene:
        wide = Quotas(10**16, self._size.nodes * CARDS, 10**6, Priority.ONLINE, guarantee=self._size.nodes // TENANTS)
        tenants = {f"t{number}": Tenant(f"t{number}", 1, wide) for number in range(TENANTS)}
        nodes = tuple(node(number, Tier.CENTRAL, CARDS) for number in range(1, self._size.nodes + 1))
        hours = self._last_ms / (3600 * SECOND)
        troubles = [self._trouble(nodes) for _ in range(int(self._size.nodes * TROUBLE_SHARE * hours))]
        return Scene(nodes, tenants, (), {}, tuple(sorted(troubles, key=lambda one: (one.at_ms, one.name))), {})

    def _trouble(self, nodes: tuple[Any, ...]) -> Trouble:
        rng = self._rng
        kind, whom = KINDS[int(rng.integers(len(KINDS)))], nodes[int(rng.integers(len(nodes)))].node
        return Trouble(int(rng.integers(BEGIN_MS, self._last_ms)), kind, whom, int(rng.integers(2, 600)) * SECOND)

    # ---- jobs

    def _arrive(self) -> None:
        """Submit what is due, and wait for the next."""
        world, now_ms = self._world, self._world.loop.now_ms
        while self._begun < self._size.jobs and self._next_ms <= now_ms:
            self._submit()
        if self._begun < self._size.jobs:
            world.loop.at(int(self._next_ms) + 1, self._arrive)
        else:
            self._busy_ms = world.truth.given_ms / 1e6

    def _submit(self) -> None:
        if not self._drawn:
            self._draw()
        shape, tenant, runs_ms, gap, chance = self._drawn.pop()
        self._begun += 1
        self._next_ms += gap
        number = self._begun
        spec = self._templates[shape][tenant].model_copy(update={"job_id": job_id(number), "name": f"job-{number}"})
        steps = 20
        work = Work(steps, max(1, int(runs_ms / steps)), 7 if chance < 0.1 else 0, 0, CLOSING_MS)
        self._world.works[spec.job_id] = work
        self._world.ask(Ask(self._world.loop.now_ms, "submit", number, spec))

    def _draw(self) -> None:
        rng = self._rng
        weights = np.array([shape[-1] for shape in SHAPES], dtype=np.float64)
        shapes = rng.choice(len(SHAPES), CHUNK, p=weights / weights.sum())
        runs_ms = np.minimum(rng.lognormal(np.log(MEDIAN_S), SPREAD, CHUNK), LONGEST_S - 60) * 1000
        gaps, chances = rng.exponential(self._gap_ms, CHUNK), rng.random(CHUNK)
        tenants = rng.integers(0, TENANTS, CHUNK)
        columns = (shapes.tolist(), tenants.tolist(), runs_ms.tolist(), gaps.tolist(), chances.tolist())
        self._drawn = list(zip(*columns, strict=True))

    def _waited(self, job: Job, ms: int) -> None:
        self._waits[job_number(job.spec.job_id)] = ms + 1

    # ---- figures

    def _progress(self, began: float) -> None:
        world = self._world
        truth, scheduler = world.truth, world.scheduler
        self._tell(
            f"{world.loop.now_ms / SECOND:.0f} s: {self._begun} jobs came, {truth.finished} ended, "
            f"{len(scheduler.queue)} wait, {truth.given / 1e6:.0f} cards given, {world.cycle.plans} plans in "
            f"{world.cycle.spent_s:.0f} s; {process_time() - began:.0f} s of processor, {_peak_mib()} MiB"
        )
        gc.collect()
        world.loop.after(TOLD_MS, self._progress, began)

    def _figures(self, cpu_s: float, broken: list[str]) -> dict[str, Any]:
        world, size = self._world, self._size
        truth, cycle = world.truth, world.cycle
        came_ms = max(1, self._last_ms - BEGIN_MS)
        waits = np.frombuffer(self._waits, dtype=np.uint32)
        waited = waits[waits > 0].astype(np.float64) / SECOND
        return {
            "nodes": size.nodes,
            "cards": size.nodes * CARDS,
            "jobs": size.jobs,
            "seed": size.seed,
            "load": size.load,
            "broken": broken,
            "ended": dict(sorted(truth.ended.items())),
            "virtual_s": world.loop.now_ms // SECOND,
            "utilisation": round(self._busy_ms / (size.nodes * CARDS * came_ms), 4),
            "wait_s": _spread(waited),
            "preemptions": truth.preemptions,
            "preempted_for": dict(sorted(cycle.whys.items())),
            "resumed": truth.resumed,
            "decide": {
                "calls": cycle.plans,
                "cpu_s": round(cycle.spent_s, 1),
                "worst_s": round(cycle.worst_s, 3),
                "most_waiting": cycle.waiting,
                "placed": cycle.placed,
                "stale": cycle.stale,
            },
            "faults": len(world.faults.fired),
            "samples": world.metering.totals.samples,
            "gpu_hours": round(world.metering.totals.gpu_ms / 3.6e6, 1),
            "refused_rows": dict(sorted(world.metering.faults.items())),
            "invariants": dict(sorted(truth.checked.items())),
            "acts": world.loop.acts,
            "cpu_s": round(cpu_s, 1),
            "peak_mib": _peak_mib(),
        }


def _spread(values: "np.ndarray[Any, np.dtype[np.float64]]") -> dict[str, float]:
    if not len(values):
        return {}
    half, most = np.percentile(values, (50, 95)).tolist()
    return {"mean": round(float(values.mean()), 3), "p50": round(half, 3), "p95": round(most, 3)}


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _templates() -> list[list[JobSpec]]:
    """One description a shape and tenant; a job is one of them under its own id."""
    found: list[list[JobSpec]] = []
    for cards, milli, members, cpu_milli, _ in SHAPES:
        asked: dict[str, Any] = {"cards": cards, "cpu_milli": cpu_milli // 10}
        if milli < 1000:
            asked["share_milli"] = milli
        fields: dict[str, Any] = {
            "job_id": job_id(0),
            "name": "job",
            "kind": "training",
            "command": ["python"],
            "resources": asked,
            "members": members,
            "max_runtime_s": LONGEST_S,
            "retries": 3,
            "preemptible": members == 1,
            "checkpoint": {"interval_steps": 7},
        }
        first = JobSpec.model_validate({**fields, "tenant": "t0"})
        found.append([first.model_copy(update={"tenant": f"t{number}"}) for number in range(TENANTS)])
    return found


def _mean_card_ms() -> float:
    """Card-milliseconds that a job takes on average, its longest run left aside."""
    cards = sum(cards * milli / 1000 * members * weight for cards, milli, members, _, weight in SHAPES)
    return cards / 100 * MEDIAN_S * SECOND * float(np.exp(SPREAD**2 / 2))
