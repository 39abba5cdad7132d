"""What the cycle keeps in memory: unfinished jobs, nodes with what is in use, staged datasets; and their arrays.

Filled once at the start and afterwards only from the rows named by `changes`.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from contracts.base import Reason, Tier
from contracts.jobs import JobPhase, JobSpec
from contracts.nodes import NodePhase
from libs.db import Connection
from services.scheduler.core import quota
from services.scheduler.core.admission import TIERS, host_memory_bytes
from services.scheduler.core.placement import ANY_MODEL, UNKNOWN_MODEL, Fleet, Queue, Tenants
from services.scheduler.core.placement import TIERS as TIER_CODES

MAX_CHANGES = 20_000
MAX_QUEUE = 100_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACEABLE = frozenset({JobPhase.ACCEPTED, JobPhase.WAITING})

_TAKE_CHANGES = """
    DELETE FROM changes WHERE number IN (SELECT number FROM changes ORDER BY number LIMIT $1) RETURNING kind, id
"""
_JOBS = (
    "SELECT job_id, version, phase, spec, reason, not_before, submitted_at, avoid FROM jobs WHERE phase <> 'finished'"
)
_NODES = """
    SELECT n.node, n.version, n.state, n.tier, n.cpu_milli, n.memory_bytes, n.cards,
      (SELECT coalesce(sum(a.cpu_milli), 0)::bigint FROM allocations a WHERE a.node = n.node) AS used_cpu_milli,
      (SELECT coalesce(sum(a.memory_bytes), 0)::bigint FROM allocations a WHERE a.node = n.node) AS used_memory_bytes,
      (SELECT count(*) FROM allocations a WHERE a.node = n.node) AS used_slots,
      (SELECT coalesce(array_agg(c.card), '{}') FROM allocated_cards c WHERE c.node = n.node) AS used_cards
    FROM nodes n
