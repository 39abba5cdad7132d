"""Tasks of an openb trace arrive at an empty fleet and stay: what each policy leaves unallocated, and how fast it is.

Tasks that do not fit are not tried again. Farside's own policy knows nothing at first and learns the mix from what has
arrived; the others are told the whole list, as in the paper.
"""

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from deploy.replay.openb import Node, arrivals, fleet_of, read_nodes, read_tasks
from libs.cli.errors import FileError
from services.scheduler.core.arrays import CARD, NEVER, Demand, Fleet, Ints, Placement, Plan, Queue, Running, Tenants
from services.scheduler.core.decide import decide
from services.scheduler.core.packing import DEFAULT, PLACERS, Memo, Mix, warm_up
from services.scheduler.core.policy import Order, Policy

POLICIES = ("random", "bestfit", "fgd", DEFAULT)
PERCENT = 130
MARKS = (90, 95, 100, 110, 120, 130)
DECIMALS = 3
TENANT = "trace"
HEADERS = (
    *("POLICY", f"LEFT AT {MARKS[0]} %", *(f"AT {mark} %" for mark in MARKS[1:])),
    *(f"SPREAD AT {PERCENT} %", "PLACEMENTS/S"),
)


@dataclass(frozen=True)
class Run:
    """One policy and seed: per cent unallocated after each per cent of arrived demand, and what placing took."""

    unallocated: tuple[float, ...]
    placed: int
    seconds: float


def run(nodes: Sequence[Node], tasks: Sequence[Demand], seed: int, policy: str) -> Run:
    """Let the tasks arrive. `unallocated[p]` is after p per cent of the capacity has arrived."""
    warm_up()
    fleet = fleet_of(nodes)
    capacity = len(fleet.card_node) * CARD
    coming = arrivals(tasks, capacity, seed, PERCENT)
    came = np.cumsum([task.cards * task.share for task in coming])
    told = policy != DEFAULT
    stream = Stream(fleet, policy, Mix().learn(tasks) if told else Mix())
    allocated: list[int] = []
    while len(allocated) < len(coming):
        known = len(allocated)
        some = coming[known : None if told else stream.mix.due]
        plan = stream.offer(some)
        placed = {int(placement.job_id) for placement in plan.placements}
        allocated.extend(task.cards * task.share if index in placed else 0 for index, task in enumerate(some))
        if not told:
            stream.learn(some)
    left = capacity - np.cumsum([0, *allocated])
    marks = np.searchsorted(came, capacity * np.arange(PERCENT + 1) / 100) + 1
    marks[0] = 0
    return Run(tuple((100.0 * left[marks] / capacity).tolist()), stream.placed, stream.seconds)


class Stream:
    """A fleet that tasks are offered to in order; each call of `offer` is one decision of the scheduler."""

    def __init__(self, fleet: Fleet, policy: str, mix: Mix) -> None:
        self.fleet, self.mix, self.memo = fleet, mix, Memo()
        self.policy = Policy(placer=policy, order=Order.FIFO, reservations=0, preempt=False, consolidate=False)
        self.placed = 0
        self.seconds = 0.0
        self._cards = {
            (int(n), int(i)): c for c, (n, i) in enumerate(zip(fleet.card_node, fleet.card_index, strict=True))
        }
        self._nodes = {name: index for index, name in enumerate(fleet.nodes)}

    def learn(self, arrived: Sequence[Demand]) -> None:
        """Let the mix know of what has arrived."""
        self.mix = self.mix.learn(arrived)

    def offer(self, tasks: Sequence[Demand]) -> Plan:
        """Decide on these tasks, in this order, and take up what was placed."""
        queue, by_id = queue_of(tasks)
        began = time.perf_counter()
        plan = decide(self.fleet, queue, NOTHING, ONE_TENANT, self.mix, self.policy, 0, memo=self.memo)
        self.seconds += time.perf_counter() - began
        self.placed += len(plan.placements)
        self._take(plan.placements, by_id)
        return plan

    def _take(self, placements: Sequence[Placement], by_id: Mapping[str, Demand]) -> None:
        fleet = self.fleet
        free, cpu, memory = fleet.card_free.copy(), fleet.free_cpu_milli.copy(), fleet.free_memory_bytes.copy()
        slots = fleet.free_slots.copy()
        for placement in placements:
            task = by_id[placement.job_id]
            for seat in placement.seats:
                node = self._nodes[seat.node]
                cpu[node] -= task.cpu_milli
                memory[node] -= task.memory_bytes
                slots[node] -= 1
                for card in seat.cards:
                    free[self._cards[node, card]] -= seat.share
        self.fleet = replace(fleet, card_free=free, free_cpu_milli=cpu, free_memory_bytes=memory, free_slots=slots)


