"""Who holds how much, what may be borrowed, and whose share is least: the tenants' accounts while a plan is made."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import NEVER, Tenants
from services.scheduler.core.policy import Policy

NO_COHORT = -1
LEAST_WEIGHT = 1e-9


class CohortCycleError(ValueError):
    """Cohorts stand below themselves; the message names them."""


@dataclass(frozen=True)
class Short:
    """A bound that a job would break: `used` + `asked` > `allowed`. `whose` is the cohort, None the tenant itself."""

    resource: str
    used: int
    asked: int
    allowed: int
    whose: str | None = None


def cohort_cycle(parents: Mapping[str, str | None]) -> tuple[str, ...] | None:
    """The first cycle among cohorts, each with its parent, as the names along it; None where there is none."""
    cleared: set[str] = set()
    for name in sorted(parents):
        path: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in cleared:
            if at in path:
                along = list(path)
                return (*along[along.index(at) :], at)
            path[at] = None
            at = parents.get(at)
        cleared.update(path)
    return None


class Accounts:
    """What each tenant holds, with what this plan gives; millionths of cards. Nothing in here is ever negative."""

    def __init__(self, tenants: Tenants, policy: Policy) -> None:
        self._tenants = tenants
        self._held_ms = policy.held_ms
        self._counted = policy.half_life_s > 0
        self.used: list[int] = tenants.used.tolist()
        self.jobs: list[int] = tenants.used_jobs.tolist()
        self.guarantee: list[int] = tenants.guarantee.tolist()
        self._limit: list[int] = tenants.limit.tolist()
        self._own: list[int] = np.minimum(tenants.guarantee, tenants.limit).tolist()
        self._quota_jobs: list[int] = tenants.quota_jobs.tolist()
        self._weight = [max(weight, LEAST_WEIGHT) for weight in tenants.weight.tolist()]
        self._usage: list[float] = tenants.usage.tolist()
        self._leaving = [0] * len(self.used)
        self._above = _above(tenants)
        cohorts: list[int] = tenants.cohort.tolist()
        self._lines: list[tuple[int, ...]] = [() if at == NO_COHORT else self._above[at] for at in cohorts]
        self._cohort_used = [0] * len(self._above)
        self._cohort_guarantee = [0] * len(self._above)
        for tenant, line in enumerate(self._lines):
            for cohort in line:
                self._cohort_used[cohort] += self.used[tenant]
                self._cohort_guarantee[cohort] += self.guarantee[tenant]

    def share(self, tenant: int) -> float:
        """How much the tenant has had, by its weight: what it used of late, and what it holds."""
        held = self.used[tenant] / 1_000_000 * self._held_ms
        return ((self._usage[tenant] if self._counted else 0.0) + held) / self._weight[tenant]

    def inside(self, tenant: int, asked: int) -> bool:
        """Whether the tenant would still be inside its guarantee."""
        return self.used[tenant] + asked <= self.guarantee[tenant]

    def claims(self, tenant: int, asked: int) -> bool:
        """Whether the job asks for cards, and all of them are the tenant's own."""
        return asked > 0 and self.inside(tenant, asked)

    def most(self, tenant: int) -> int:
        """What the tenant may hold at most as long as the others of its cohort hold what they do."""
        own, line = self.guarantee[tenant], self._lines[tenant]
        lent = min((most - self._cohort_used[at] for at, most in self._bounds(line)), default=NEVER - self.used[tenant])
        return min(self._limit[tenant], max(own, self.used[tenant] + lent))

    def left(self, tenant: int) -> int:
        """What the tenant may still take at most, never negative."""
        own = max(0, self.guarantee[tenant] - self.used[tenant])
        below_limit = max(0, self._limit[tenant] - self.used[tenant])
        return min(below_limit, max(own, self._lent(tenant)))

    def short(self, tenant: int, asked: int) -> Short | None:
        """The first bound in the way of one more job that asks so much."""
        jobs, quota_jobs = self.jobs[tenant], self._quota_jobs[tenant]
        if jobs + 1 > quota_jobs:
            return Short("jobs", jobs, 1, quota_jobs)
        used = self.used[tenant]
        if not asked or used + asked <= self._own[tenant]:
            return None
        if used + asked > self._limit[tenant]:
            return Short("cards", used, asked, self._limit[tenant])
        return self._cohort_short(tenant, asked)

    def below(self, tenant: int, cohort: str | None) -> list[int]:
        """The tenants under the bound that `short` names: of the cohort and all below it, or the tenant alone."""
        if cohort is None:
            return [tenant]
        at = next(at for at in self._lines[tenant] if self._name(at) == cohort)
        return [other for other, line in enumerate(self._lines) if at in line]

    def limit(self, tenant: int) -> int:
        """What the tenant may hold at most."""
        return self._limit[tenant]

    def excess(self, tenant: int) -> int:
        """What the tenant holds above its guarantee when all that leaves has left; never negative."""
        return max(0, self.used[tenant] - self._leaving[tenant] - self.guarantee[tenant])

    def staying(self, tenant: int) -> int:
        """What the tenant holds when all that leaves has left."""
        return max(0, self.used[tenant] - self._leaving[tenant])

    def take(self, tenant: int, asked: int) -> None:
        """One more job of the tenant holds so much."""
        self.used[tenant] += asked
        self.jobs[tenant] += 1
        for cohort in self._lines[tenant]:
            self._cohort_used[cohort] += asked

    def leave(self, tenant: int, held: int) -> None:
        """So much of what the tenant holds will leave."""
        self._leaving[tenant] += held

    def _lent(self, tenant: int) -> int:
        """What the tenant's cohort leaves to borrow."""
        line = self._lines[tenant]
        if not line:
            return NEVER
        return min(max(0, allowed - self._cohort_used[cohort]) for cohort, allowed in self._bounds(line))

    def _cohort_short(self, tenant: int, asked: int) -> Short | None:
        for cohort, allowed in self._bounds(self._lines[tenant]) if self._lines[tenant] else ():
            used = self._cohort_used[cohort]
            if used + asked > allowed:
                own = used - self.used[tenant] + self._own[tenant]
                return Short("cards", used, asked, max(allowed, own), self._name(cohort))
        return None

    def _bounds(self, line: tuple[int, ...]) -> list[tuple[int, int]]:
        """What each cohort of a line may hold: its ceiling, and the topmost no more than all its guarantees."""
        ceilings: list[int] = self._tenants.ceiling.tolist()
        bounds = [(cohort, ceilings[cohort]) for cohort in line if cohort < len(ceilings)]
        return [*bounds, (line[-1], self._cohort_guarantee[line[-1]])] if line else []

    def _name(self, cohort: int) -> str:
        names = self._tenants.cohorts
        return names[cohort] if cohort < len(names) else str(cohort)


