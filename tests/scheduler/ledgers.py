"""The scheduler's rows without its process: nodes and jobs put there, placements committed as the cycle does it."""

from pathlib import Path
from typing import Any

from contracts.base import Tier
from contracts.jobs import JobPhase, JobSpec
from contracts.nodes import Card, CardSource, NodeFacts, NodePhase, NodeState
from libs.bus import PgLedger
from libs.db import Connection
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from services.scheduler import allotments, store
from services.scheduler.commits import commit_placements
from services.scheduler.core.admission import admit
from services.scheduler.core.arrays import Placement
from services.scheduler.core.model import Intent, Job, Limits, Seat
from services.scheduler.core.quota import commit_ms
from services.scheduler.desk import Desk
from services.scheduler.effects import carry_out
from services.scheduler.policies import PolicyBook
from services.scheduler.store import Stored
from services.scheduler.tenants import TenantBook

NOW = SystemClock().now()
LIMITS = Limits()


def desk(ledger: PgLedger, tenants: Path, limits: Limits = LIMITS) -> Desk:
    return Desk(ledger.transaction, TenantBook.read(tenants), PolicyBook(), limits, SystemClock())


async def know(
    ledger: PgLedger, name: str, version: int, state: NodePhase = NodePhase.READY, cards: int = 2, **more: Any
) -> None:
    held = [
        Card(index=i, uuid=f"{name}-{i}", model="H100", memory_bytes=1, source=CardSource.DECLARED)
        for i in range(cards)
    ]
    facts = NodeFacts(
        node=name,
        tier=Tier.CENTRAL,
        zone="z",
        address="127.0.0.1",
        version="1",
        cpu_milli=4000,
        memory_bytes=1,
        cards=held,
    )
    seen = NodeState(node=name, version=version, state=state, facts=facts, incarnation=new_id(), since=NOW, **more)
    async with ledger.transaction() as tx:
        await allotments.save_node(tx.conn, seen)


async def submit(ledger: PgLedger, job: JobSpec) -> Job:
    decision = admit(job, Intent(), NOW, LIMITS)
    async with ledger.transaction() as tx:
        stored = Stored(decision.job, "0", None, commit_ms(job))
        await carry_out(tx, stored, decision, actor="test", limits=LIMITS, new=True)
    return decision.job


async def phase(ledger: PgLedger, job: Job) -> JobPhase:
    async with ledger.transaction() as tx:
        stored = await store.load_job(tx.conn, job.spec.job_id)
        assert stored is not None
        return stored.job.phase


def placement(job: Job, node: str, version: int = 1, cards: tuple[int, ...] = (0, 1)) -> Placement:
    return Placement(job.spec.job_id, job.version, (Seat(node, Tier.CENTRAL, cards),), ((node, version),))


async def commit(ledger: PgLedger, *placements: Placement, limits: Limits = LIMITS) -> dict[str, str]:
    """Commit them in one transaction; why some are stale, by job."""
    async with ledger.transaction() as tx:
        return await commit_placements(tx, placements, NOW, limits)


async def waited_for(conn: Connection) -> bool:
    """Whether somebody waits for a lock that this session holds."""
    query = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
    return bool(await conn.fetchval(query))
