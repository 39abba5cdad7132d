"""Placements are committed in groups: what is stale is dropped alone, a group costs what one costs, and few wait."""

import signal
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contracts.base import Tier
from contracts.jobs import JobPhase
from contracts.registry import WORK_RUN
from libs.bus import PgLedger, Tx
from libs.db import Connection, Pool
from services.scheduler import store
from services.scheduler.commits import commit_placements
from services.scheduler.core.arrays import Placement
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import Cancel, Job, Seat
from services.scheduler.cycle import MEMBERS_PER_TRANSACTION, Cycle
from services.scheduler.effects import carry_out
from tests.scheduler.harness import PATIENCE_S, Stage, spec, write_tenants
from tests.scheduler.ledgers import LIMITS, NOW, commit, desk, know, phase, placement, submit, waited_for
from tests.waiting import until

_HOLD_LAST = """
    SELECT FROM scheduler.jobs WHERE phase = 'waiting' ORDER BY submitted_at DESC, job_id DESC LIMIT 1 FOR UPDATE
"""
MANY = 3 * MEMBERS_PER_TRANSACTION + 4  # a fourth group begins once one of the first two has been committed


async def submit_some(ledger: PgLedger, count: int, **changes: Any) -> list[Job]:
    return [await submit(ledger, spec(resources={"cards": 1}, **changes)) for _ in range(count)]


async def phases(ledger: PgLedger, jobs: list[Job]) -> list[JobPhase]:
    return [await phase(ledger, job) for job in jobs]


async def offered(ledger: PgLedger) -> list[str]:
    """The jobs that nodes are told to run, in order."""
    query = "SELECT aggregate FROM outbox WHERE stream = $1 ORDER BY number"
    async with ledger.transaction() as tx:
        return [row["aggregate"] for row in await tx.conn.fetch(query, WORK_RUN.stream.name)]


@asynccontextmanager
async def through(ledger: PgLedger, before: Callable[[str], Awaitable[None]]) -> AsyncGenerator[Tx[Connection], None]:
    """A transaction in which `before` is told of each statement before it runs."""
    async with ledger.transaction() as tx:
        tx.conn = _Told(tx.conn, before)  # pyright: ignore[reportAttributeAccessIssue] - what it hands on is a Connection's
        yield tx


class _Told:
    def __init__(self, conn: Connection, before: Callable[[str], Awaitable[None]]) -> None:
        self._conn, self._before = conn, before

    def __getattr__(self, name: str) -> Any:
        async def run(query: str, *args: Any, **options: Any) -> Any:
            await self._before(query)
            return await getattr(self._conn, name)(query, *args, **options)

        return run


async def test_a_stale_placement_among_others_is_dropped_alone(ledger: PgLedger) -> None:
    await know(ledger, "n", 1, cards=8)
    jobs = await submit_some(ledger, 5)
    async with ledger.transaction() as tx:
        stored = await store.load_job(tx.conn, jobs[1].spec.job_id)
        assert stored is not None
        await carry_out(tx, stored, decide(stored.job, Cancel(), NOW, LIMITS), actor="test", limits=LIMITS)
    planned = [placement(job, "n", cards=(card,)) for card, job in enumerate(jobs)]
    planned[3] = placement(jobs[3], "n", cards=(0,))
    stale = await commit(ledger, *planned, planned[0])
    first, cancelled, taken = (jobs[at].spec.job_id for at in (0, 1, 3))
    assert stale == {
        cancelled: f"job {cancelled} has changed since version 1",
        taken: f"node n has no room on a card left for job {taken}",
        first: f"job {first} has changed since version 1",
    }
    there = [JobPhase.PLACED, JobPhase.FINISHED, JobPhase.PLACED, JobPhase.ACCEPTED, JobPhase.PLACED]
    assert await phases(ledger, jobs) == there, "who is named twice is placed once"


async def test_a_node_that_has_changed_keeps_only_its_own_placements_out(ledger: PgLedger) -> None:
    for node in ("a", "b"):
        await know(ledger, node, 1, cards=4)
    on_a, on_b = await submit_some(ledger, 2), await submit_some(ledger, 2)
    gang = await submit(ledger, spec(members=2, resources={"cards": 1}))
    seats = tuple(Seat(node, Tier.CENTRAL, (3,)) for node in ("a", "b"))
    planned = [
        Placement(gang.spec.job_id, gang.version, seats, (("a", 1), ("b", 1))),
        *(placement(job, "a", cards=(card,)) for card, job in enumerate(on_a)),
        *(placement(job, "b", cards=(card,)) for card, job in enumerate(on_b)),
    ]
    await know(ledger, "b", 2, cards=4)
    said = "node b has changed since version 1"
    assert await commit(ledger, *planned) == {job.spec.job_id: said for job in (gang, *on_b)}
    assert set(await phases(ledger, on_a)) == {JobPhase.PLACED}
    assert set(await phases(ledger, [gang, *on_b])) == {JobPhase.ACCEPTED}


async def test_members_of_a_gang_on_one_node_count_together(ledger: PgLedger) -> None:
    await know(ledger, "n", 1)
    gang = await submit(ledger, spec(members=2, resources={"cards": 1, "cpu_milli": 2001}))
    seats = tuple(Seat("n", Tier.CENTRAL, (card,)) for card in (0, 1))
    id_ = gang.spec.job_id
    stale = await commit(ledger, Placement(id_, gang.version, seats, (("n", 1),)))
    assert stale == {id_: f"node n has no processors left for job {id_}"}


