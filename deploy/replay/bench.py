"""The replay of Philly's traces under each policy, and what it comes to: one JSON object, or a table for people."""

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.replay.cluster import Cluster, Costs, Simulation, fits
from deploy.replay.figures import Curves, Figures, curves, figures
from deploy.replay.philly import Job, Trace, read
from deploy.replay.plans import TERMS, planner
from libs.cli.errors import FileError

OWN = "farside"
POLICIES = tuple(TERMS)
RATIO_DECIMALS = 4
COMPARED = (("wait", "mean_s"), ("wait", "p95_s"), ("completion", "mean_s"), ("completion", "p95_s"))
HEADERS = (
    *("POLICY", "WAIT MEAN", "MEDIAN", "P95", "MAX", "COMPLETION MEAN", "MEDIAN", "P95"),
    *("USED", "MAKESPAN", "JAIN", "JAIN(SLOWDOWN)", "PREEMPTIONS", "LOST", "SIM"),
)
HOUR_S, DAY_S = 3600, 86_400
STEP_PCT = 10

Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What is to be replayed: jobs that the cluster can hold, its cards, and what an interruption costs."""

    jobs: tuple[Job, ...]
    tenants: tuple[str, ...]
    cards: int
    costs: Costs


@dataclass(frozen=True)
class Replay:
    """One policy's replay: figures, the course of cards, waits in seconds, and what it took to compute them."""

    figures: Figures
    course: Curves
    waits_s: tuple[float, ...]
    decisions: int
    sim_wall_s: float
    sim_cpu_s: float


def order(trace: Trace, cards: int, costs: Costs) -> Order:
    """What the cluster can hold of the trace. Raises FileError if that is nothing."""
    jobs = tuple(job for job in trace.jobs if fits(job, cards))
    if not jobs:
        msg = f"--cards {cards}: none of {len(trace.jobs)} jobs fits even when all cards are free: give more cards"
        raise FileError(msg)
    return Order(jobs, trace.tenants, cards, costs)


def replay(order: Order, policy: str, say: Say | None = None) -> Replay:
    """Run the trace under one policy; `say` is told at each tenth of the jobs."""
    began, began_cpu = time.perf_counter(), time.process_time()
    asked = planner(policy, order.jobs, order.cards, order.tenants)
    simulation = Simulation(order.jobs, order.cards, order.costs, asked, on_end=tenths(policy, len(order.jobs), say))
    cluster = simulation.run()
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    tenants = len(order.tenants)
    course = curves(cluster, tenants)
    took = round(wall_s, 3), round(cpu_s, 3)
    return Replay(figures(cluster, tenants), course, waits(cluster), simulation.decisions, *took)


def tenths(policy: str, jobs: int, say: Say | None) -> Callable[[int], None] | None:
    """What says after each tenth of the jobs how many have ended."""
    if say is None:
        return None
    told = 0

    def left(count: int) -> None:
        nonlocal told
        ended_pct = (jobs - count) * 100 // jobs
        if ended_pct >= told + STEP_PCT:
            told = ended_pct - ended_pct % STEP_PCT
            say(f"{policy:<10} {told:3} % of {jobs:,} jobs have ended")

    return left


def waits(cluster: Cluster) -> tuple[float, ...]:
    """How long each job was without cards, in seconds, in order of arrival."""
    return tuple(
        (life.ended_us - job.arrival_us - life.held_us) / 1_000_000
        for job, life in zip(cluster.jobs, cluster.lives, strict=True)
    )


def run(
    folder: Path, cards: int, costs: Costs, policies: Sequence[str], workers: int, say: Say
) -> tuple[Any, dict[str, Replay]]:
    """Replay a folder of traces under some policies, as many at a time as there are workers: report and replays."""
    trace = read(folder)
    asked = order(trace, cards, costs)
    replays = dict(zip(policies, _all(asked, policies, min(workers, len(policies)), say), strict=True))
    return report(asked, len(trace.jobs), replays), replays


def _all(asked: Order, policies: Sequence[str], workers: int, say: Say) -> list[Replay]:
    if workers == 1:
        return [replay(asked, policy, say) for policy in policies]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(replay, [asked] * len(policies), policies, [say] * len(policies)))


def report(asked: Order, jobs: int, replays: Mapping[str, Replay]) -> dict[str, Any]:
    """The JSON object; `farside_to` are Farside's times over those of the others: below 1 it is better."""
    own = replays.get(OWN)
    others = {} if own is None else {name: other for name, other in replays.items() if name != OWN}
    work_us = sum(job.cards * job.duration_us for job in asked.jobs)
    span_us = max(job.arrival_us for job in asked.jobs) - asked.jobs[0].arrival_us
    return {
        "cards": asked.cards,
        "tenants": list(asked.tenants),
        "guarantee_cards": asked.cards / len(asked.tenants),
        "jobs": len(asked.jobs),
        "refused_as_too_large": jobs - len(asked.jobs),
        "load": round(work_us / (span_us * asked.cards), RATIO_DECIMALS) if span_us else None,
        "costs_s": {name.removesuffix("_us"): value / 1_000_000 for name, value in asdict(asked.costs).items()},
        "policies": {name: _policy(one) for name, one in replays.items()},
        "farside_to": {name: _ratios(own.figures, other.figures) for name, other in others.items()} if own else {},
    }


def _policy(one: Replay) -> dict[str, Any]:
    return {**asdict(one.figures), "decisions": one.decisions, "sim_wall_s": one.sim_wall_s, "sim_cpu_s": one.sim_cpu_s}


def _ratios(own: Figures, other: Figures) -> dict[str, float | None]:
    pairs = {f"{what}_{part}": (_time(own, what, part), _time(other, what, part)) for what, part in COMPARED}
    return {name: round(mine / its, RATIO_DECIMALS) if its else None for name, (mine, its) in pairs.items()}


def _time(one: Figures, what: str, part: str) -> float:
    return float(getattr(getattr(one, what), part))


def rows(replays: Mapping[str, Replay]) -> list[list[str]]:
    """The table's rows, to go with `HEADERS`."""
    return [_row(name, one.figures, one.sim_wall_s) for name, one in replays.items()]


def _row(name: str, its: Figures, sim_wall_s: float) -> list[str]:
    wait, completion = its.wait, its.completion
    times = (wait.mean_s, wait.median_s, wait.p95_s, wait.max_s, completion.mean_s, completion.median_s)
    return [
        name,
        *(f"{time_s / HOUR_S:.1f} h" for time_s in (*times, completion.p95_s)),
        f"{its.utilisation:.2%}",
        f"{its.makespan_s / DAY_S:.1f} d",
        f"{its.jain:.4f}",
        f"{its.jain_slowdown:.4f}",
        f"{its.preemptions}",
        f"{its.lost_card_hours:.0f} card-h",
        f"{sim_wall_s:.1f} s",
    ]
