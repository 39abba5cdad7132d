"""Whose turn it is: one line of jobs for each tenant, and a heap over their heads."""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from services.scheduler.core.arrays import NEVER, Ints, Queue
from services.scheduler.core.fairness import Accounts
from services.scheduler.core.policy import Order

INSIDE, BORROWING = 0, 1

Key = tuple[int, int, bool, float, int, int]


@dataclass(frozen=True)
class Turn:
    """A job whose turn it is."""

    job: int
    tenant: int


class Turns:
    """Gives each job once. Tenants inside their guarantee first, then class, damaged jobs, least share, time, id.

    A tenant's own jobs go by class, damaged first, time of submission, id. Other orders than `FAIR` look at all jobs
    as one line.
    """

    def __init__(self, queue: Queue, asked: list[int], accounts: Accounts, order: Order) -> None:
        self._asked = asked
        self._accounts = accounts
        self._order = order
        self._tenant: list[int] = queue.tenant.tolist()
        self._rank: list[int] = queue.rank.tolist()
        self._fit: list[bool] = np.logical_not(queue.damaged).tolist()
        self._time: list[int] = queue.submitted_us.tolist()
        self._longest: list[int] = queue.longest_us.tolist()
        ordered = _ordered(queue, order)
        self._place = [0] * len(ordered)
        self._lines: list[list[int]] = [[] for _ in range(max(self._tenant, default=-1) + 1)]
        for place, job in enumerate(ordered):
            self._place[job] = place
            self._lines[self._tenant[job]].append(job)
        for line in self._lines:
            line.reverse()
        self._heap: list[tuple[Key, int]] | None = None

    def place(self, job: int) -> int:
        """Where the job stands among all, by what does not change while the plan is made."""
        return self._place[job]

    def next(self) -> Turn | None:
        """The job whose turn it is, once what was decided of the last one is in the accounts; None at the end."""
        heap = self._heads()
        if not heap:
            return None
        _, tenant = heappop(heap)
        return Turn(self._lines[tenant].pop(), tenant)

    def _heads(self) -> list[tuple[Key, int]]:
        """Made when the first turn comes: what those with the first word got is in the accounts by then."""
        if self._heap is None:
            self._heap = [(self._key(line[-1]), tenant) for tenant, line in enumerate(self._lines) if line]
            heapify(self._heap)
        return self._heap

    def settled(self, tenant: int) -> None:
        """The tenant's last turn is decided: its next job takes its stand."""
        line = self._lines[tenant]
        if line:
            heappush(self._heads(), (self._key(line[-1]), tenant))

    def _key(self, job: int) -> Key:
        place, time = self._place[job], self._time[job]
        if self._order is Order.FAIR:
            tenant, fit = self._tenant[job], self._fit[job]
            inside = not fit or self._accounts.claims(tenant, self._asked[job])
            band = INSIDE if inside else BORROWING
            return band, self._rank[job], fit, self._accounts.share(tenant), time, place
        rank = self._rank[job] if self._order is Order.PRIORITY else 0
        length = float(self._longest[job]) if self._order is Order.SHORTEST else 0.0
        return INSIDE, rank, True, length, time, place


def _ordered(queue: Queue, order: Order) -> list[int]:
    """All jobs by what does not change: the last key is the id, so that the order of the input does not matter."""
    ids = np.empty(len(queue.job_ids), dtype=np.int64)
    ids[sorted(range(len(queue.job_ids)), key=queue.job_ids.__getitem__)] = np.arange(len(queue.job_ids))
    keys: list[Ints] = [ids, queue.submitted_us]
    if order is Order.SHORTEST:
        keys.append(np.minimum(queue.longest_us, NEVER))
    if order is Order.FAIR:
        keys.append(np.logical_not(queue.damaged).astype(np.int64))
    if order in {Order.FAIR, Order.PRIORITY}:
        keys.append(queue.rank)
    listed: list[int] = np.lexsort(keys).tolist()
    return listed
