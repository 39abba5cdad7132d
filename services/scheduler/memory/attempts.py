"""Live attempts in columns: what runs, for whom, and what it holds."""

from dataclasses import dataclass, field

import numpy as np

from services.scheduler.core.arrays import Demand, Ints, Running
from services.scheduler.core.quota import RANK
from services.scheduler.memory.nodes import Nodes
from services.scheduler.memory.rows import JobRow
from services.scheduler.memory.table import Table, Words, positions

SPARE_SHAPES = 1024


@dataclass(frozen=True)
class _Rows:
    attempt: int
    members: tuple[int, ...]
    held: tuple[int, ...]


@dataclass
class Attempts:
    """All attempts that are not over."""

    tenants: Words
    nodes: Nodes
    jobs: dict[str, JobRow] = field(default_factory=dict[str, JobRow])
    _attempt: Table = field(
        default_factory=lambda: Table(
            "tenant",
            "rank",
            "placed",
            "ends",
            "saved",
            "preemptible",
            "stopping",
            "shape",
            "preempted",
            "holds",
            "earlier",
            "waited",
            "moving",
        )
    )
    _member: Table = field(default_factory=lambda: Table("attempt", "node"))
    _held: Table = field(default_factory=lambda: Table("member", "card"))
    _rows_of: dict[str, _Rows] = field(default_factory=dict[str, _Rows])
    _ids: dict[int, str] = field(default_factory=dict[int, str])
    _on: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _shapes: dict[Demand, int] = field(default_factory=dict[Demand, int])

    def put(self, row: JobRow) -> None:
        """A job has an attempt."""
        self.drop(row.job_id)
        live = row.live
        assert live is not None
        attempt = self._attempt.add(
            tenant=self.tenants.number(row.tenant),
            rank=RANK[row.priority],
            placed=live.placed_us,
            ends=live.ends_us,
            saved=live.saved_us,
            preemptible=int(row.preemptible),
            stopping=int(live.stopping),
            shape=self._shapes.setdefault(row.demand, len(self._shapes)),
            preempted=row.preempted_us,
            earlier=row.earlier_ms,
            waited=max(0, live.placed_us - row.since_us),
            moving=int(live.stopping and row.damaged_us >= live.placed_us),
            holds=sum(len(seat.cards) * seat.share for seat in live.seats),
        )
        members, held = list[int](), list[int]()
        for seat in live.seats:
            self._on.setdefault(seat.node, set()).add(row.job_id)
            place = self.nodes.hold(seat, row.demand)
            if place is not None:
                members.append(self._member.add(attempt=attempt, node=place.node))
                held += [self._held.add(member=members[-1], card=card) for card in place.cards]
        self._rows_of[row.job_id] = _Rows(attempt, tuple(members), tuple(held))
        self.jobs[row.job_id], self._ids[attempt] = row, row.job_id

    def drop(self, job_id: str) -> None:
        """Its attempt is over, if it had one."""
        rows, row = self._rows_of.pop(job_id, None), self.jobs.pop(job_id, None)
        if rows is None or row is None or row.live is None:
            return
        for seat in row.live.seats:
            self._on[seat.node].discard(job_id)
            self.nodes.leave(seat, row.demand)
        self._attempt.drop(rows.attempt)
        for member in rows.members:
            self._member.drop(member)
        for held in rows.held:
            self._held.drop(held)
        del self._ids[rows.attempt]

    def on(self, node: str) -> list[str]:
        """Jobs with a member there."""
        return sorted(self._on.get(node, ()))

    def running(self, changed_us: int) -> Running:
        """The attempts, beside a fleet just made from the same nodes."""
        self._tidy()
        rows = self._attempt.rows()
        members = _in_order(self._member, "attempt", positions(rows, self._attempt.size))
        held = _in_order(self._held, "member", positions(members[0], self._member.size))
        ids = tuple(map(self._ids.__getitem__, rows.tolist()))
        column = {name: self._attempt.column(name)[rows] for name in _COLUMNS}
        return Running(
            job_ids=ids,
            tenant=column["tenant"],
            rank=column["rank"],
            placed_us=column["placed"],
            ends_us=column["ends"],
            saved_us=column["saved"],
            preemptible=column["preemptible"] > 0,
            stopping=column["stopping"] > 0,
            shape=column["shape"],
            shapes=tuple(self._shapes),
            member_attempt=members[1],
            member_node=self.nodes.node_at()[self._member.column("node")[members[0]]],
            held_member=held[1],
            held_card=self.nodes.card_at()[self._held.column("card")[held[0]]],
            leaving_for=tuple(self.jobs[job_id].leaving_for for job_id in ids),
            preempted_us=column["preempted"],
            changed_us=changed_us,
            earlier_ms=column["earlier"],
            waited_us=column["waited"],
            moving=column["moving"] > 0,
        )

    def _tidy(self) -> None:
        """Forget shapes that nobody has any more, once they are many."""
        if len(self._shapes) > 2 * len(self.jobs) + SPARE_SHAPES:
            self._shapes = {}
            for job_id, row in self.jobs.items():
                shape = self._shapes.setdefault(row.demand, len(self._shapes))
                self._attempt.put(self._rows_of[job_id].attempt, shape=shape)

    def used(self) -> tuple[Ints, Ints]:
        """What each tenant holds, in millionths of cards, and how many attempts it has."""
        rows, count = self._attempt.rows(), len(self.tenants)
        tenant = self._attempt.column("tenant")[rows]
        cards = np.zeros(count, dtype=np.int64)
        np.add.at(cards, tenant, self._attempt.column("holds")[rows])
        return cards, np.bincount(tenant, minlength=count).astype(np.int64)


_COLUMNS = (
    "tenant", "rank", "placed", "ends", "saved", "preemptible", "stopping", "shape", "preempted", "earlier", "waited",
    "moving",
)  # fmt: skip


def _in_order(table: Table, owner: str, owner_at: Ints) -> tuple[Ints, Ints]:
    """The rows of a table in the order of their owners, and where each owner stands."""
    rows = table.rows()
    at = owner_at[table.column(owner)[rows]]
    order = np.argsort(at, kind="stable")
    return rows[order], at[order]
