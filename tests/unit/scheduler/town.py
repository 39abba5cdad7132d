"""Plans carried out one after another: what is placed runs, what is told to leave stops, and is gone one plan later."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from contracts.base import Tier
from services.scheduler.core.arrays import CARD, Level, Plan, PreemptWhy
from services.scheduler.core.policy import DEFAULT, Policy
from tests.unit.scheduler.scenes import NOW, C, Job, Node, Run, S, Tenant, World, job

STEP_S = 10
T = TypeVar("T")


@dataclass
class Town:
    """A world that goes on. `preempted` counts how often each job was told to leave since `changed_us`."""

    world: World
    jobs: dict[str, Job]
    preempted: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    changed_us: int = NOW

    @classmethod
    def of(cls, world: World) -> "Town":
        again = {run.name: _again(run) for run in world.runs}
        return cls(world, again | {waiting.name: waiting for waiting in world.jobs})

    def step(self) -> Plan:
        """One plan, carried out; those who were told to leave before it are gone after it."""
        now = self.world.now_us
        self.world = replace(self.world, changed_s=(self.changed_us - now) // S)
        plan = self.world.decided()
        staying = [run for run in self.world.runs if not run.stopping]
        since_s = (now - NOW) // S
        leavers = [
            replace(self.jobs[run.name], left_for=run.leaving_for, since_s=since_s, damaged=run.moving)
            for run in self.world.runs
            if run.stopping
        ]
        told = {preemption.job_id: preemption.for_job for preemption in plan.preemptions}
        moving = {one.job_id for one in plan.preemptions if one.why is PreemptWhy.CONSOLIDATION}
        assert told.keys() <= {run.name for run in staying}, "told to leave twice, or not there"
        for name in told:
            self.preempted.setdefault(name, []).append(now)
        runs = [
            replace(run, stopping=run.name in told, leaving_for=told.get(run.name), moving=run.name in moving)
            for run in staying
        ]
        placed = {placement.job_id: placement for placement in plan.placements}
        runs += [self._run(name, plan) for name in placed]
        waiting = [one for one in self.world.jobs if one.name not in placed]
        self.world = replace(self.world, now_us=now + STEP_S * S, jobs=[*waiting, *leavers], runs=self._aged(runs))
        return plan

    def _run(self, name: str, plan: Plan) -> Run:
        [placement] = [placement for placement in plan.placements if placement.job_id == name]
        [one] = [one for one in self.world.jobs if one.name == name]
        stopped = self.preempted.get(name)
        return Run(
            name,
            [(seat.node, seat.cards) for seat in placement.seats],
            tenant=one.tenant,
            rank=one.rank,
            placed_s=0,
            ends_s=one.longest_s,
            saved_s=0,
            preemptible=one.rank > 0,
            waited_s=(self.world.now_us - NOW) // S - (one.at if one.since_s is None else one.since_s),
            preempted_s=(stopped[-1] - self.world.now_us) // S if stopped else None,
            demand=one.demand,
        )

    def _aged(self, runs: list[Run]) -> list[Run]:
        return [
            replace(
                run,
                placed_s=run.placed_s - STEP_S,
                saved_s=run.saved_s - STEP_S,
                ends_s=None if run.ends_s is None else run.ends_s - STEP_S,
                preempted_s=None if run.preempted_s is None else run.preempted_s - STEP_S,
            )
            for run in runs
        ]

    def settle(self, most: int = 60) -> list[Plan]:
        """Step until nothing is placed, stopped or leaving any more."""
        plans: list[Plan] = []
        for _ in range(most):
            leaving = any(run.stopping for run in self.world.runs)
            plans.append(self.step())
            if not leaving and not plans[-1].placements and not plans[-1].preemptions:
                return plans
        message = f"not settled after {most} plans: {plans[-1].placements} {plans[-1].preemptions}"
        raise AssertionError(message)

    def submit(self, *jobs: Job) -> None:
        """New jobs: a change from outside."""
        self.changed_us = self.world.now_us
        self.jobs.update({one.name: one for one in jobs})
        self.world = replace(self.world, jobs=[*self.world.jobs, *jobs])


def _again(run: Run) -> Job:
    """The job of an attempt, as it would wait again."""
    return Job(run.name, run.shape, tenant=run.tenant, rank=run.rank, at=-9, longest_s=run.ends_s)


# ---- drawn worlds ----------------------------------------------------------------------------------------------------
# From a seed, evenly: what hypothesis draws by itself is mostly small and idle, and little there is ever preempted.


class Dice:
    """Choices of one seed."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def one(self, *of: T) -> T:
        """One of some things, each as likely."""
        return of[int(self._generator.integers(len(of)))]

    def chance(self, share: float) -> bool:
        """True as often as `share` says."""
        return bool(self._generator.random() < share)

    def node(self, name: str) -> Node:
        return Node(
            name,
            (self.one("h100", "h100", "a100"),) * self.one(1, 2, 3, 4, 4, 0),
            self.one(C, C, C, C, Tier.REMOTE),
            ready=self.chance(0.9),
            pool=self.one(None, None, None, "p"),
            rack=self.one("a", "b"),
            cpu_milli=8000,
        )

    def job(self, name: str) -> Job:
        cards = self.one(1, 1, 1, 2, 2, 3, 0)
        level = self.one(None, None, None, Level.NODE, Level.RACK)
        return job(
            name,
            cards,
            members=self.one(1, 1, 1, 2, 3),
            share=self.one(CARD, CARD, 500_000, 300_000) if cards == 1 else CARD,
            models=self.one((), (), ("h100",)),
            cpu_milli=self.one(0, 1000, 3000),
            level=level,
            level_required=level is not None and self.chance(0.5),
            tenant=self.one("x", "y", "z"),
            rank=self.one(0, 1, 2),
            at=self.one(*range(-9, 1)),
            longest_s=self.one(100, 5000, None),
            damaged=self.chance(0.1),
        )

    def tenant(self, name: str) -> Tenant:
        guarantee = self.one(0, 1, 2, 4)
        return Tenant(
            name,
            guarantee,
            guarantee + self.one(0, 2, 9, 20),
            jobs=self.one(*[99] * 9, 3),
            uses=self.one(0, 3, 9),
            cohort=self.one(None, None, "k"),
            pools=self.one(("p",), ("p",), ()),
        )

    def world(self, policy: Policy) -> World:
        early = [self.job(f"early{at}") for at in range(self.one(4, 8, 12, 16))]
        fleet = [self.node(f"n{at}") for at in range(self.one(1, 2, 3, 3, 4, 5))]
        town = Town.of(World(fleet, early, tenants=[self.tenant(name) for name in "xyz"], policy=policy))
        for _ in range(2 if early else 0):
            town.step()
        town.submit(*(self.job(f"late{at}") for at in range(self.one(1, 3, 6, 10))))
        return replace(town.world, changed_s=0)


def worlds(policy: Policy = DEFAULT) -> st.SearchStrategy[World]:
    """Worlds in which some work already runs, placed by plans, and more waits."""
    return st.integers(0, 2**32).map(lambda seed: Dice(seed).world(policy))
