"""The scheduler and an agent, played by the test: placements, measured rows, fences, closings, what came of them."""

import gzip
import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from contracts import registry
from contracts.base import Tier
from contracts.checkpoints import CheckpointRestored
from contracts.jobs import MAX_CARDS_PER_MEMBER, AttemptState, JobKind, JobPhase, JobSpec, JobState, Member
from contracts.usage import (
    AttemptUsage,
    CloseReply,
    CloseRequest,
    RefusedPage,
    RefusedQuery,
    RefusedRow,
    RollUpsPage,
    RollUpsQuery,
    SamplesPage,
    SamplesQuery,
    UsageItem,
    UsageMeasured,
    UsagePage,
    UsagePeriodClosed,
    UsageQuery,
    UsageRolledUp,
    UsageRow,
)
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from tests.checkpoint.stage import Stage
from tests.waiting import until

PERIOD_S = 60
WIDTH = MAX_CARDS_PER_MEMBER
WINDOW_MS = PERIOD_S * 1000
ASK_S = 20.0


def begin() -> datetime:
    """The first window of the last whole hour but one: a whole hour of windows lies before now."""
    return SystemClock().now().astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)


@dataclass
class Node:
    """A node of its own name that runs one attempt of a job of its own tenant, from `begin()` on."""

    stage: Stage
    job_id: str = field(default_factory=new_id)
    tenant: str = field(default_factory=lambda: f"t-{new_id()[-12:]}")
    name: str = field(default_factory=lambda: f"n-{new_id()[-12:]}")
    begin: datetime = field(default_factory=begin)

    def row(self, window: int = 0, **changes: Any) -> UsageRow:
        """The whole window number `window` of card 0 of attempt 1."""
        start = self.begin + timedelta(seconds=PERIOD_S * window)
        whole = UsageRow(
            job_id=self.job_id,
            tenant=self.tenant,
            attempt=1,
            member=0,
            card=0,
            card_uuid="GPU-0",
            accelerator="H200",
            share_milli=1000,
            item=UsageItem.GPU_MS,
            quantity=WINDOW_MS,
            window_start=start,
            window_end=start + timedelta(seconds=PERIOD_S),
        )
        return whole.model_copy(update=changes)

    async def place(
        self,
        attempt: int = 1,
        cards: tuple[int, ...] = (0,),
        node: str | None = None,
        members: int = 1,
        **card: Any,
    ) -> None:
        """`jobs.placed`, and wait until it is known.

        Every member has the same cards, which is no matter here; more cards than a member may hold go to several.
        `card` is what the scheduler says of them.
        """
        where = node or self.name
        held = [cards[first : first + WIDTH] for first in range(0, len(cards), WIDTH)] * members
        seats = [
            Member(index=index, node=where, tier=Tier.CENTRAL, cards=list(own), **card)
            for index, own in enumerate(held)
        ]
        state = JobState(
            job_id=self.job_id,
            tenant=self.tenant,
            spec=self.spec(),
            version=attempt,
            state=JobPhase.PLACED,
            attempt=AttemptState(number=attempt, generation=1, members=seats),
            submitted_at=self.begin,
            updated_at=self.begin,
        )
        await self.stage.client.publish(
            registry.JOBS_PLACED, state, key=self.tenant, subject=self.job_id, actor="test", sequence=attempt
        )

        async def known() -> bool:
            usage = await self.usage(attempt)
            return usage is not None and usage.job_name is not None

        await until(known, 20, f"attempt {attempt} to be known")

    def spec(self) -> JobSpec:
        return JobSpec(
            job_id=self.job_id,
            tenant=self.tenant,
            name="train",
            kind=JobKind.TRAINING,
            command=["x"],
            max_runtime_s=60,
            team="vision",
        )

    async def measure(self, *rows: UsageRow, node: str | None = None, **changes: Any) -> UsageMeasured:
        """One message with these rows, in the grid window of the first."""
        start = rows[0].window_start.replace(second=0, microsecond=0)
        body = UsageMeasured(
            node=node or self.name,
            incarnation=new_id(),
            period_s=PERIOD_S,
            window_start=start,
            rows=list(rows),
            measured_at=rows[0].window_end,
        ).model_copy(update=changes)
        await self.say(body)
        return body

    async def say(self, body: UsageMeasured, **changes: Any) -> None:
        """Publish measured usage."""
        await self.stage.client.publish(
            registry.USAGE_MEASURED, body, key=body.node, subject=body.node, actor="test", sequence=1, **changes
        )

    async def restore(self, attempt: int, at: datetime) -> None:
        """`checkpoints.restored`: the fence."""
        body = CheckpointRestored(
            job_id=self.job_id, tenant=self.tenant, attempt=attempt, step=None, from_attempt=None, restored_at=at
        )
        await self.stage.client.publish(
            registry.CHECKPOINTS_RESTORED, body, key=self.tenant, subject=self.job_id, actor="test", sequence=attempt
        )

    async def usage(self, attempt: int = 1) -> AttemptUsage | None:
        """What is known of an attempt."""
        page: UsagePage = await self.stage.client.request(
            registry.QUERY_USAGE, UsageQuery(job_id=self.job_id), key=self.tenant, timeout_s=ASK_S
        )
        return next((one for one in page.attempts if one.attempt == attempt), None)

    async def until_samples(self, count: int, attempt: int = 1) -> AttemptUsage:
        """Wait for that many billable samples of an attempt."""

        async def there() -> AttemptUsage | None:
            usage = await self.usage(attempt)
            return usage if usage is not None and usage.samples == count else None

        return await until(there, 20, f"{count} samples of attempt {attempt}")

    async def refused(self) -> list[RefusedRow]:
        page: RefusedPage = await self.stage.client.request(
            registry.QUERY_REFUSED, RefusedQuery(), key=self.tenant, timeout_s=ASK_S
        )
        return page.rows

    async def until_refused(self, count: int = 1) -> list[RefusedRow]:
        async def there() -> list[RefusedRow]:
            rows = await self.refused()
            return rows if len(rows) >= count else []

        return await until(there, 20, f"{count} refused rows")

    async def samples(self) -> list[UsageRow]:
        page: SamplesPage = await self.stage.client.request(
            registry.QUERY_SAMPLES, SamplesQuery(job_id=self.job_id), key=self.tenant, timeout_s=ASK_S
        )
        return page.rows

    async def close(self, close_id: str | None = None) -> CloseReply:
        return await self.stage.client.request(
            registry.CALL_CLOSE, CloseRequest(close_id=close_id or new_id()), key=self.tenant, timeout_s=ASK_S
        )

    async def until_closed(self, close_id: str) -> UsagePeriodClosed:
        """The event that ends a closing."""

        async def told() -> UsagePeriodClosed | None:
            found = await self.stage.client.history([registry.USAGE_PERIOD_CLOSED], key=self.tenant)
            return next((event.body for event in found if event.body.close_id == close_id), None)

        return await until(told, 30, f"the end of closing {close_id}")

    async def rollups(self, close_id: str) -> list[UsageRolledUp]:
        """As they were told, each once; the query answers the same."""
        history = await self.stage.client.history([registry.USAGE_ROLLED_UP], key=self.tenant)
        told = sorted((event.body for event in history if event.body.close_id == close_id), key=lambda r: r.rollup_id)
        page: RollUpsPage = await self.stage.client.request(
            registry.QUERY_ROLLUPS, RollUpsQuery(close_id=close_id), key=self.tenant, timeout_s=ASK_S
        )
        assert page.rollups == told
        return told

    def extract(self, rollup: UsageRolledUp) -> list[UsageRow]:
        """The rows of an extract, whose digest is right."""
        lines = gzip.decompress(self.stage.store.get(self.stage.store.key(rollup.extract)))
        assert hashlib.sha256(lines).hexdigest() == rollup.sha256
        return [UsageRow.model_validate(json.loads(line)) for line in lines.splitlines()]
