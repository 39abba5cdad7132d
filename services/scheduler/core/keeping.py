"""Nodes that are kept for somebody, and from when on: who ends before that may still use them (backfill)."""

from bisect import bisect_left

import numpy as np

from services.scheduler.core.arrays import NEVER, Bools, Fleet, Ints, Tenants


class Keeping:
    """`NEVER` marks a node that is kept for nobody. Nodes are only ever added while a plan is made."""

    def __init__(self, fleet: Fleet, tenants: Tenants) -> None:
        self._from_us: Ints = np.full(len(fleet.nodes), NEVER, dtype=np.int64)
        self._owner: Ints = np.full(len(fleet.nodes), -1, dtype=np.int64)
        self._starts: list[int] = []
        self._groups: dict[bytes, int] = {}
        self._usable: list[Bools | None] = []
        self._group = [self._group_of(fleet, may) for may in tenants.pools]
        self._open: dict[tuple[int, int], Bools | None] = {}

    def _group_of(self, fleet: Fleet, may: Bools) -> int:
        key = may.tobytes()
        if key not in self._groups:
            usable = np.append(may, [True])[fleet.pool]  # the last stands for ANYONE, -1
            self._groups[key] = len(self._usable)
            self._usable.append(None if usable.all() else usable)
        return self._groups[key]

    def group(self, tenant: int) -> int:
        """Tenants of one group may use the same nodes."""
        return self._group[tenant]

    def usable(self, group: int) -> Bools | None:
        """The nodes of a group's pools; None for all."""
        return self._usable[group]

    @property
    def count(self) -> int:
        """How many times something was kept."""
        return len(self._starts)

    def keep(self, nodes: Ints, from_us: int, owner: int) -> None:
        """Keep `nodes` for the job `owner` from then on."""
        later = nodes[self._from_us[nodes] > from_us]
        self._from_us[later] = from_us
        self._owner[later] = owner
        self._starts = sorted([*self._starts, from_us])
        self._open.clear()

    def depth(self, end_us: int) -> int:
        """Jobs with the same depth may use the same kept nodes; 0 may use all."""
        return bisect_left(self._starts, end_us)

    def open(self, group: int, end_us: int) -> Bools | None:
        """The nodes that a job of the group which ends by `end_us` may use; None for all."""
        depth = self.depth(end_us)
        key = group, depth
        if key not in self._open:
            usable = self._usable[group]
            if depth:
                free = self._from_us >= end_us
                usable = free if usable is None else usable & free
            self._open[key] = usable
        return self._open[key]

    def kept(self, nodes: Ints, end_us: int) -> bool:
        """Whether one of `nodes` is kept from before `end_us`."""
        return bool((self._from_us[nodes] < end_us).any())

    def owner(self, nodes: Ints, end_us: int) -> tuple[int, int]:
        """For whom, and from when on, one of `nodes` is kept from before `end_us`."""
        node = int(nodes[np.argmin(self._from_us[nodes])])
        assert self._from_us[node] < end_us, f"node {node} is kept for nobody"
        return int(self._owner[node]), int(self._from_us[node])
