"""What the scheduler answers when asked: of jobs and holdings from the tables, of the queue from the last plan."""

from dataclasses import dataclass

from contracts import registry
from contracts.queue import (
    DryRunQuery,
    DryRunReply,
    ExplainQuery,
    ExplainReply,
    QueuePage,
    QueueQuery,
    QuotaPage,
    QuotaQuery,
)
from contracts.requests import HoldingsPage, HoldingsQuery, JobQuery, JobReply, JobsPage, JobsQuery, ProblemCode
from libs.bus import App, Call, Problem, Tx
from libs.db import Connection
from services.scheduler import holdings, reads

PgTx = Tx[Connection]


@dataclass(frozen=True)
class Answers:
    """Handlers of queries and what they share."""

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

    async def on_explain(self, tx: PgTx, call: Call[ExplainQuery]) -> ExplainReply:  # noqa: ARG002 - TODO
        """Why a job waits."""
        raise _no_plan_yet()

    async def on_dry_run(self, tx: PgTx, call: Call[DryRunQuery]) -> DryRunReply:  # noqa: ARG002 - TODO
        """What would become of a submission."""
        raise _no_plan_yet()

    async def on_quota(self, tx: PgTx, call: Call[QuotaQuery]) -> QuotaPage:  # noqa: ARG002 - TODO
        """What tenants use of their quotas."""
        raise _no_plan_yet()

    async def on_queue(self, tx: PgTx, call: Call[QueueQuery]) -> QueuePage:  # noqa: ARG002 - TODO
        """Whose turn it is."""
        raise _no_plan_yet()


def _no_plan_yet() -> Problem:
    text = "no plan has been made since this process leads: ask again in a moment"
    return Problem(ProblemCode.UNAVAILABLE, text)
