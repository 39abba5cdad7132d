"""A mix as the kinds of rows of one fleet see it."""

from dataclasses import dataclass

import numpy as np

from services.scheduler.core.arrays import CARD, Bools, Demand, Floats, Ints
from services.scheduler.core.packing.layout import Layout
from services.scheduler.core.packing.mix import Mix
from services.scheduler.core.packing.needs import need_of


@dataclass(frozen=True)
class Crowd:
    """Members that a mix sends: T shapes, K kinds of rows. Weights sum to 1, each member counts."""

    demands: tuple[Demand, ...]
    weight: Floats  # T
    cards: Ints  # T
    cpu: Ints  # T
    memory: Ints  # T
    able: Bools  # T x K, which kinds may hold it when they are empty
    shares: Ints  # T x K, millionths of each card

    @property
    def used(self) -> Floats:
        """Capacity that a member takes of each kind, in cards (T x K)."""
        return self.cards[:, None] * self.shares / CARD


def crowd(layout: Layout, mix: Mix) -> Crowd:
    """The mix as the fleet sees it; shapes for tiers that the fleet lacks count all the same."""
    demands = tuple(demand for demand, _ in mix.counts)
    counts = np.array([count * demand.members for demand, count in mix.counts], dtype=np.float64)
    needs = [[need_of(layout, demand, tier) for tier in demand.tiers] for demand in demands]
    kinds = len(layout.kind_tier)
    able = [np.logical_or.reduce([need.kinds for need in several]) for several in needs]
    shares = [several[0].shares for several in needs]
    return Crowd(
        demands=demands,
        weight=counts / counts.sum() if len(counts) else counts,
        cards=np.array([demand.cards for demand in demands], dtype=np.int64),
        cpu=np.array([demand.cpu_milli for demand in demands], dtype=np.int64),
        memory=np.array([demand.memory_bytes for demand in demands], dtype=np.int64),
        able=np.array(able, dtype=np.bool_).reshape(len(demands), kinds),
        shares=np.array(shares, dtype=np.int64).reshape(len(demands), kinds),
    )


def pressure(layout: Layout, seen: Crowd) -> Floats:
    """How much of the mix leans on each kind's cards, 1 on average: what only few kinds can hold leans hard on them."""
    capacity = np.bincount(layout.kind, weights=(layout.cards >= 0).sum(axis=1), minlength=len(layout.kind_tier))
    room = (seen.able * capacity).sum(axis=1)
    asked = (seen.able * capacity * seen.used).sum(axis=1) / np.maximum(room, 1)
    load = np.where(room > 0, seen.weight * asked / np.maximum(room, 1), 0.0)
    leaning = (seen.able * load[:, None]).sum(axis=0)
    mean = (leaning * capacity).sum() / max(1.0, float(capacity.sum()))
    return leaning / mean if mean > 0 else np.ones_like(leaning)