def _above(tenants: Tenants) -> list[tuple[int, ...]]:
    """For each cohort itself and all that it stands below, nearest first. Raises CohortCycleError."""
    count = max(int(tenants.cohort.max(initial=NO_COHORT)) + 1, len(tenants.cohorts), len(tenants.parent))
    parents = [*tenants.parent.tolist(), *[NO_COHORT] * (count - len(tenants.parent))]
    names = [tenants.cohorts[at] if at < len(tenants.cohorts) else str(at) for at in range(count)]
    cycle = cohort_cycle({names[at]: names[parent] for at, parent in enumerate(parents) if parent != NO_COHORT})
    if cycle is not None:
        msg = f"cohorts {' -> '.join(cycle)} stand below themselves: give one of them another parent, or none"
        raise CohortCycleError(msg)
    lines: list[tuple[int, ...]] = []
    for cohort in range(count):
        line = [cohort]
        while parents[line[-1]] != NO_COHORT:
            line.append(parents[line[-1]])
        lines.append(tuple(line))
    return lines


def shares_milli(tenants: Tenants, policy: Policy) -> dict[str, int]:
    """What each tenant used of late and holds, by its weight, in thousandths of what all did; 0 where none did."""
    accounts = Accounts(tenants, policy)
    shares = {name: accounts.share(at) for at, name in enumerate(tenants.names)}
    whole = sum(shares.values())
    return {name: round(1000 * share / whole) if whole else 0 for name, share in shares.items()}
