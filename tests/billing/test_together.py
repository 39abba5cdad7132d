"""The real metering and the real billing: a proven invoice, and alterations in metering's books."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, timedelta

import pytest
import pytest_asyncio

from contracts import registry
from contracts.usage import UsageQuery
from libs.cli.errors import FAILED
from libs.db import connect_once
from libs.kit.clock import SystemClock
from tests.billing.commands import Ran, farside
from tests.billing.nodes import Job
from tests.billing.play import Billing
from tests.checkpoint.stage import Stage, open_stage
from tests.servers import NatsServer, PostgresServer, SeaweedServer
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = {"FARSIDE_METERING_POLL_S": "0.2", "FARSIDE_METERING_CLOSE_GRACE_S": "3000000"}


@dataclass
class Metering:
    """The real service; its bucket holds the extracts."""

    stage: Stage

    async def measured(self, tenant: str) -> Job:
        """A job that was measured around the change of an hour, and is in metering's books."""
        start = SystemClock().now().astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
        job = Job(self.stage.client, tenant, start, node=f"n-{tenant}")
        await job.place()
        rows = await job.measure(-2, -1, 0, 1)

        async def kept() -> bool:
            query = UsageQuery(job_id=job.job_id)
            page = await self.stage.client.request(registry.QUERY_USAGE, query, key=tenant, timeout_s=20)
            return sum(each.samples for each in page.attempts) == len(rows)

        await until(kept, 30, f"{len(rows)} samples of {tenant}")
        return job

    async def bill(self, *words: str) -> Ran:
        return await farside(self.stage, "bill", *words)

    async def alter(self, statement: str, job: Job) -> None:
        """Change one row behind metering's back."""
        connection = await connect_once(self.stage.dsn, "metering")
        try:
            assert await connection.execute(statement, job.job_id, job.start) == "UPDATE 1"
        finally:
            await connection.close()


SET_SAMPLE = "UPDATE samples SET {} WHERE job_id = $1 AND window_start = $2 AND card = 0 AND item = 'gpu_ms'"
ALTER_SAMPLE = SET_SAMPLE.format("quantity = quantity + 1")
FREE_SAMPLE = SET_SAMPLE.format("close_id = NULL")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def metering(
    billing: Billing,
    hub: NatsServer,
    postgres: PostgresServer,
    s3: SeaweedServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Metering, None]:
    assert billing.stage.nats is hub
    folder = tmp_path_factory.mktemp("metering")
    async with open_stage("metering", hub, postgres, s3, folder, **SETTINGS) as stage:
        yield Metering(stage)


async def test_measured_windows_become_a_proven_invoice(metering: Metering) -> None:
    await metering.measured("proven")
    ran = await metering.bill("close", "--tenant", "proven", "--json")
    assert ran.status == 0, ran.err
    assert ran.data["invoice"]["samples"] == 16
    ran = await metering.bill("verify", "proven-0001", "--json")
    assert ran.status == 0, ran.out
    assert (ran.data["samples"], ran.data["measured"], ran.data["later"]) == (16, 16, 0)
    assert ran.data["invoice_total_micro"] == ran.data["recomputed_total_micro"] > 0
    ran = await metering.bill("show", "proven-0001", "--lines")
    assert "digits-mlp" in ran.out
    ran = await metering.bill("close", "--tenant", "proven", "--json")
    assert (ran.status, ran.data["invoice"]) == (0, None)


async def test_what_comes_late_is_a_second_proven_invoice(metering: Metering) -> None:
    job = await metering.measured("late")
    assert (await metering.bill("close", "--tenant", "late")).status == 0
    await job.measure(2, 0)

    async def kept() -> bool:
        page = await metering.stage.client.request(registry.QUERY_USAGE, UsageQuery(), key="late", timeout_s=20)
        return page.attempts[0].samples == 20

    await until(kept, 30, "the late samples")
    ran = await metering.bill("close", "--tenant", "late", "--json")
    assert ran.data["invoice"]["samples"] == 4
    for name in ("late-0001", "late-0002"):
        ran = await metering.bill("verify", name, "--json")
        assert ran.status == 0, ran.out


async def test_a_sample_altered_before_the_close_is_found(metering: Metering) -> None:
    job = await metering.measured("before")
    await metering.alter(ALTER_SAMPLE, job)
    assert (await metering.bill("close", "--tenant", "before")).status == 0
    ran = await metering.bill("verify", "before-0001", "--json")
    assert ran.status == FAILED
    assert {each["what"] for each in ran.data["differences"]} == {"sample as it was measured"}
    assert job.job_id in ran.data["differences"][0]["where"]


async def test_a_sample_altered_after_the_close_is_found(metering: Metering) -> None:
    job = await metering.measured("after")
    assert (await metering.bill("close", "--tenant", "after")).status == 0
    await metering.alter(ALTER_SAMPLE, job)
    ran = await metering.bill("verify", "after-0001", "--json")
    assert ran.status == FAILED
    assert {each["what"] for each in ran.data["differences"]} == {"sample since the close"}
    assert job.job_id in ran.data["differences"][0]["where"]


@pytest.mark.parametrize(
    ("tenant", "change", "what"),
    [
        ("tier", "tier = 'remote'", "sample's tier"),
        ("no-tier", "tier = 'cloud'", "sample's tier"),
        ("node", "node = 'remote-1'", "sample's node"),
        ("freed", "close_id = NULL", "sample's close_id"),
        ("moved", "rollup_id = NULL", "sample since the close"),
        ("share", "share_milli = 5000", "metering's samples of roll-up"),
    ],
)
async def test_a_column_of_a_sample_altered_after_the_close_is_found(
    metering: Metering, tenant: str, change: str, what: str
) -> None:
    job = await metering.measured(tenant)
    assert (await metering.bill("close", "--tenant", tenant)).status == 0
    await metering.alter(SET_SAMPLE.format(change), job)
    ran = await metering.bill("verify", f"{tenant}-0001", "--json")
    assert ran.status == FAILED, ran.err
    [difference] = ran.data["differences"]
    assert difference["what"].startswith(what)
    assert "pydantic" not in ran.out


async def test_a_sample_freed_and_billed_again_is_found_by_both_invoices(metering: Metering) -> None:
    job = await metering.measured("again")
    assert (await metering.bill("close", "--tenant", "again")).status == 0
    await metering.alter(FREE_SAMPLE, job)
    ran = await metering.bill("close", "--tenant", "again", "--json")
    assert ran.data["invoice"]["samples"] == 1
    for invoice in ("again-0001", "again-0002"):
        ran = await metering.bill("verify", invoice, "--json")
        assert ran.status == FAILED
        [where] = [one["where"] for one in ran.data["differences"] if one["what"] == "sample in another closing"]
        assert job.job_id in where