"""


@dataclass(frozen=True)
class JobRow:
    """What placing a job takes to know."""

    spec: JobSpec
    version: int
    phase: JobPhase
    reason: Reason | None
    not_before: datetime | None
    submitted_at: datetime
    avoid: tuple[str, ...]


@dataclass(frozen=True)
class NodeRow:
    """A node, its cards as (index, model, memory), and what is in use."""

    version: int
    ready: bool
    tier: Tier
    cpu_milli: int
    memory_bytes: int
    cards: tuple[tuple[int, str, int], ...]
    used_cpu_milli: int
    used_memory_bytes: int
    used_slots: int
    used_cards: frozenset[int]


@dataclass
class Snapshot:
    """The cycle's memory."""

    jobs: dict[str, JobRow] = field(default_factory=dict[str, JobRow])
    nodes: dict[str, NodeRow] = field(default_factory=dict[str, NodeRow])
    datasets: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    loaded: bool = False

    async def refresh(self, conn: Connection) -> bool:
        """Take in what has changed; True when anything has."""
        changes = await conn.fetch(_TAKE_CHANGES, MAX_CHANGES)
        if not self.loaded:
            await self._load_jobs(conn, None)
            await self._load_nodes(conn, None)
            for row in await conn.fetch("SELECT tenant, name, version FROM datasets"):
                self.datasets.add((row["tenant"], row["name"], row["version"]))
            self.loaded = True
            return True
        named: dict[str, set[str]] = {"job": set(), "node": set(), "dataset": set()}
        for row in changes:
            named[row["kind"]].add(row["id"])
        if named["job"]:
            await self._load_jobs(conn, named["job"])
        if named["node"]:
            await self._load_nodes(conn, named["node"])
        for staged in named["dataset"]:
            tenant, name, version = staged.split("/")
            self.datasets.add((tenant, name, version))
        return bool(changes)

    async def _load_jobs(self, conn: Connection, ids: Collection[str] | None) -> None:
        rows = await (conn.fetch(_JOBS) if ids is None else conn.fetch(f"{_JOBS} AND job_id = ANY($1)", list(ids)))
        for job_id in ids or ():
            self.jobs.pop(job_id, None)
        for row in rows:
            self.jobs[row["job_id"]] = JobRow(
                spec=JobSpec.model_validate_json(row["spec"]),
                version=row["version"],
                phase=JobPhase(row["phase"]),
                reason=None if row["reason"] is None else Reason.model_validate_json(row["reason"]),
                not_before=row["not_before"],
                submitted_at=row["submitted_at"],
                avoid=tuple(row["avoid"]),
            )

    async def _load_nodes(self, conn: Connection, names: Collection[str] | None) -> None:
        rows = await (
            conn.fetch(_NODES) if names is None else conn.fetch(f"{_NODES} WHERE n.node = ANY($1)", list(names))
        )
        for row in rows:
            self.nodes[row["node"]] = NodeRow(
                version=row["version"],
                ready=row["state"] == NodePhase.READY,
                tier=Tier(row["tier"]),
                cpu_milli=row["cpu_milli"],
                memory_bytes=row["memory_bytes"],
                cards=tuple((index, model, memory) for index, model, memory in json.loads(row["cards"])),
                used_cpu_milli=row["used_cpu_milli"],
                used_memory_bytes=row["used_memory_bytes"],
                used_slots=row["used_slots"],
                used_cards=frozenset(row["used_cards"]),
            )

    def next_rest_end(self, now: datetime) -> datetime | None:
        """When the next resting job may be placed again."""
        rests = (
            row.not_before
            for row in self.jobs.values()
            if row.phase in _PLACEABLE and row.not_before is not None and row.not_before > now
        )
        return min(rests, default=None)

    def waiting(self, now: datetime) -> list[str]:
        """The jobs to be placed, without those that still rest; the most urgent MAX_QUEUE of them."""
        ids = [
            job_id
            for job_id, row in self.jobs.items()
            if row.phase in _PLACEABLE and (row.not_before is None or row.not_before <= now)
        ]
        ids.sort(key=lambda job_id: (_rank(self.jobs[job_id]), self.jobs[job_id].submitted_at, job_id))
        return ids[:MAX_QUEUE]

    def fleet(self, node_slots: int) -> Fleet:
        """The nodes and cards as arrays, in order of name and index; a node holds at most `node_slots` members."""
        names = sorted(self.nodes)
        nodes = [self.nodes[name] for name in names]
        models = tuple(sorted({model.casefold() for node in nodes for _, model, _ in node.cards}))
        codes = {model: code for code, model in enumerate(models)}
        cards = [
            (position, index, codes[model.casefold()], memory, index not in node.used_cards)
            for position, node in enumerate(nodes)
            for index, model, memory in sorted(node.cards)
        ]
        table = np.array(cards, dtype=np.int64).reshape(len(cards), 5)
        return Fleet(
            nodes=tuple(names),
            versions=_ints([node.version for node in nodes]),
            tier=_ints([TIER_CODES.index(node.tier) for node in nodes]),
            ready=np.array([node.ready for node in nodes], dtype=np.bool_),
            cpu_milli=_ints([node.cpu_milli for node in nodes]),
            memory_bytes=_ints([node.memory_bytes for node in nodes]),
            free_cpu_milli=_ints([node.cpu_milli - node.used_cpu_milli for node in nodes]),
            free_memory_bytes=_ints([node.memory_bytes - node.used_memory_bytes for node in nodes]),
            node_slots=node_slots,
            free_slots=_ints([max(0, node_slots - node.used_slots) for node in nodes]),
            models=models,
            card_node=table[:, 0],
            card_index=table[:, 1],
            card_model=table[:, 2],
            card_memory_bytes=table[:, 3],
            card_free=table[:, 4].astype(np.bool_),
        )

    def queue(self, ids: list[str], tenants: Tenants, models: tuple[str, ...]) -> Queue:
        """The jobs `ids` as arrays."""
        rows = [self.jobs[job_id] for job_id in ids]
        specs = [row.spec for row in rows]
        positions = {name: index for index, name in enumerate(tenants.names)}
        codes = {model: code for code, model in enumerate(models)}
        return Queue(
            job_ids=tuple(ids),
            versions=_ints([row.version for row in rows]),
            tenant=_ints([positions[spec.tenant] for spec in specs]),
            tiers=tuple(TIERS[spec.kind] for spec in specs),
            rank=_ints([_rank(row) for row in rows]),
            submitted_us=_ints([(row.submitted_at - _EPOCH) // timedelta(microseconds=1) for row in rows]),
            members=_ints([spec.members for spec in specs]),
            cards=_ints([spec.resources.cards for spec in specs]),
            model=_ints([_model(spec.resources.accelerator, codes) for spec in specs]),
            card_memory_bytes=_ints([spec.resources.memory_per_card_bytes for spec in specs]),
            cpu_milli=_ints([spec.resources.cpu_milli for spec in specs]),
            memory_bytes=_ints([host_memory_bytes(spec.resources) for spec in specs]),
            accelerator=tuple(spec.resources.accelerator for spec in specs),
            dataset=tuple(self._missing(spec) for spec in specs),
            avoid=tuple(row.avoid for row in rows),
        )

    def tenants(self, known: dict[str, quota.Tenant]) -> Tenants:
        """Quotas, and what live attempts hold, of every tenant that has a job."""
        names = tuple(sorted({row.spec.tenant for row in self.jobs.values()}))
        positions = {name: index for index, name in enumerate(names)}
        cards, jobs = [0] * len(names), [0] * len(names)
        for row in self.jobs.values():
            if row.phase not in _PLACEABLE and row.phase is not JobPhase.HELD:
                cards[positions[row.spec.tenant]] += row.spec.total_cards
                jobs[positions[row.spec.tenant]] += 1
        quotas = [known[name].quotas if name in known else None for name in names]
        return Tenants(
            names=names,
            known=np.array([entry is not None for entry in quotas], dtype=np.bool_),
            quota_cards=_ints([entry.cards if entry is not None else 0 for entry in quotas]),
            quota_jobs=_ints([entry.concurrent_jobs if entry is not None else 0 for entry in quotas]),
            used_cards=_ints(cards),
            used_jobs=_ints(jobs),
        )

    def _missing(self, spec: JobSpec) -> str | None:
        dataset = spec.dataset
        if dataset is None or (spec.tenant, dataset.name, dataset.version) in self.datasets:
            return None
        return f"{dataset.name} version {dataset.version}"


def _rank(row: JobRow) -> int:
    return quota.RANK[row.spec.effective_priority]


def _model(accelerator: str | None, codes: dict[str, int]) -> int:
    return ANY_MODEL if accelerator is None else codes.get(accelerator.casefold(), UNKNOWN_MODEL)


def _ints(values: list[int]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(values, dtype=np.int64)