def queue_of(tasks: Sequence[Demand]) -> tuple[Queue, dict[str, Demand]]:
    """The tasks as waiting jobs of one tenant, in order."""
    count = len(tasks)
    shapes = {task: index for index, task in enumerate(dict.fromkeys(tasks))}
    names = tuple(f"{index:09}" for index in range(count))
    zero = np.zeros(count, dtype=np.int64)
    queue = Queue(
        job_ids=names,
        versions=zero + 1,
        tenant=zero,
        rank=zero + 1,
        submitted_us=np.arange(count, dtype=np.int64),
        longest_us=zero + NEVER,
        shape=np.array([shapes[task] for task in tasks], dtype=np.int64),
        gate=zero - 1,
        damaged=np.zeros(count, dtype=np.bool_),
        shapes=tuple(shapes),
    )
    return queue, dict(zip(names, tasks, strict=True))


def _running() -> Running:
    none: Ints = np.zeros(0, dtype=np.int64)
    no = np.zeros(0, dtype=np.bool_)
    return Running((), none, none, none, none, none, no, no, none, (), none, none, none, none)


def _tenant() -> Tenants:
    many, zero, one = np.full(1, NEVER), np.zeros(1, dtype=np.int64), np.ones(1)
    return Tenants(
        (TENANT,),
        np.ones(1, dtype=np.bool_),
        many,
        many,
        many,
        zero,
        zero,
        one,
        one * 0,
        zero - 1,
        np.zeros((1, 0), dtype=np.bool_),
    )


NOTHING, ONE_TENANT = _running(), _tenant()


# ---- all policies and seeds ------------------------------------------------------------------------------------------


def runs(
    files: tuple[Path, Path], seeds: Sequence[int], policies: Sequence[str], workers: int, say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Every policy under every seed, a process each, and no more than `workers` at a time."""
    nodes, tasks = read_nodes(files[0]), read_tasks(files[1])
    _cores_can(policies)
    done: dict[str, list[Run]] = {}
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("forkserver")) as pool:
        waiting = {name: [pool.submit(run, nodes, tasks, seed, name) for seed in seeds] for name in policies}
        for name, several in waiting.items():
            for seed, one in zip(seeds, several, strict=True):
                result = one.result()
                done.setdefault(name, []).append(result)
                left, speed = result.unallocated[-1], rate(result)
                say(f"{name:<10} seed {seed}: {left:.2f} % unallocated, {speed:,.0f} placements/s")
    return done


def _cores_can(policies: Sequence[str]) -> None:
    unknown = [name for name in policies if name not in PLACERS]
    if unknown:
        msg = f"no policy {unknown[0]!r}: take one of {', '.join(PLACERS)}"
        raise FileError(msg)


def rate(one: Run) -> float:
    """Placements a second."""
    return one.placed / max(one.seconds, 1e-9)


def report(done: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """One object for all policies."""
    return {
        "policies": {
            name: {
                "unallocated_pct": {str(mark): spread([one.unallocated[mark] for one in several]) for mark in MARKS},
                "placements_per_s": round(median(rate(one) for one in several)),
            }
            for name, several in done.items()
        }
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest."""
    told = {"median": median(values), "min": min(values), "max": max(values)}
    return {name: round(value, DECIMALS) for name, value in told.items()}


def lines(done: Mapping[str, Sequence[Run]]) -> list[tuple[str, ...]]:
    """The same as rows of a table: medians of what is left unallocated, in per cent."""
    rows: list[tuple[str, ...]] = []
    for name, several in done.items():
        last = spread([one.unallocated[PERCENT] for one in several])
        medians = (f"{median(one.unallocated[mark] for one in several):.2f}" for mark in MARKS)
        speed = f"{median(rate(one) for one in several):,.0f}"
        rows.append((name, *medians, f"{last['min']:.2f} - {last['max']:.2f}", speed))
    return rows