async def test_a_group_takes_no_more_statements_than_one_placement(ledger: PgLedger) -> None:
    await know(ledger, "n", 1, cards=MEMBERS_PER_TRANSACTION + 1)
    jobs = await submit_some(ledger, MEMBERS_PER_TRANSACTION + 1)
    planned = [placement(job, "n", cards=(card,)) for card, job in enumerate(jobs)]
    taken: list[list[str]] = []
    for group in (planned[:1], planned[1:]):
        statements: list[str] = []

        async def count(query: str, into: list[str] = statements) -> None:
            into.append(query)

        async with through(ledger, count) as tx:
            assert await commit_placements(tx, group, NOW, LIMITS) == {}
        taken.append(statements)
    alone, together = taken
    assert together == alone
    assert len(together) / MEMBERS_PER_TRANSACTION < 0.5
    assert set(await phases(ledger, jobs)) == {JobPhase.PLACED}


async def test_a_holder_that_nobody_saw_keeps_out_nobody_else(ledger: PgLedger, pool: Pool, tmp_path: Path) -> None:
    """Whoever gave the card away did not lock the node; the database has the last word, and one job pays for it."""
    write_tenants(tmp_path / "t")
    await know(ledger, "n", 1, cards=3)
    jobs = await submit_some(ledger, 3)
    came: list[str] = []

    async def take_behind(query: str) -> None:
        if "INSERT INTO allocated_cards" in query and not came:
            came.append("ghost")
            async with pool.acquire() as conn:
                await conn.execute("INSERT INTO allocations VALUES ('ghost', 1, 0, 'n', 0, 0, 0)")
                await conn.execute("INSERT INTO allocated_cards VALUES ('n', 1, 'ghost', 1, 0)")

    there = desk(ledger, tmp_path / "t")
    there.transaction = partial(through, ledger, take_behind)
    await Cycle(there, cycle_s=1).once()
    assert came == ["ghost"]
    (out,) = [job for job in jobs if await phase(ledger, job) is JobPhase.ACCEPTED]
    async with pool.acquire() as conn:
        held = await conn.fetch("SELECT card FROM allocated_cards WHERE job_id <> 'ghost' ORDER BY card")
    assert [row["card"] for row in held] == [0, 2]
    assert sorted(await offered(ledger)) == sorted(
        job.spec.job_id for job in jobs if job.spec.job_id != out.spec.job_id
    )


async def test_a_job_of_a_higher_class_waits_for_some_commits_only(
    ledger: PgLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of ten is carried out four at a time; who comes meanwhile is planned with the rest, by its class."""
    for name in ("MEMBERS_PER_TRANSACTION", "TRANSACTIONS_PER_PLAN"):
        monkeypatch.setattr(f"services.scheduler.cycle.{name}", 2)
    write_tenants(tmp_path / "t")
    await know(ledger, "n", 1, cards=11)
    jobs = await submit_some(ledger, 10)
    cycle = Cycle(desk(ledger, tmp_path / "t"), cycle_s=1)
    counts: list[int] = []
    for _ in range(3):
        await cycle.once()
        counts.append((await phases(ledger, jobs)).count(JobPhase.PLACED))
        if len(counts) == 1:
            jobs += await submit_some(ledger, 1, priority="online")
    assert counts == [4, 8, 11]
    second = (await offered(ledger))[4:8]  # its two transactions are committed at once, in either order
    assert jobs[-1].spec.job_id in second, "in the second round, before those that came earlier"


@pytest.mark.timeout(240)
async def test_a_scheduler_killed_amid_its_commits_loses_and_doubles_nothing(stage: Stage) -> None:
    """Some groups are committed, one is under way (a row that it needs is held), and the process is gone."""
    nodes = [stage.node(name) for name in ("central-1", "central-2")]
    for node in nodes:
        node.cards = MANY // 2
    stage.tenant("acme", quotas={"cards": 1})
    await stage.read("tenants")
    await stage.ready("central-1", "central-2")
    jobs = [await stage.submit(spec(resources={"cards": 1})) for _ in range(MANY)]
    await until(lambda: _all_but_one_wait(stage.db), PATIENCE_S, "all jobs but one to wait")
    async with stage.db.transaction():
        await stage.db.execute(_HOLD_LAST)
        stage.tenant("acme", quotas={"cards": MANY, "concurrent_jobs": MANY})
        await until(lambda: waited_for(stage.db), PATIENCE_S, "a group to wait for the row of its job")
        placed = await stage.db.fetchval("SELECT count(*) FROM scheduler.allocations")
        stage.scheduler.end(signal.SIGKILL)
    assert 1 < placed < MANY
    stage.scheduler.start()
    for job in jobs:
        await stage.told(job, "placed")
        assert stage.story(job).count("placed") == 1
    await until(lambda: sum(len(node.runs) for node in nodes) >= MANY, PATIENCE_S, "all offers to come")
    assert Counter(run.job_id for node in nodes for run in node.runs) == Counter(job.job_id for job in jobs)
    for table in ("allocations", "allocated_cards"):
        assert await stage.db.fetchval(f"SELECT count(*) FROM scheduler.{table}") == MANY  # noqa: S608 - literals


async def _all_but_one_wait(conn: Connection) -> bool:
    return await conn.fetchval("SELECT count(*) FROM scheduler.jobs WHERE phase = 'waiting'") == MANY - 1
