"""A placement is checked again when it is committed; one that has become stale is dropped alone."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from contracts.base import Reason, ReasonCode, Tier
from contracts.jobs import JobPhase
from contracts.nodes import NodePhase
from contracts.requests import ClaimReply, ClaimRequest
from libs.bus import Call, PgLedger
from libs.db import Connection, Pool
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from services.scheduler import allotments, store
from services.scheduler.answers import as_if_submitted
from services.scheduler.commits import commit_preemptions
from services.scheduler.core.arrays import Placement, Preemption, PreemptWhy
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import Job, NodeLost, Seat
from services.scheduler.core.quota import commit_ms, counted_ms
from services.scheduler.cycle import Cycle
from services.scheduler.desk import MAX_ASKING, Board, BusyError, Desk
from services.scheduler.effects import carry_out
from services.scheduler.handlers import Scheduler
from services.scheduler.policies import PolicyBook
from services.scheduler.tenants import TenantBook
from tests.scheduler.harness import spec, write_tenants
from tests.scheduler.ledgers import LIMITS, NOW, commit, desk, know, phase, placement, submit, waited_for
from tests.waiting import until


async def test_a_fresh_placement_is_committed(ledger: PgLedger) -> None:
    await know(ledger, "n", 1)
    job = await submit(ledger, spec())
    assert await commit(ledger, placement(job, "n")) == {}
    assert await phase(ledger, job) is JobPhase.PLACED


@pytest.mark.parametrize("what", ["node changed", "node lost", "node unknown", "job changed", "card taken", "no cpu"])
async def test_a_stale_placement_is_dropped_whole(ledger: PgLedger, pool: Pool, what: str) -> None:
    """SC7: fit is checked again at the commit."""
    await know(ledger, "n", 1)
    job = await submit(ledger, spec(resources={"cards": 1, "cpu_milli": 3000}))
    planned = placement(job, "n", cards=(0,))
    match what:
        case "node changed":
            await know(ledger, "n", 2)
        case "node lost":
            await know(ledger, "n", 2, NodePhase.LOST)
            planned = placement(job, "n", 2, cards=(0,))
        case "node unknown":
            planned = placement(job, "m", cards=(0,))
        case "job changed":
            planned = replace(planned, version=2)
        case _:
            cpu_milli, card = (1000, 0) if what == "card taken" else (3000, 1)
            other = await submit(ledger, spec(resources={"cards": 1, "cpu_milli": cpu_milli}))
            assert await commit(ledger, placement(other, "n", cards=(card,))) == {}
    assert list(await commit(ledger, planned)) == [job.spec.job_id]
    assert await phase(ledger, job) is JobPhase.ACCEPTED
    async with pool.acquire() as conn:
        count = "SELECT count(*) FROM allocations WHERE job_id = $1"
        assert await conn.fetchval(count, job.spec.job_id) == 0


@pytest.mark.parametrize(
    ("before", "share", "said"),
    [
        ((600_000,), 500_000, "room on a card"),
        ((500_000, 500_000), 1, "room on a card"),
        ((1,), 1_000_000, "room on a card"),
        ((1_000_000,), 1, "room on a card"),
        ((1_000_000,), 1_000_000, "room on a card"),
        ((500_000,), 500_000, None),
    ],
)
async def test_shares_of_a_card_never_come_to_more_than_the_card(
    ledger: PgLedger, before: tuple[int, ...], share: int, said: str | None
) -> None:
    """All were planned for a free card, and are committed one after the other or together."""
    await know(ledger, "n", 1)
    for together in (False, True):
        jobs = [await submit(ledger, spec(resources={"cards": 1})) for _ in (*before, share)]
        planned = [on_card(job, int(together), part) for job, part in zip(jobs, (*before, share), strict=True)]
        stale = await commit(ledger, *planned) if together else {}
        for one in () if together else planned:
            stale |= await commit(ledger, one)
        last = jobs[-1].spec.job_id
        assert stale == ({} if said is None else {last: f"node n has no {said} left for job {last}"})
        assert await phase(ledger, jobs[-1]) is (JobPhase.PLACED if said is None else JobPhase.ACCEPTED)


def on_card(job: Job, card: int, share: int) -> Placement:
    """The job on this card of node n with this share."""
    return Placement(job.spec.job_id, job.version, (Seat("n", Tier.CENTRAL, (card,), share=share),), (("n", 1),))


@pytest.mark.parametrize(
    ("limits", "said"), [({"link_mbps": 700}, "link"), ({"cards": 1}, "room below its assessed limit"), ({}, None)]
)
async def test_the_assessed_limits_of_a_node_hold_at_the_commit(
    ledger: PgLedger, limits: dict[str, int], said: str | None
) -> None:
    """I5."""
    await know(ledger, "n", 1, limits=limits)
    jobs = [await submit(ledger, spec(resources={"cards": 1, "link_mbps": 400})) for _ in range(2)]
    second = jobs[1].spec.job_id
    stale = {} if said is None else {second: f"node n has no {said} left for job {second}"}
    assert await commit(ledger, placement(jobs[0], "n", cards=(0,))) == {}
    assert await commit(ledger, placement(jobs[1], "n", cards=(1,))) == stale


async def test_a_cordoned_node_takes_nothing_at_the_commit(ledger: PgLedger) -> None:
    await know(ledger, "n", 1, cordoned=True)
    job = await submit(ledger, spec())
    assert await commit(ledger, placement(job, "n")) == {job.spec.job_id: "node n has changed since version 1"}


async def test_no_more_than_a_few_dry_runs_wait_for_the_one_planner(ledger: PgLedger, tmp_path: Path) -> None:
    write_tenants(tmp_path / "t")
    there = desk(ledger, tmp_path / "t")
    await Cycle(there, cycle_s=1).once()
    row = as_if_submitted(spec(), NOW)
    asked = await asyncio.gather(*(there.what_if(row) for _ in range(MAX_ASKING + 3)), return_exceptions=True)
    refused = [one for one in asked if isinstance(one, BusyError)]
    assert (len(refused), str(refused[0])) == (3, "4 dry runs are waiting already: ask again in a moment")
    assert isinstance(await there.what_if(row), Board), "once they have been answered others may ask"


async def test_a_preemption_of_an_attempt_that_is_over_is_dropped(ledger: PgLedger) -> None:
    """A plan stops the attempt that it saw and no later one, and stops it once."""
    job = await placed(ledger)
    reason = Reason(code=ReasonCode.PREEMPTED, message="for j")
    planned = Preemption(job.spec.job_id, PreemptWhy.PRIORITY, "j", reason)
    for numbers in ([2], [1, 1], [1]):
        async with ledger.transaction() as tx:
            stale = await commit_preemptions(tx, [(planned, number) for number in numbers], NOW, LIMITS)
        said = f"attempt {numbers[0]} of job {job.spec.job_id} is over or being stopped"
        assert stale == {job.spec.job_id: said}
    async with ledger.transaction() as tx:
        stored = await store.load_job(tx.conn, job.spec.job_id)
    assert stored is not None
    assert (stored.job.phase, stored.job.preempted_at, stored.job.reason) == (JobPhase.WAITING, NOW, reason)


async def test_two_placements_never_exceed_the_slots_of_a_node(ledger: PgLedger, tmp_path: Path) -> None:
    """Both were planned while the node had room for one more; the second is stale, and the cycle says why it stays."""
    limits = replace(LIMITS, node_slots=1)
    await know(ledger, "n", 1)
    first, second = [await submit(ledger, spec(resources={"cards": 0})) for _ in range(2)]
    stale = await commit(ledger, placement(first, "n", cards=()), placement(second, "n", cards=()), limits=limits)
    assert stale == {second.spec.job_id: f"node n has no slots left for job {second.spec.job_id}"}
    assert await phase(ledger, second) is JobPhase.ACCEPTED
    write_tenants(tmp_path / "t")
    await Cycle(desk(ledger, tmp_path / "t", limits), cycle_s=1).once()
    async with ledger.transaction() as tx:
        stored = await store.load_job(tx.conn, second.spec.job_id)
    assert stored is not None
    reason = stored.job.reason
    assert reason is not None
    assert (reason.resource, reason.used, reason.asked, reason.allowed) == ("slots", 1, 1, 1)


async def placed(ledger: PgLedger) -> Job:
    """A job of two cards, placed on node n."""
    await know(ledger, "n", 1)
    job = await submit(ledger, spec())
    assert await commit(ledger, placement(job, "n")) == {}
    return job


async def test_a_claim_and_a_state_of_its_node_do_not_wait_for_each_other(ledger: PgLedger) -> None:
    """Both lock the node before the job; in different orders PostgreSQL would have to end one of them."""
    job = await placed(ledger)
    scheduler = Scheduler(Desk(ledger.transaction, TenantBook(Path()), PolicyBook(), LIMITS, SystemClock()))
    request = ClaimRequest(
        job_id=job.spec.job_id,
        tenant=job.spec.tenant,
        attempt=1,
        generation=1,
        member=0,
        node="n",
        incarnation=new_id(),
        endpoint="n:1",
    )

    async def claim() -> ClaimReply:
        async with ledger.transaction() as tx:
            return await scheduler.on_claim(tx, Call(request, "n", None))

    async with ledger.transaction() as tx:
        await allotments.lock_node(tx.conn, "n")
        claiming = asyncio.create_task(claim())
        await until(lambda: waited_for(tx.conn), 10, "the claim to wait for the node")
        assert await store.load_job(tx.conn, job.spec.job_id) is not None
    assert (await claiming).granted


async def test_progress_counts_from_the_node_that_holds_the_member(ledger: PgLedger) -> None:
    job = await placed(ledger)
    id_ = job.spec.job_id

    async def step_after(*points: tuple[str, int, int, str, int]) -> int | None:
        async with ledger.transaction() as tx:
            await store.save_progress(tx.conn, points)
            stored = await store.load_job(tx.conn, id_)
            assert stored is not None
            return stored.job.progress_step

    assert await step_after((id_, 1, 0, "impostor", 99), (id_, 1, 1, "n", 98), (id_, 2, 0, "n", 97)) is None
    assert await step_after((id_, 1, 0, "n", 3), (id_, 1, 0, "n", 5), (id_, 1, 0, "impostor", 99)) == 5
    assert await step_after((id_, 1, 0, "n", 4)) == 5


async def test_a_job_that_changes_sides_while_the_quota_is_read_counts_once(ledger: PgLedger) -> None:
    job = await placed(ledger)
    async with ledger.transaction() as tx:
        before = counted_ms(await store.load_standing(tx.conn, "acme", NOW), NOW)
    async with ledger.transaction() as tx:
        reading = _ThenRequeued(tx.conn, ledger, job.spec.job_id)
        during = counted_ms(await store.load_standing(cast("Connection", reading), "acme", NOW), NOW)
        await reading.requeue()
    async with ledger.transaction() as tx:
        stored = await store.load_job(tx.conn, job.spec.job_id)
        assert stored is not None
        assert stored.job.phase is JobPhase.WAITING
        after = counted_ms(await store.load_standing(tx.conn, "acme", NOW), NOW)
    assert before == during == after == commit_ms(job.spec)


class _ThenRequeued:
    """A connection behind whose back the job loses its attempt, after the second question if there is one."""

    def __init__(self, conn: Connection, ledger: PgLedger, job_id: str) -> None:
        self._conn, self._ledger, self._job_id = conn, ledger, job_id
        self._asked = 0

    def __getattr__(self, name: str) -> Any:
        async def ask(*args: Any, **options: Any) -> Any:
            answer = await getattr(self._conn, name)(*args, **options)
            self._asked += 1
            if self._asked == 2:
                await self.requeue()
            return answer

        return ask

    async def requeue(self) -> None:
        async with self._ledger.transaction() as tx:
            stored = await store.load_job(tx.conn, self._job_id)
            assert stored is not None
            decision = decide(stored.job, NodeLost("n", held=False), NOW, LIMITS)
            await carry_out(tx, stored, decision, actor="test", limits=LIMITS)


async def test_the_cycle_places_what_fits_in_one_round_and_says_why_the_rest_stays(
    ledger: PgLedger, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tenants") / "t"
    write_tenants(folder)
    cycle = Cycle(desk(ledger, folder), cycle_s=1)
    await know(ledger, "n", 1)
    jobs = [await submit(ledger, spec(resources={"cards": 1})) for _ in range(3)]
    await cycle.once()
    phases = [await phase(ledger, job) for job in jobs]
    assert phases == [JobPhase.PLACED, JobPhase.PLACED, JobPhase.WAITING]
    await cycle.once()
    async with ledger.transaction() as tx:
        stored = await store.load_job(tx.conn, jobs[2].spec.job_id)
        assert stored is not None
        assert stored.job.version == 2
        assert await tx.conn.fetchval("SELECT count(*) FROM changes") == 0
