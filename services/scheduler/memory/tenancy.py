"""What tenants may hold and hold: quotas from their files, cohorts from the policy file, use of late."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from contracts.base import Reason
from services.scheduler.core import words
from services.scheduler.core.arrays import CARD, NEVER, Floats, Ints, Tenants
from services.scheduler.core.policy import decayed
from services.scheduler.core.quota import Tenant
from services.scheduler.memory.table import Words
from services.scheduler.policies import Rules

US_PER_S = 1_000_000
US_PER_MS = 1000
NO_COHORT = -1


@dataclass
class Usage:
    """Card-milliseconds that each tenant used, older use counting less; brought up to date from what is held."""

    at_us: int = 0
    used_ms: dict[str, float] = field(default_factory=dict[str, float])

    def advance(self, names: tuple[str, ...], held: Ints, now_us: int, half_life_s: int) -> Floats:
        """What counts now for each name; `held` (millionths of cards) is taken as held since the last call."""
        elapsed_us = max(0, now_us - self.at_us) if self.at_us else 0
        for name, cards in zip(names, held.tolist(), strict=True):
            before = decayed(self.used_ms.get(name, 0.0), elapsed_us / US_PER_S, half_life_s)
            self.used_ms[name] = before + cards / CARD * (elapsed_us / US_PER_MS)
        self.at_us = max(self.at_us, now_us)
        return np.array([self.used_ms[name] for name in names], dtype=np.float64)


def barred(known: Mapping[str, Tenant]) -> dict[str, Reason]:
    """Tenants whose jobs do not start at all."""
    return {name: words.tenant_suspended(name) for name, tenant in known.items() if tenant.suspended}


def reach_cards(rules: Rules, known: Mapping[str, Tenant], tenant: Tenant) -> int | None:
    """The most cards that a tenant could ever hold: all guarantees below its topmost cohort, within ceilings."""
    if tenant.cohort is None:
        return None
    line = line_of(rules, tenant.cohort)
    lenders = (one for one in known.values() if one.cohort is not None and line_of(rules, one.cohort)[-1] == line[-1])
    ceilings = [rules.cohorts[name].ceiling_cards for name in line if name in rules.cohorts]
    return min([sum(one.quotas.guarantee for one in lenders), *(most for most in ceilings if most is not None)])


def below(rules: Rules, known: Mapping[str, Tenant], cohort: str) -> list[str]:
    """The tenants of a cohort and of all below it, in order."""
    return sorted(
        name for name, one in known.items() if one.cohort is not None and cohort in line_of(rules, one.cohort)
    )


def line_of(rules: Rules, name: str) -> list[str]:
    """A cohort and all above it."""
    line = [name]
    while (above := rules.cohorts[line[-1]].parent if line[-1] in rules.cohorts else None) is not None:
        line.append(above)
    return line


def tenants_of(
    numbers: Words,
    known: Mapping[str, Tenant],
    rules: Rules,
    held: tuple[Ints, Ints],
    usage: Floats,
    pools: tuple[str, ...],
) -> Tenants:
    """The tenants by number. One without a file is not `known` and may hold nothing."""
    names = numbers.words
    files = [known.get(name) for name in names]
    cohorts = _cohorts(known, rules)
    at = {name: number for number, name in enumerate(cohorts)}
    pool_at = {name: number for number, name in enumerate(pools)}
    open_pools = np.zeros((len(names), len(pools)), dtype=np.bool_)
    for number, file in enumerate(files):
        open_pools[number, [pool_at[pool] for pool in (file.pools if file else ()) if pool in pool_at]] = True
    return Tenants(
        names=names,
        known=np.array([file is not None for file in files], dtype=np.bool_),
        guarantee=_ints([0 if file is None else file.quotas.guarantee * CARD for file in files]),
        limit=_ints([0 if file is None else file.quotas.most_cards * CARD for file in files]),
        quota_jobs=_ints([0 if file is None else file.quotas.concurrent_jobs for file in files]),
        used=held[0],
        used_jobs=held[1],
        weight=np.array([1.0 if file is None else file.weight for file in files], dtype=np.float64),
        usage=usage,
        cohort=_ints([at[file.cohort] if file and file.cohort is not None else NO_COHORT for file in files]),
        pools=open_pools,
        cohorts=cohorts,
        parent=_ints([_parent(rules, name, at) for name in cohorts]),
        ceiling=_ints([_ceiling(rules, name) for name in cohorts]),
    )


def _cohorts(known: Mapping[str, Tenant], rules: Rules) -> tuple[str, ...]:
    """Those of the policy file, and those that tenants merely name."""
    return tuple(sorted({*rules.cohorts, *(one.cohort for one in known.values() if one.cohort is not None)}))


def _parent(rules: Rules, name: str, at: Mapping[str, int]) -> int:
    parent = rules.cohorts[name].parent if name in rules.cohorts else None
    return NO_COHORT if parent is None else at[parent]


def _ceiling(rules: Rules, name: str) -> int:
    ceiling = rules.cohorts[name].ceiling_cards if name in rules.cohorts else None
    return NEVER if ceiling is None else ceiling * CARD


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)
