"""What the scheduler answers when asked: of jobs and holdings from the tables, of the queue from the last plan."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from contracts import registry
from contracts.jobs import JobPhase, JobSpec
from contracts.queue import (
    DryRunQuery,
    DryRunReply,
    ExplainQuery,
    ExplainReply,
    Forecast,
    QueuedJob,
    QueuePage,
    QueueQuery,
    QuotaPage,
    QuotaQuery,
    Verdict,
)
from contracts.registry import NO_KEY
from contracts.requests import HoldingsPage, HoldingsQuery, JobQuery, JobReply, JobsPage, JobsQuery, ProblemCode
from libs.bus import App, Call, Problem, Tx
from libs.db import Connection
from services.scheduler import holdings, quotas, reads, store
from services.scheduler.core.model import CARD, SHARE_PER_MILLI, Job
from services.scheduler.desk import Board, BusyError, Desk
from services.scheduler.effects import members_of
from services.scheduler.explain import constraint_of, foretold, short_of, story
from services.scheduler.memory.rows import JobRow, moment, row_of
from services.scheduler.submissions import Submissions

PgTx = Tx[Connection]
WAITING = frozenset({JobPhase.ACCEPTED, JobPhase.WAITING, JobPhase.HELD})


@dataclass(frozen=True)
class Answers:
    """Handlers of queries and what they share."""

    desk: Desk
    submissions: Submissions

    def register(self, app: App[Connection]) -> None:
        """The table of what is answered."""
        app.serve(registry.QUERY_JOBS, self.on_jobs)
        app.serve(registry.QUERY_JOB, self.on_job)
        app.serve(registry.QUERY_HOLDINGS, self.on_holdings)
        app.serve(registry.QUERY_EXPLAIN, self.on_explain)
        app.serve(registry.QUERY_DRY_RUN, self.on_dry_run)
        app.serve(registry.QUERY_QUOTA, self.on_quota)
        app.serve(registry.QUERY_QUEUE, self.on_queue)

    async def on_jobs(self, tx: PgTx, call: Call[JobsQuery]) -> JobsPage:
        """A page of jobs, newest first."""
        return await reads.page_of_jobs(tx.conn, call.key, call.body)

    async def on_holdings(self, tx: PgTx, call: Call[HoldingsQuery]) -> HoldingsPage:
        """The admission ledger of some jobs."""
        return await holdings.page_of_holdings(tx.conn, call.key, call.body)

    async def on_job(self, tx: PgTx, call: Call[JobQuery]) -> JobReply:
        """One job and its transitions."""
        return await reads.one_job(tx.conn, call.key, call.body)

    async def on_explain(self, tx: PgTx, call: Call[ExplainQuery]) -> ExplainReply:
        """Why a job waits, by the last plan."""
        board, now = self._board(), self.desk.clock.now()
        await self.desk.look(tx.conn)
        job = await reads.find_job(tx.conn, call.key, call.body.job)
        waits, row = job.phase in WAITING, self.desk.snapshot.job(job.spec.job_id)
        if not waits or row is None:
            return _explained(job, board, waits=waits, now=now)
        told = await story(self.desk, board, row, call.key, now)
        return _explained(job, board, waits=True, now=now).model_copy(update=vars(told))

    async def on_dry_run(self, tx: PgTx, call: Call[DryRunQuery]) -> DryRunReply:
        """What would become of a submission, by the same judgement and the same plan."""
        spec, now = call.body.spec, self.desk.clock.now()
        if call.key not in {NO_KEY, spec.tenant}:
            msg = f"the subject names {call.key!r} but the job names {spec.tenant!r}: ask for your own tenant's jobs"
            raise Problem(ProblemCode.INVALID, msg)
        self._board()
        shapes = await self.submissions.shapes(tx.conn)
        taken = await store.is_known(tx.conn, spec.job_id)
        reason = await self.submissions.refusal(tx.conn, spec.tenant, spec, shapes, now, taken=taken)
        if reason is not None:
            binds, short = constraint_of(reason), short_of(reason)
            return DryRunReply(verdict=Verdict.REFUSED, reason=reason, constraint=binds, short=short, as_of=now)
        await self.desk.look(tx.conn)
        row = as_if_submitted(spec, now)
        try:
            return await self._foretold(row, await self.desk.what_if(row), call.key)
        except BusyError as error:
            raise Problem(ProblemCode.UNAVAILABLE, str(error)) from error

    async def _foretold(self, row: JobRow, board: Board, key: str) -> DryRunReply:
        placed = next((one for one in board.plan.placements if one.job_id == row.job_id), None)
        if placed is not None:
            return DryRunReply(verdict=Verdict.PLACED, members=members_of(placed.seats), as_of=board.as_of)
        told = await story(self.desk, board, row, key, board.as_of)
        position, waiting = board.positions.get(row.job_id), len(board.stays)
        reply = DryRunReply(verdict=Verdict.WAITS, position=position, waiting=waiting, as_of=board.as_of)
        return reply.model_copy(update=vars(told))

    async def on_quota(self, tx: PgTx, call: Call[QuotaQuery]) -> QuotaPage:
        """What tenants use of their quotas."""
        self._board()
        return await quotas.page(tx.conn, self.desk, call.key, call.body)

    async def on_queue(self, tx: PgTx, call: Call[QueueQuery]) -> QueuePage:
        """Whose turn it is, by the last plan; jobs that have got a place or ended since are left out."""
        del tx
        board, after = self._board(), _position(call.body.cursor)
        waiting = (
            _queued(row, number, board, foretold(self.desk, board, row, board.stays[job_id], board.as_of))
            for job_id, number in board.positions.items()
            if number > after and (row := self.desk.snapshot.line.jobs.get(job_id)) is not None
            if call.key in {NO_KEY, row.tenant}
        )
        jobs = _first(waiting, call.body.limit + 1)
        more, jobs = len(jobs) > call.body.limit, jobs[: call.body.limit]
        cursor = str(jobs[-1].position) if more else None
        return QueuePage(jobs=jobs, waiting=len(board.stays), as_of=board.as_of, cursor=cursor)

    def _board(self) -> Board:
        board = self.desk.board
        if board is None:
            text = "no plan has been made since this process leads: ask again in a moment"
            raise Problem(ProblemCode.UNAVAILABLE, text)
        return board


def _explained(job: Job, board: Board, *, waits: bool, now: datetime) -> ExplainReply:
    reason = job.reason
    return ExplainReply(
        job_id=job.spec.job_id,
        tenant=job.spec.tenant,
        name=job.spec.name,
        state=job.phase,
        waits=waits,
        reason=reason,
        constraint=constraint_of(reason) if waits and reason is not None else None,
        short=short_of(reason) if waits and reason is not None else None,
        position=board.positions.get(job.spec.job_id) if waits else None,
        waiting=len(board.stays),
        as_of=now,
    )


def _queued(row: JobRow, number: int, board: Board, forecast: Forecast) -> QueuedJob:
    return QueuedJob(
        position=number,
        job_id=row.job_id,
        tenant=row.tenant,
        name=row.name,
        kind=row.kind,
        priority=row.priority,
        state=row.phase,
        members=row.demand.members,
        cards=row.demand.cards,
        reason=board.stays[row.job_id].reason,
        forecast=forecast,
        submitted_at=row.submitted_at,
        share_milli=row.demand.share // SHARE_PER_MILLI if row.demand.share < CARD else None,
        share_memory_bytes=row.demand.share_memory_bytes or None,
        tenant_share_milli=board.shares_milli.get(row.tenant),
        waits_since=moment(row.since_us),
    )


def as_if_submitted(spec: JobSpec, now: datetime) -> JobRow:
    """The row that an accepted job would have."""
    nothing = dict.fromkeys(
        ("reason", "not_before", "damaged_at", "preempted_at", "leaving_for", "attempt", "saved_at")
    )
    columns = {"version": 1, "phase": JobPhase.ACCEPTED, "submitted_at": now, "avoid": (), "earlier_ms": 0}
    return row_of(spec, {**nothing, **columns}, {})


def _position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal() or not cursor.isascii():
        msg = f"cursor is {cursor!r}: pass the cursor of the page before, or none"
        raise Problem(ProblemCode.INVALID, msg)
    return int(cursor)


def _first(jobs: Iterable[QueuedJob], most: int) -> list[QueuedJob]:
    return [job for _, job in zip(range(most), jobs, strict=False)]
