"""The cases, each in rounds with its peers."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from deploy.replay.openb import Node, arrivals, fleet_of
from deploy.replay.openb_bench import PERCENT, Run, Stream, rate
from deploy.replay.openb_bench import run as replay
from services.scheduler.core.arrays import CARD, Demand
from services.scheduler.core.decide import decide
from services.scheduler.core.packing import DEFAULT, Mix, warm_up
from services.scheduler.core.policy import Policy
from tests.bench.frame import Case, Measure, interleaved, say
from tests.bench.placement.fleets import Load, running_on, scaled, taken, tenants_of, waiting

OWN, PEERS = DEFAULT, ("fgd", "bestfit")
SEED = 42


@dataclass(frozen=True)
class Size:
    """How much is measured. `nodes` and `jobs` are three sizes each, the last of them the case itself."""

    rounds: int
    seeds: int
    placed: int
    nodes: tuple[int, int, int]
    jobs: tuple[int, int, int]


FULL = Size(rounds=3, seeds=10, placed=10_000, nodes=(2_500, 5_000, 10_000), jobs=(25_000, 50_000, 100_000))
QUICK = Size(rounds=1, seeds=1, placed=200, nodes=(50, 100, 200), jobs=(100, 200, 400))


async def run(load: Load, size: Size) -> dict[str, Case]:
    """All cases, the packing last."""
    warm_up()
    return {
        "plc_openb": await _openb(load, size),
        "plc_10k": await _many_nodes(load, size),
        "cycle": await _cycle(load, size),
        "unallocated": _unallocated(load, size),
    }


def _measured(function: Callable[[str], float], policy: str) -> Measure:
    async def measure() -> float:
        return function(policy)

    return measure


async def _rounds(function: Callable[[str], float], size: Size) -> tuple[list[float], dict[str, list[float]]]:
    measures = {policy: _measured(function, policy) for policy in (OWN, *PEERS)}
    values = await interleaved(measures, size.rounds)
    return values.pop(OWN), values


async def _openb(load: Load, size: Size) -> Case:
    values, peers = await _rounds(lambda policy: rate(replay(load.nodes, load.tasks, SEED, policy)), size)
    what = f"{PERCENT} % of the capacity arrives at {len(load.nodes)} empty nodes"
    return Case(what, "placements/s", values, peers, limit=5000.0, ratio_to="limit")


async def _many_nodes(load: Load, size: Size) -> Case:
    most = size.nodes[-1]
    values, peers = await _rounds(partial(_placements, load.tasks, scaled(load.nodes, most), size.placed), size)
    by_nodes = {
        str(count): round(_placements(load.tasks, scaled(load.nodes, count), size.placed, OWN)) for count in size.nodes
    }
    by_jobs = {
        str(part): round(_placements(load.tasks, scaled(load.nodes, most), part, OWN))
        for part in (size.placed // 4, size.placed // 2, size.placed)
    }
    more: dict[str, Any] = {"per_s_by_nodes": by_nodes, "per_s_by_tasks": by_jobs}
    what = f"{size.placed} tasks arrive at {most} empty nodes"
    return Case(what, "placements/s", values, peers, limit=2000.0, ratio_to="limit", more=more)


def _placements(tasks: Sequence[Demand], nodes: Sequence[Node], count: int, policy: str) -> float:
    """Placements a second, of tasks that come in an order of chance, with a mix that is known."""
    coming = arrivals(tasks, len(fleet_of(nodes).card_node) * CARD, SEED, PERCENT)[:count]
    stream = Stream(fleet_of(nodes), policy, Mix().learn(tasks))
    stream.offer(coming)
    return stream.placed / stream.seconds


async def _cycle(load: Load, size: Size) -> Case:
    nodes, jobs = size.nodes[-1], size.jobs[-1]
    values, peers = await _rounds(lambda policy: _decision(load, nodes, jobs, policy)[0], size)
    by_nodes = {str(count): round(_decision(load, count, jobs, OWN)[0], 3) for count in size.nodes}
    by_jobs = {str(count): round(_decision(load, nodes, count, OWN)[0], 3) for count in size.jobs}
    seconds, told = _decision(load, nodes, jobs, OWN)
    say(f"one decision {seconds:.2f} s: {told}")
    more: dict[str, Any] = {**told, "s_by_nodes": by_nodes, "s_by_jobs": by_jobs}
    what = f"one decision: {nodes} nodes, nine tenths full, {jobs} jobs waiting"
    return Case(what, "s", values, peers, limit=5.0, ratio_to="limit", lower_is_better=True, more=more)


def _decision(load: Load, nodes: int, jobs: int, policy: str) -> tuple[float, dict[str, int]]:
    """Seconds that one decision takes on a fleet and a queue it sees for the first time, and what it decided."""
    fleet = taken(scaled(load.nodes, nodes), SEED)
    running, queue = running_on(fleet, SEED), waiting(load.tasks, jobs, SEED)
    tenants, mix = tenants_of(fleet, running), Mix().learn(load.tasks)
    began = time.perf_counter()
    plan = decide(fleet, queue, running, tenants, mix, Policy(placer=policy), 0)
    seconds = time.perf_counter() - began
    told = {"placed": len(plan.placements), "preempted": len(plan.preemptions), "reserved": len(plan.reservations)}
    return seconds, {"shapes": len(queue.shapes), **told}


def _unallocated(load: Load, size: Size) -> Case:
    """Per cent of the cards, over the seeds; no rounds, since it is the same in each."""
    left = {
        policy: [_left(replay(load.nodes, load.tasks, SEED + n, policy)) for n in range(size.seeds)]
        for policy in (OWN, *PEERS)
    }
    what = f"cards unallocated at {PERCENT} % of arrived demand, {size.seeds} seeds"
    own = left.pop(OWN)
    return Case(what, "%", own, left, ratio_to="fgd", lower_is_better=True)


def _left(one: Run) -> float:
    return one.unallocated[PERCENT]
