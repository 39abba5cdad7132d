"""Metering played by the test: closings with their roll-ups, told in any order."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contracts import registry
from contracts.base import Tier
from contracts.invoices import Invoice, InvoiceLine, InvoicesPage, InvoicesQuery, LinesQuery
from contracts.usage import RollUpEntry, UsageItem, UsagePeriodClosed, UsageRolledUp
from libs.db import Connection, connect_once
from libs.kit.ids import new_id
from tests.checkpoint.stage import Stage
from tests.waiting import until

HOUR_MS = 3_600_000
START = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
STANDARD = """\
rate_card: standard
version: {version}
currency: USD
exponent: 2
prices:
  - {{item: gpu_hour, accelerator: "*", tier: "*", price: "2.5", from: 2026-01-01T00:00:00Z, until: {until}}}
  - {{item: gpu_memory_gib_hour, accelerator: "*", tier: "*", price: "0.001", from: 2026-01-01T00:00:00Z, until: null}}
"""


def write_card(folder: Path, *, version: int = 1, until: str = "null", name: str = "standard", text: str = "") -> None:
    """Write a rate card, whole at once, with a time of change of its own."""
    path, fresh = folder / f"{name}.yaml", folder / f"{name}.new"
    before = path.stat().st_mtime_ns if path.exists() else 0
    fresh.write_text(text or STANDARD.format(version=version, until=until))
    if fresh.stat().st_mtime_ns == before:
        os.utime(fresh, ns=(before + 1_000_000, before + 1_000_000))
    fresh.replace(path)


@dataclass
class Closing:
    """One closing of a tenant, not yet told."""

    tenant: str
    number: int = 1
    close_id: str = field(default_factory=new_id)
    rollups: list[UsageRolledUp] = field(default_factory=list[UsageRolledUp])

    def add(self, quantity: int, *, hour: datetime = START, number: int = 1, samples: int = 60) -> UsageRolledUp:
        """One more roll-up, of one job."""
        rollup_id = new_id()
        entry = RollUpEntry(
            job_id="01a22b77-f6e0-716f-94c4-1d0405dbb10e",
            job_name="digits",
            item=UsageItem.GPU_MS,
            accelerator="H100",
            tier=Tier.CENTRAL,
            quantity=quantity,
            samples=samples,
        )
        rollup = UsageRolledUp(
            rollup_id=rollup_id,
            close_id=self.close_id,
            tenant=self.tenant,
            hour=hour,
            number=number,
            entries=[entry],
            samples=samples,
            extract=f"s3://farside/usage/{self.tenant}/{rollup_id}.jsonl.gz",
            sha256=rollup_id.replace("-", "") * 2,
        )
        self.rollups.append(rollup)
        return rollup

    @property
    def closed(self) -> UsagePeriodClosed:
        """What is told when it is done."""
        start = START + self.number * 24 * HOUR
        return UsagePeriodClosed(
            close_id=self.close_id,
            tenant=self.tenant,
            number=self.number,
            period_start=start,
            period_end=start + 24 * HOUR,
            cutoff=start + 24 * HOUR,
            rollups=len(self.rollups),
            samples=sum(rollup.samples for rollup in self.rollups),
        )


@dataclass
class Billing:
    """The service, its rate cards, and what it is told and asked."""

    stage: Stage
    rates: Path

    async def tell(self, body: UsageRolledUp | UsagePeriodClosed, *, sequence: int = 1) -> None:
        message: Any = registry.USAGE_ROLLED_UP if isinstance(body, UsageRolledUp) else registry.USAGE_PERIOD_CLOSED
        subject = body.rollup_id if isinstance(body, UsageRolledUp) else body.close_id
        await self.stage.client.publish(
            message, body, key=body.tenant, subject=subject, sequence=sequence, actor="/farside/metering"
        )

    async def tell_all(self, closing: Closing) -> None:
        for rollup in closing.rollups:
            await self.tell(rollup)
        await self.tell(closing.closed)

    async def page(self, tenant: str, **query: Any) -> InvoicesPage:
        return await self.stage.client.request(
            registry.QUERY_INVOICES, InvoicesQuery(**query), key=tenant, timeout_s=20
        )

    async def until_invoiced(self, closing: Closing) -> Invoice:
        """Wait for the invoice of a closing."""

        async def look() -> Invoice | None:
            page = await self.page(closing.tenant, close_id=closing.close_id)
            return page.invoices[0] if page.invoices else None

        found = await until(look, 20, f"an invoice for close {closing.close_id}")
        assert found is not None
        return found

    async def until_held(self, closing: Closing, words: str) -> str:
        """Wait until a closing is held for a reason with these words."""

        async def look() -> str:
            page = await self.page(closing.tenant, close_id=closing.close_id)
            return next((held.message for held in page.held if words in held.message), "")

        return await until(look, 20, f"close {closing.close_id} to be held: {words}")

    async def lines(self, invoice: Invoice) -> list[InvoiceLine]:
        query = LinesQuery(invoice_id=invoice.invoice_id)
        return (await self.stage.client.request(registry.QUERY_LINES, query, key=invoice.tenant, timeout_s=20)).lines

    async def issued(self, tenant: str) -> list[Any]:
        """The events about invoices of a tenant."""
        return await self.stage.client.history([registry.INVOICES_ISSUED], key=tenant)

    async def until_refused(self, words: str) -> None:
        """Wait for a dead letter that says so."""

        async def look() -> bool:
            letters = await self.stage.client.history([registry.DEADLETTERED])
            return any(words in letter.body.message for letter in letters)

        await until(look, 20, f"a dead letter: {words}")

    async def connect(self) -> Connection:
        """A session in billing's own schema."""
        return await connect_once(self.stage.dsn, "billing")
