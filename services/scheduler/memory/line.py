"""Waiting jobs in columns: the queue of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from contracts.base import Reason
from services.scheduler.core import words
from services.scheduler.core.arrays import Demand, Ints, Queue
from services.scheduler.core.quota import RANK
from services.scheduler.memory.rows import JobRow, micros
from services.scheduler.memory.table import Table, Words

NO_GATE = -1
SPARE_SHAPES = 1024


@dataclass
class Line:
    """Jobs that a plan may place, those that rest included."""

    tenants: Words
    windows: Words = field(default_factory=Words)
    jobs: dict[str, JobRow] = field(default_factory=dict[str, JobRow])
    _table: Table = field(
        default_factory=lambda: Table(
            "version",
            "tenant",
            "rank",
            "submitted",
            "longest",
            "shape",
            "damaged",
            "window",
            "rests",
            "earlier",
            "since",
        )
    )
    _row_of: dict[str, int] = field(default_factory=dict[str, int])
    _ids: dict[int, str] = field(default_factory=dict[int, str])
    _avoid: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    _left_for: dict[str, str] = field(default_factory=dict[str, str])
    _gated: dict[str, Reason] = field(default_factory=dict[str, Reason])
    _shapes: dict[Demand, int] = field(default_factory=dict[Demand, int])

    def put(self, row: JobRow, missing: bool) -> None:  # noqa: FBT001 - whether its dataset is
        """A job waits. `missing`: its dataset version is not staged."""
        self.drop(row.job_id)
        number = self._table.add(
            version=row.version,
            tenant=self.tenants.number(row.tenant),
            rank=RANK[row.priority],
            submitted=micros(row.submitted_at),
            longest=row.longest_us,
            shape=self._shape(row.demand),
            damaged=row.damaged_us,
            earlier=row.earlier_ms,
            since=row.since_us,
            window=NO_GATE if row.window is None else self.windows.number(row.window),
            rests=0 if row.not_before is None else micros(row.not_before),
        )
        self.jobs[row.job_id], self._row_of[row.job_id], self._ids[number] = row, number, row.job_id
        if row.avoid:
            self._avoid[row.job_id] = row.avoid
        if row.leaving_for is not None:
            self._left_for[row.job_id] = row.leaving_for
        if missing and row.dataset is not None:
            name, version = row.dataset
            self._gated[row.job_id] = words.waiting_for_dataset(row.tenant, f"{name} version {version}")

    def drop(self, job_id: str) -> None:
        """It waits no longer, if it did."""
        number = self._row_of.pop(job_id, None)
        if number is not None:
            self._table.drop(number)
            for known in (self.jobs, self._avoid, self._left_for, self._gated):
                known.pop(job_id, None)
            del self._ids[number]

    def queue(
        self, now_us: int, shut: Mapping[str, Reason], barred: Mapping[str, Reason], node_at: Mapping[str, int]
    ) -> Queue:
        """All that do not rest. `shut` windows and `barred` tenants are gates; `node_at`: nodes of the fleet."""
        self._tidy()
        rows = self._table.rows()
        rows = rows[self._table.column("rests")[rows] <= now_us]
        column = {name: self._table.column(name)[rows] for name in ("version", "tenant", "rank", "submitted")}
        ids = tuple(map(self._ids.__getitem__, rows.tolist()))
        gate, gates = self._gates(rows, ids, shut, barred)
        damaged_us = self._table.column("damaged")[rows]
        return Queue(
            job_ids=ids,
            versions=column["version"],
            tenant=column["tenant"],
            rank=column["rank"],
            submitted_us=column["submitted"],
            longest_us=self._table.column("longest")[rows],
            shape=self._table.column("shape")[rows],
            gate=gate,
            damaged=damaged_us >= 0,
            damaged_us=damaged_us,
            earlier_ms=self._table.column("earlier")[rows],
            since_us=self._table.column("since")[rows],
            shapes=tuple(self._shapes),
            gates=gates,
            avoid=self._avoided(ids, node_at),
            left_for=self._left(ids),
        )

    @property
    def avoids(self) -> bool:
        """Whether any job has nodes to avoid."""
        return bool(self._avoid)

    def next_rest_us(self, now_us: int) -> int | None:
        """When the next resting job may be placed again."""
        rests = self._table.column("rests")[self._table.rows()]
        later = rests[rests > now_us]
        return int(later.min()) if len(later) else None

    def _gates(
        self, rows: Ints, ids: tuple[str, ...], shut: Mapping[str, Reason], barred: Mapping[str, Reason]
    ) -> tuple[Ints, tuple[Reason, ...]]:
        """The last that applies counts: dataset, then window, then tenant."""
        gate, gates = np.full(len(rows), NO_GATE, dtype=np.int64), list[Reason]()
        if self._gated:
            at = {job_id: place for place, job_id in enumerate(ids) if job_id in self._gated}
            for job_id, place in at.items():
                gate[place] = len(gates)
                gates.append(self._gated[job_id])
        for column, numbers, reasons in (("window", self.windows, shut), ("tenant", self.tenants, barred)):
            codes = self._table.column(column)[rows]
            for word, reason in reasons.items():
                gate[codes == numbers.number(word)] = len(gates)
                gates.append(reason)
        return gate, tuple(gates)

    def _avoided(self, ids: tuple[str, ...], node_at: Mapping[str, int]) -> dict[int, tuple[int, ...]]:
        if not self._avoid:
            return {}
        places = {place: self._avoid[job_id] for place, job_id in enumerate(ids) if job_id in self._avoid}
        return {place: tuple(node_at[name] for name in names if name in node_at) for place, names in places.items()}

    def _left(self, ids: tuple[str, ...]) -> dict[int, str]:
        left = self._left_for
        return {place: left[job_id] for place, job_id in enumerate(ids) if job_id in left} if left else {}

    def _shape(self, demand: Demand) -> int:
        return self._shapes.setdefault(demand, len(self._shapes))

    def _tidy(self) -> None:
        """Forget shapes that nobody asks any more, once they are many."""
        if len(self._shapes) <= 2 * len(self.jobs) + SPARE_SHAPES:
            return
        self._shapes = {}
        for job_id, row in self.jobs.items():
            self._table.put(self._row_of[job_id], shape=self._shape(row.demand))
