"""Nodes and the scheduler played by the test: a placed job, and what its node measures."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contracts import registry
from contracts.jobs import JobState
from contracts.usage import UsageItem, UsageMeasured, UsageRow
from libs.bus import Client
from libs.kit.ids import new_id

EXAMPLE = Path(__file__).parents[2] / "contracts" / "examples" / "jobs.placed.v1" / "good-on-central-1.json"
NODE = "central-1"
PERIOD_S = 60
MEMORY_MIB = 81_559
MINUTE = timedelta(minutes=1)


@dataclass
class Job:
    """A job of one attempt with two cards of one node."""

    client: Client
    tenant: str
    start: datetime
    job_id: str = field(default_factory=new_id)
    incarnation: str = field(default_factory=new_id)
    node: str = NODE

    async def place(self, **member: Any) -> None:
        """Tell that it was placed, an hour before it was measured; `member` are changes to its place."""
        at = (self.start - timedelta(hours=1)).astimezone(UTC).isoformat().replace("+00:00", "Z")
        body: dict[str, Any] = json.loads(EXAMPLE.read_text())["body"]
        body |= {"job_id": self.job_id, "tenant": self.tenant, "submitted_at": at, "updated_at": at}
        body["attempt"]["members"][0] |= {"node": self.node} | member
        body["spec"] |= {"job_id": self.job_id, "tenant": self.tenant}
        state = JobState.model_validate(body)
        await self.client.publish(
            registry.JOBS_PLACED,
            state,
            key=self.tenant,
            subject=self.job_id,
            sequence=state.version,
            actor="scheduler",
        )

    def row(self, minute: int, *, card: int = 0, item: UsageItem = UsageItem.GPU_MS, **changes: Any) -> UsageRow:
        """What it held of one card in one minute."""
        start = self.start + minute * MINUTE
        size = MEMORY_MIB if item is UsageItem.GPU_MEMORY_MIB_MS else 1
        return UsageRow(
            job_id=self.job_id,
            tenant=self.tenant,
            attempt=1,
            member=0,
            card=card,
            card_uuid=f"GPU-{card}",
            accelerator="H100",
            share_milli=1000,
            item=item,
            quantity=PERIOD_S * 1000 * size,
            window_start=start,
            window_end=start + MINUTE,
        ).model_copy(update=changes)

    async def measure(self, *minutes: int) -> list[UsageRow]:
        """Publish windows as the node does; returns the rows in them."""
        told: list[UsageRow] = []
        for minute in minutes:
            rows = [self.row(minute, card=card, item=item) for card in (0, 1) for item in UsageItem]
            await self.publish(minute, rows)
            told += rows
        return told

    async def publish(self, minute: int, rows: list[UsageRow]) -> None:
        """Publish one window."""
        start = self.start + minute * MINUTE
        body = UsageMeasured(
            node=self.node,
            incarnation=self.incarnation,
            period_s=PERIOD_S,
            window_start=start,
            rows=rows,
            measured_at=start + MINUTE,
        )
        await self.client.publish(
            registry.USAGE_MEASURED,
            body,
            key=self.node,
            subject=self.node,
            sequence=0,
            actor=f"agent/{self.node}",
            incarnation=self.incarnation,
        )
