"""Usage and invoices on a whole stack: what was held is what is measured, what is measured is what is billed.

Nodes that lie are played by plain nats-py: their rows are kept with a reason, shown, and never billed.
"""

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.client import Client as Nats
from nats.js.client import JetStreamContext
from prometheus_client.parser import text_string_to_metric_families

from contracts import registry
from contracts.invoices import Invoice, InvoicesPage, InvoicesQuery
from contracts.jobs import Outcome, Resources
from contracts.registry import SERVICES
from contracts.requests import HoldingsQuery
from contracts.usage import (
    AttemptUsage,
    CloseRequest,
    RefusedQuery,
    RowFault,
    SamplesQuery,
    UsagePage,
    UsageQuery,
    UsageRow,
)
from deploy.local.fleet import NODES
from deploy.local.part import http_get
from deploy.local.ports import metrics_port
from libs.cli.session import connected
from libs.cli.verify import verify
from libs.kit.ids import new_id
from tests.e2e.fleet import SHORT, TENANT, Fleet, fleet
from tests.waiting import until

pytestmark = [pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]

PERIOD_S = 1
WINDOW_MS = PERIOD_S * 1000
SETTINGS = {**SHORT, "FARSIDE_USAGE_PERIOD_S": str(PERIOD_S), "FARSIDE_METERING_RECONCILE_S": "0.5"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Fleet]:
    folder: Path = tmp_path_factory.mktemp("accounts")
    async with fleet(folder, SETTINGS) as it:
        yield it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def job(running: Fleet) -> str:
    """A job of two cards that has run to its end and whose usage has arrived."""
    job_id = await running.submit(steps=30, resources=Resources(cards=2))
    assert (await running.finished(job_id)).outcome is Outcome.SUCCEEDED
    await until(lambda: balanced(running, job_id), 30, "usage and the scheduler's ledger to agree")
    return job_id


async def usage(running: Fleet, job_id: str) -> list[AttemptUsage]:
    page: UsagePage = await running.client.request(
        registry.QUERY_USAGE, UsageQuery(job_id=job_id), key=TENANT, timeout_s=20
    )
    return page.attempts


async def balanced(running: Fleet, job_id: str) -> bool:
    found = await usage(running, job_id)
    return bool(found) and all(
        not one.holding and one.difference_gpu_ms is not None and abs(one.difference_gpu_ms) <= 2 * WINDOW_MS
        for one in found
    )


async def close(running: Fleet) -> Invoice:
    close_id = new_id()
    await running.client.request(registry.CALL_CLOSE, CloseRequest(close_id=close_id), key=TENANT, timeout_s=20)

    async def issued() -> Invoice | None:
        page: InvoicesPage = await running.client.request(
            registry.QUERY_INVOICES, InvoicesQuery(close_id=close_id), key=TENANT, timeout_s=20
        )
        return page.invoices[0] if page.invoices else None

    return await until(issued, 30, "the invoice")


class Liar:
    """An agent that says of `central-1` what it likes."""

    def __init__(self, nc: Nats, row: UsageRow) -> None:
        self._js = JetStreamContext(nc)
        self._row = row

    async def say(self, **changes: Any) -> str:
        """One measured row; returns the job it names."""
        row = json.loads(self._row.model_dump_json()) | changes
        body = {
            "node": "central-1",
            "incarnation": new_id(),
            "period_s": PERIOD_S,
            "window_start": row["window_start"],
            "rows": [row],
            "measured_at": row["window_end"],
        }
        headers = {
            "content-type": "application/json",
            "ce-specversion": "1.0",
            "ce-type": "io.farside.usage.measured.v1",
            "ce-source": "/liar",
            "ce-id": new_id(),
            "ce-time": "2030-01-01T00:00:00Z",
            "ce-subject": "central-1",
            "ce-sequence": "1",
            "ce-actor": "liar",
        }
        await self._js.publish("usage.v1.measured.central-1", json.dumps(body).encode(), headers=headers)
        return row["job_id"]


