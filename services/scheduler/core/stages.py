"""Stages: within its class a job that has had little comes before one that has had much.

How long a job will run is not known, but what it has had is, and most jobs are short: the more a job has had, the more
it is likely to want still. So each class is cut into stages by card-hours held (discretised two-dimensional least
attained service, after Gu et al., "Tiresias", NSDI 2019). A stage is a class below a class: order and preemption look
at one number, the class times `MAX_STAGES` and the stage.
"""

from dataclasses import replace

import numpy as np

from services.scheduler.core.arrays import Ints, Queue, Running
from services.scheduler.core.policy import MAX_STAGES, Order, Policy

MS_PER_CARD_H = 3_600_000


def staged(queue: Queue, running: Running, policy: Policy, now_us: int) -> tuple[Queue, Running]:
    """Both with the stage in their `rank`, where what jobs have had is known; else, and under other orders, stage 0."""
    return (
        replace(queue, rank=queue.rank * MAX_STAGES + _stage(queue.earlier_ms, len(queue.rank), policy)),
        replace(running, rank=running.rank * MAX_STAGES + _stage(_had_ms(running, now_us), len(running.rank), policy)),
    )


def _had_ms(running: Running, now_us: int) -> Ints:
    """Card-milliseconds with this attempt, whose shares of cards count as whole ones."""
    if not len(running.earlier_ms):
        return running.earlier_ms
    cards = np.array([shape.members * shape.cards for shape in running.shapes], dtype=np.int64)[running.shape]
    return running.earlier_ms + np.maximum(0, now_us - running.placed_us) // 1000 * cards


def _stage(had_ms: Ints, count: int, policy: Policy) -> Ints:
    if not len(had_ms) or policy.order is not Order.FAIR:
        return np.zeros(count, dtype=np.int64)
    bounds = np.array(policy.stages_card_h, dtype=np.float64) * MS_PER_CARD_H
    return np.searchsorted(np.sort(bounds), had_ms, side="right").astype(np.int64)
