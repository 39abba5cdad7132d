"""What the cycle keeps in memory: unfinished jobs, nodes with what is in use, staged datasets, the workload as it came.

Filled once at the start and afterwards only from the rows named by `changes`; what is in use follows from the attempts
themselves, so that jobs and nodes never tell different stories.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from contracts.base import Reason
from contracts.jobs import JobPhase, JobSpec
from libs.db import Connection, Row
from services.scheduler.core import words
from services.scheduler.core.admission import CardGroup, NodeShape
from services.scheduler.core.arrays import CARD, NEVER, Demand, Fleet, Queue, Running, Tenants
from services.scheduler.core.demands import demand_of
from services.scheduler.core.packing import Mix
from services.scheduler.core.quota import Tenant
from services.scheduler.memory.attempts import Attempts
from services.scheduler.memory.line import Line
from services.scheduler.memory.nodes import Nodes
from services.scheduler.memory.rows import JobRow, NodeRow, job_row, micros, moment, node_row
from services.scheduler.memory.table import Words
from services.scheduler.memory.tenancy import Usage, barred, tenants_of
from services.scheduler.policies import Rules

MAX_CHANGES = 20_000
MAX_SHAPES = 100_000
MAX_ARRIVALS = 100_000
HALF_LIVES = 10

# Rows that somebody else is taking at this moment are left to them: they put them into the same memory.
_TAKE_CHANGES = """
    DELETE FROM changes
    WHERE number IN (SELECT number FROM changes ORDER BY number LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING kind, id
"""
_JOB_COLUMNS = """
    spec, version, phase, attempts, reason, not_before, submitted_at, avoid, damaged_at, preempted_at, leaving_for,
    attempt, saved_at, CASE WHEN attempts = 0 THEN 0 ELSE (
      SELECT coalesce(sum(cards * share_milli * extract(epoch FROM held_to - held_from)), 0)::bigint
      FROM holdings WHERE holdings.job_id = jobs.job_id) END AS earlier_ms
"""
_JOBS = f"SELECT job_id, {_JOB_COLUMNS} FROM jobs WHERE phase <> 'finished'"  # noqa: S608 - columns above
_ARRIVED = "SELECT spec FROM jobs ORDER BY submitted_at DESC, job_id DESC LIMIT $1"
_NODES = "SELECT * FROM nodes"
_USED = """
    SELECT tenant, sum(cards * share_milli / 1000.0 * extract(epoch FROM coalesce(held_to, $1) - held_from) * 1000
      * power(0.5, extract(epoch FROM $1 - coalesce(held_to, $1)) / $2))::float8 AS used_ms
    FROM holdings WHERE held_to IS NULL OR held_to > $3 GROUP BY tenant
"""


@dataclass(frozen=True)
class Scenery:
    """The input of one plan."""

    fleet: Fleet
    queue: Queue
    running: Running
    tenants: Tenants


@dataclass
class Snapshot:
    """The cycle's memory."""

    tenants: Words = field(default_factory=Words)
    nodes: Nodes = field(default_factory=Nodes)
    datasets: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    usage: Usage = field(default_factory=Usage)
    mix: Mix = field(default_factory=Mix)
    loaded: bool = False
    changed_us: int = NEVER
    _arrivals: list[Demand] = field(default_factory=list[Demand])
    _shapes: dict[Demand, Demand] = field(default_factory=dict[Demand, Demand])
    _pools: tuple[Rules, int, Mapping[str, str]] | None = None
    _node_shapes: tuple[Rules, tuple[NodeShape, ...]] | None = None

    def __post_init__(self) -> None:
        """The tables beside each other."""
        self.line = Line(self.tenants)
        self.attempts = Attempts(self.tenants, self.nodes)
        self.others: dict[str, JobRow] = {}

    def job(self, job_id: str) -> JobRow | None:
        """An unfinished job."""
        return self.line.jobs.get(job_id) or self.attempts.jobs.get(job_id) or self.others.get(job_id)

    async def refresh(self, conn: Connection, now: datetime, half_life_s: int) -> bool:
        """Take in what has changed; True when a plan might come out otherwise."""
        self.learn()
        changes = await conn.fetch(_TAKE_CHANGES, MAX_CHANGES)
        if not self.loaded:
            await self._load(conn, now, half_life_s)
            return True
        named: dict[str, set[str]] = {"job": set(), "node": set(), "dataset": set()}
        for row in changes:
            named[row["kind"]].add(row["id"])
        if named["node"]:
            await self._load_nodes(conn, named["node"], now)
        self._stage(named["dataset"])
        moved = bool(named["job"]) and await self._load_jobs(conn, named["job"], now)
        return moved or bool(named["node"] or named["dataset"])

    async def _load(self, conn: Connection, now: datetime, half_life_s: int) -> None:
        for row in await conn.fetch("SELECT tenant, name, version FROM datasets"):
            self.datasets.add((row["tenant"], row["name"], row["version"]))
        await self._load_nodes(conn, None, now)
        await self._load_jobs(conn, None, now)
        await self._load_usage(conn, now, half_life_s)
        arrived = await conn.fetch(_ARRIVED, MAX_ARRIVALS)
        self.arrive(_demand_of(row["spec"]) for row in reversed(arrived))
        self.learn()
        self.loaded = True

    def take_node(self, node: NodeRow, now: datetime) -> None:
        """Put a node; where its cards have changed, those who sit there get up and sit down again."""
        known = self.nodes.rows.get(node.node)
        if known is None or known.holds != node.holds:
            self._node_shapes = None
        there = [] if self.nodes.fits(node) else self.attempts.on(node.node)
        jobs = [self.attempts.jobs[job_id] for job_id in there]
        for job in jobs:
            self.attempts.drop(job.job_id)
        self.nodes.put(node)
        for job in jobs:
            self.attempts.put(job)
        self.changed_us = micros(now)

    def take_job(self, job_id: str, row: JobRow | None, now: datetime) -> bool:
        """Put a job, or None when it is over; False when nothing but what is said of it has changed."""
        before = self.job(job_id)
        if _changed(before, row):
            self.changed_us = micros(now)
        self._put(job_id, row)
        return before is None or row is None or before.substance != row.substance

    async def _load_nodes(self, conn: Connection, names: Collection[str] | None, now: datetime) -> None:
        rows = await (
            conn.fetch(_NODES) if names is None else conn.fetch(f"{_NODES} WHERE node = ANY($1)", list(names))
        )
        for row in rows:
            self.take_node(node_row(row), now)

    async def _load_jobs(self, conn: Connection, ids: Collection[str] | None, now: datetime) -> bool:
        """Read jobs; False when nothing but what is said of them has changed."""
        rows = await (conn.fetch(_JOBS) if ids is None else conn.fetch(f"{_JOBS} AND job_id = ANY($1)", list(ids)))
        found: dict[str, Row] = {row["job_id"]: row for row in rows}
        moved = False
        for job_id in sorted(found if ids is None else ids):
            row = found.get(job_id)
            job = None if row is None else job_row(row, self._shapes)
            if len(self._shapes) > MAX_SHAPES:
                self._shapes.clear()
            if self.loaded and row is not None and job is not None and self.job(job_id) is None and not row["attempts"]:
                self.arrive([job.demand])
            moved = self.take_job(job_id, job, now) or moved
        return moved

    def rules_changed(self, now: datetime) -> None:
        """Quotas or policy are others."""
        self.changed_us = micros(now)

    def _put(self, job_id: str, row: JobRow | None) -> None:
        self.line.drop(job_id)
        self.attempts.drop(job_id)
        self.others.pop(job_id, None)
        if row is None:
            return
        if row.placeable:
            self.line.put(row, self._missing(row))
        elif row.live is not None:
            self.attempts.put(row)
        else:
            self.others[job_id] = row

    def _missing(self, row: JobRow) -> bool:
        return row.dataset is not None and (row.tenant, *row.dataset) not in self.datasets

    def _stage(self, names: Iterable[str]) -> None:
        """Datasets that are there now, and the jobs that waited for them."""
        staged = {(tenant, name, version) for tenant, name, version in (one.split("/") for one in names)}
        if not staged:
            return
        self.datasets |= staged
        for row in list(self.line.jobs.values()):
            if row.dataset is not None and (row.tenant, *row.dataset) in staged:
                self.line.put(row, missing=False)

    async def _load_usage(self, conn: Connection, now: datetime, half_life_s: int) -> None:
        if half_life_s > 0:
            since = now - timedelta(seconds=HALF_LIVES * half_life_s)
            rows = await conn.fetch(_USED, now, float(half_life_s), since)
            self.usage = Usage(micros(now), {row["tenant"]: row["used_ms"] for row in rows})

    def arrive(self, demands: Iterable[Demand]) -> None:
        """Jobs have come that ask this, the oldest first."""
        self._arrivals.extend(demands)

    def learn(self) -> None:
        """Learn from arrivals, step by step: whoever begins anew comes to the same as who was there all the time."""
        while (wanted := self.mix.due - round(self.mix.seen)) <= len(self._arrivals):
            self.mix = self.mix.learn(self._arrivals[:wanted])
            del self._arrivals[:wanted]

    # ---- for plans and answers ---------------------------------------------------------------------------------------

    def scenery(
        self, known: Mapping[str, Tenant], rules: Rules, node_slots: int, now: datetime, extra: JobRow | None = None
    ) -> Scenery:
        """The arrays of a plan; `extra` is a job that is not there."""
        if extra is not None:
            self.line.put(extra, self._missing(extra))
        try:
            return self._scenery(known, rules, node_slots, now)
        finally:
            if extra is not None:
                self.line.drop(extra.job_id)

    def _scenery(self, known: Mapping[str, Tenant], rules: Rules, node_slots: int, now: datetime) -> Scenery:
        for name in known:
            self.tenants.number(name)
        fleet = self.nodes.fleet(node_slots, self.pools(rules))
        held = self.attempts.used()
        usage = self.usage.advance(self.tenants.words, held[0], micros(now), rules.policy.half_life_s)
        tenants = tenants_of(self.tenants, known, rules, held, usage, fleet.pools)
        node_at = {name: at for at, name in enumerate(fleet.nodes)} if self.line.avoids else {}
        queue = self.line.queue(micros(now), self.shut(rules, now), barred(known), node_at)
        return Scenery(fleet, queue, self.attempts.running(self.changed_us), tenants)

    def held(self, tenant: str) -> tuple[int, int]:
        """What a tenant holds, in millionths of cards, and how many attempts it has."""
        number = self.tenants.number(tenant)
        cards, attempts = self.attempts.used()
        return int(cards[number]), int(attempts[number])

    def pools(self, rules: Rules) -> Mapping[str, str]:
        """Which pool each node is in; the same object while neither nodes nor rules change."""
        if self._pools is None or self._pools[0] is not rules or self._pools[1] != len(self.nodes.rows):
            self._pools = rules, len(self.nodes.rows), rules.pools_of(self.nodes.rows)
        return self._pools[2]

    def shut(self, rules: Rules, now: datetime) -> dict[str, Reason]:
        """The windows that jobs wait for."""
        found: dict[str, Reason] = {}
        for name in self.line.windows.words:
            window = rules.windows.get(name)
            if window is None:
                found[name] = words.unknown_window(name, rules.windows)
            elif not window.covers(now):
                found[name] = words.waiting_for_window(name, window.turns(now))
        return found

    def next_turn(self, rules: Rules, now: datetime) -> datetime | None:
        """When time alone changes who may be placed: a rest ends, a window opens or closes."""
        rest = self.line.next_rest_us(micros(now))
        windows = (rules.windows[name] for name in self.line.windows.words if name in rules.windows)
        moments = [moment(rest) if rest is not None else None, *(window.turns(now) for window in windows)]
        return min((at for at in moments if at is not None), default=None)

    def shapes(self, rules: Rules) -> tuple[NodeShape, ...]:
        """The different nodes there are, made anew only when a node has changed."""
        if self._node_shapes is None or self._node_shapes[0] is not rules:
            pools = self.pools(rules)
            shapes = {shape_of(row, pools.get(name)) for name, row in self.nodes.rows.items()}
            self._node_shapes = rules, tuple(sorted(shapes, key=repr))
        return self._node_shapes[1]


def shape_of(row: NodeRow, pool: str | None) -> NodeShape:
    """What a node has when nothing runs on it."""
    counts = Counter((card.model, card.memory_bytes) for card in row.cards)
    groups = tuple(CardGroup(model, memory, count) for (model, memory), count in sorted(counts.items()))
    limit = None if row.limit == NEVER else row.limit // CARD
    link = None if row.link_mbps == NEVER else row.link_mbps
    return NodeShape(row.tier, row.cpu_milli, row.memory_bytes, groups, pool, limit, link)


def _demand_of(spec: str) -> Demand:
    return demand_of(JobSpec.model_validate_json(spec))


def _changed(before: JobRow | None, after: JobRow | None) -> bool:
    """Whether something else than the scheduler changed a job: it came, ended by itself, or was asked to change."""
    if before is None or after is None:
        return True
    ended = before.live is not None and not before.live.stopping and after.live is None
    asked = before.priority != after.priority or (before.phase == JobPhase.HELD) != (after.phase == JobPhase.HELD)
    return ended or asked