def at(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def later(row: UsageRow, seconds: float) -> dict[str, Any]:
    """The next whole window of the grid, `seconds` on."""
    start = row.window_end.replace(microsecond=0) + timedelta(seconds=seconds)
    return {"window_start": at(start), "window_end": at(start + timedelta(seconds=PERIOD_S)), "quantity": WINDOW_MS}


async def samples(running: Fleet, job_id: str) -> list[UsageRow]:
    page = await running.client.request(registry.QUERY_SAMPLES, SamplesQuery(job_id=job_id), key=TENANT, timeout_s=20)
    return [row for row in page.rows if row.item == "gpu_ms"]


async def test_what_was_held_is_what_is_measured(running: Fleet, job: str) -> None:
    [attempt] = await usage(running, job)
    page = await running.client.request(registry.QUERY_HOLDINGS, HoldingsQuery(job_ids=[job]), key=TENANT, timeout_s=20)
    [held] = page.holdings
    assert held.held_to is not None
    held_ms = round((held.held_to - held.held_from).total_seconds() * 1000) * held.cards
    assert attempt.held_gpu_ms == pytest.approx(held_ms, abs=2)
    assert abs(attempt.gpu_ms - held_ms) <= WINDOW_MS * held.cards
    assert attempt.windows >= 3
    assert attempt.unbilled == []
    rows = await samples(running, job)
    assert sum(row.quantity for row in rows) == attempt.gpu_ms
    assert {row.card for row in rows} == {0, 1}


async def test_rows_of_a_lying_node_are_kept_shown_and_not_billed(running: Fleet, job: str) -> None:
    before = await usage(running, job)
    row = (await samples(running, job))[-1]
    two_days_s = 2 * 24 * 3600
    liar = Liar(running.client.connection, row)
    await liar.say(**later(row, 2) | {"window_end": later(row, 1)["window_start"]})
    await liar.say(**later(row, 3) | {"card": 77})
    await liar.say(**later(row, two_days_s))
    stranger = await liar.say(**later(row, 4) | {"job_id": new_id()})

    async def faults() -> set[str] | None:
        page = await running.client.request(registry.QUERY_REFUSED, RefusedQuery(), key=TENANT, timeout_s=20)
        found: set[str] = {one.fault for one in page.rows}
        wanted = {RowFault.WRONG_WINDOW, RowFault.CARD_NOT_HELD, RowFault.CLOCK_JUMP, RowFault.UNKNOWN_ATTEMPT}
        return found if found >= wanted else None

    await until(faults, 20, "the four faults to be shown")
    [unknown] = await usage(running, stranger)
    assert (unknown.job_name, unknown.gpu_ms) == (None, 0)
    assert [one.fault for one in unknown.unbilled] == [RowFault.UNKNOWN_ATTEMPT]
    assert [one.gpu_ms for one in await usage(running, job)] == [one.gpu_ms for one in before]


async def test_the_invoice_is_proved_from_the_measured_messages(running: Fleet, job: str) -> None:
    [attempt] = await usage(running, job)
    invoice = await close(running)
    assert invoice.total_micro > 0
    assert invoice.samples == attempt.samples
    async with connected(running.stack.directory) as session:
        proof = await verify(session, invoice)
    assert proof.differences == []
    assert proof.recomputed_total_micro == invoice.total_micro
    [after] = await usage(running, job)
    assert after.closed_samples == after.samples


async def test_every_service_and_agent_shows_its_metrics(running: Fleet, job: str) -> None:
    assert job
    for part in (*SERVICES, *(node.name for node in NODES)):
        page = await http_get(running.stack.config.ports[metrics_port(part)], "/metrics")
        assert page is not None, part
        families = {family.name for family in text_string_to_metric_families(page)}
        assert any(name.startswith("farside_") for name in families), (part, families)
