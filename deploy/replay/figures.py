"""What a replay was like for users and tenants, in figures.

Fairness is Jain's index, (sum x)^2 / (n sum x^2), over x = received / deserved of each tenant. Received are the
card-seconds a tenant held; deserved are the card-seconds of its max-min share: at any moment the cards are divided as
evenly as the tenants' wants (jobs waiting and running) allow, and all of that time counts in which it wanted any. 1.0
says that every tenant got the same part of what was due to it; 1/n that one got everything. Beside it stands the index
over the tenants' mean slowdown (completion over the time the job computes, at least `SHORT_US`), which small jobs rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deploy.replay.cluster import Cluster
from deploy.replay.philly import SECOND_US

HOUR_US = 3_600_000_000
SHORT_US = 10 * SECOND_US
DECIMALS = 6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Mean, median, 95th percentile and greatest of some times, in seconds."""

    mean_s: float
    median_s: float
    p95_s: float
    max_s: float


@dataclass(frozen=True)
class Figures:
    """One policy's replay. Times run from arrival; `wait` is all time without cards, `first_start` until the first."""

    wait: Spread
    completion: Spread
    first_start: Spread
    utilisation: float
    utilisation_until_last_arrival: float
    makespan_s: float
    jain: float
    jain_slowdown: float
    received_of_deserved: tuple[float, ...]
    preemptions: int
    jobs_preempted: int
    lost_card_hours: float
    overhead_card_hours: float
    done_card_hours: float
    placements: int


@dataclass(frozen=True)
class Curves:
    """Step functions over time: cards wanted and held by tenant from each moment on, and how long that lasts."""

    at_us: NDArray[np.int64]
    wanted: NDArray[np.int64]  # moments x tenants
    held: NDArray[np.int64]

    @property
    def lasts_us(self) -> NDArray[np.int64]:
        """How long each moment lasts."""
        return np.diff(self.at_us, append=self.at_us[-1])


def curves(cluster: Cluster, tenants: int) -> Curves:
    """The history as step functions, one moment for each distinct time."""
    changes = np.array(cluster.history.changes, np.int64).reshape(-1, 4)
    at_us, moment = np.unique(changes[:, 0], return_inverse=True)
    steps = np.zeros((2, len(at_us), tenants), np.int64)
    np.add.at(steps[0], (moment, changes[:, 1]), changes[:, 2])
    np.add.at(steps[1], (moment, changes[:, 1]), changes[:, 3])
    wanted, held = steps.cumsum(axis=1)
    return Curves(at_us, wanted, held)


def max_min(wanted: NDArray[np.int64], cards: int) -> Floats:
    """Each moment's max-min division of the cards among tenants of equal weight: moments x tenants."""
    share = np.zeros(wanted.shape)
    left = np.full(len(wanted), float(cards))
    order = np.argsort(wanted, axis=1, kind="stable")
    for place in range(wanted.shape[1]):
        tenant = order[:, place]
        rows = np.arange(len(wanted))
        share[rows, tenant] = np.minimum(wanted[rows, tenant], left / (wanted.shape[1] - place))
        left -= share[rows, tenant]
    return share


def jain(values: Sequence[float] | Floats) -> float:
    """Jain's index of fairness; 1.0 for nothing to divide."""
    array = np.asarray(values, np.float64)
    squares = len(array) * float((array**2).sum())
    return 1.0 if squares == 0 else float(array.sum()) ** 2 / squares


def spread(times_us: NDArray[np.int64]) -> Spread:
    """Mean, median, 95th percentile and greatest."""
    seconds = times_us / SECOND_US
    return Spread(*(round(float(f), 3) for f in (seconds.mean(), *np.percentile(seconds, [50, 95]), seconds.max())))


def received_of_deserved(course: Curves, cards: int) -> Floats:
    """What each tenant received of its max-min share; 1.0 where it deserved nothing."""
    deserved = course.lasts_us @ max_min(course.wanted, cards)
    received = (course.lasts_us @ course.held).astype(np.float64)
    return np.divide(received, deserved, out=np.ones_like(received), where=deserved > 0)


def figures(cluster: Cluster, tenants: int) -> Figures:
    """All figures of a replay that has run to its end."""
    jobs, lives = cluster.jobs, cluster.lives
    arrival = np.array([job.arrival_us for job in jobs], np.int64)
    size = np.array([job.cards for job in jobs], np.int64)
    computed = np.array([job.duration_us for job in jobs], np.int64)
    tenant = np.array([job.tenant for job in jobs], np.int64)
    held = np.array([life.held_us for life in lives], np.int64)
    lost = np.array([life.lost_us for life in lives], np.int64)
    completion = np.array([life.ended_us for life in lives], np.int64) - arrival
    first = np.array([life.first_start_us for life in lives], np.int64) - arrival
    course = curves(cluster, tenants)
    ratio = received_of_deserved(course, cluster.cards)
    slowdown = completion / np.maximum(computed, SHORT_US)
    by_tenant = [float(slowdown[tenant == t].mean()) for t in range(tenants) if (tenant == t).any()]
    makespan_us = int(course.at_us[-1] - course.at_us[0])
    return Figures(
        wait=spread(completion - held),
        completion=spread(completion),
        first_start=spread(first),
        utilisation=round(float(computed @ size) / (cluster.cards * makespan_us), DECIMALS),
        utilisation_until_last_arrival=round(_used(course, int(arrival.max()), cluster.cards), DECIMALS),
        makespan_s=makespan_us / SECOND_US,
        jain=round(jain(ratio), DECIMALS),
        jain_slowdown=round(jain(by_tenant), DECIMALS),
        received_of_deserved=tuple(round(float(r), DECIMALS) for r in ratio),
        preemptions=sum(life.preemptions for life in lives),
        jobs_preempted=sum(life.preemptions > 0 for life in lives),
        lost_card_hours=round(float(lost @ size) / HOUR_US, 3),
        overhead_card_hours=round(float((held - lost - computed) @ size) / HOUR_US, 3),
        done_card_hours=round(float(computed @ size) / HOUR_US, 3),
        placements=sum(life.attempts for life in lives),
    )


def _used(course: Curves, until_us: int, cards: int) -> float:
    """The part of the cards that was held from the first arrival until then."""
    ends = np.minimum(course.at_us + course.lasts_us, until_us)
    lasts = np.maximum(ends - course.at_us, 0)
    span = until_us - int(course.at_us[0])
    return float(lasts @ course.held.sum(axis=1)) / (cards * span) if span else 0.0
