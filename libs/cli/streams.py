"""What the streams tell about an invoice: how it was issued and closed, what was measured, where that was placed."""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from nats.errors import Error as NatsError

from contracts import registry
from contracts.invoices import Invoice
from contracts.registry import Message, Stream
from contracts.usage import UsagePeriodClosed, UsageRolledUp
from libs.audit import Placement, Reach, Replay
from libs.audit.gathered import Attempt
from libs.bus.errors import BusError
from libs.bus.events import Event
from libs.bus.reader import Reader
from libs.cli import words
from libs.cli.errors import UnreachableError
from libs.cli.session import Session

Say = Callable[[str], None]

TELL_EVERY = 10_000
ISSUED_WAIT_S = 5.0
"""An invoice that was written a moment ago may still be on its way to the stream."""


class Streams:
    """The streams, read for one tenant."""

    def __init__(self, session: Session, tenant: str, say: Say) -> None:
        """Nothing is read before it is asked for; `say` gets the progress. CliError for a tenant."""
        session.for_operator("reading streams")
        self._session = session
        self._tenant = tenant
        self._say = say

    async def reach(self) -> Reach:
        """How far back each stream tells."""
        return Reach(
            usage=await self._reach(registry.USAGE),
            jobs=await self._reach(registry.JOBS),
            invoices=await self._reach(registry.INVOICES),
        )

    async def issued(self, invoice_id: str) -> Invoice | None:
        """The tenant's invoice as it was issued."""
        message = registry.INVOICES_ISSUED
        since = await self._session.next_sequence(message)
        async with aclosing(self._replay([message], self._tenant)) as events:
            async for event in events:
                if event.body.invoice_id == invoice_id:
                    return event.body
        late = await self._session.first(
            [message], self._tenant, since, lambda event: event.body.invoice_id == invoice_id, ISSUED_WAIT_S
        )
        return None if late is None else late.body

    async def closings(self) -> tuple[dict[str, UsagePeriodClosed], dict[str, UsageRolledUp]]:
        """The tenant's closings and their roll-ups, by id."""
        closed, rollups = dict[str, UsagePeriodClosed](), dict[str, UsageRolledUp]()
        messages = [registry.USAGE_ROLLED_UP, registry.USAGE_PERIOD_CLOSED]
        async with aclosing(self._replay(messages, self._tenant)) as events:
            async for event in events:
                if isinstance(event.body, UsageRolledUp):
                    rollups.setdefault(event.body.rollup_id, event.body)
                else:
                    closed.setdefault(event.body.close_id, event.body)
        return closed, rollups

    async def placements(self, jobs: Collection[str]) -> dict[Attempt, Placement]:
        """Where the attempts of these jobs were placed; each counts as it was first told."""
        found: dict[Attempt, Placement] = {}
        async with aclosing(self._replay([registry.JOBS_PLACED], self._tenant)) as events:
            async for event in events:
                state = event.body
                if state.job_id in jobs and state.attempt is not None:
                    members = {member.index: member for member in state.attempt.members}
                    found.setdefault((state.job_id, state.attempt.number), Placement(state.tenant, members))
        return found

    async def measured(self, replay: Replay) -> None:
        """Feed every measured message that is there to `replay`."""
        taken = 0
        self._say(f"replaying the stream {registry.USAGE.name}")
        async with aclosing(self._replay([registry.USAGE_MEASURED], "*")) as events:
            async for event in events:
                assert event.delivery is not None, "it comes from a stream"
                replay.add(event.body, event.delivery.stored_at)
                taken += 1
                if taken % TELL_EVERY == 0:
                    self._say(f"{taken} measured messages replayed")
        self._say(f"{words.count(taken, 'measured message')} replayed to the end")

    async def _replay(self, messages: list[Message[Any]], key: str) -> AsyncGenerator[Event[Any], None]:
        client = self._session.client
        reader = Reader(client.connection, client.js, client.address.api, messages, [key], "all")
        try:
            async with aclosing(reader.replay()) as events:
                async for event in events:
                    yield event
        except (BusError, NatsError) as error:
            name = messages[0].stream.name
            msg = f"stream {name} cannot be replayed: {error}; `farside status` shows how the bus is"
            raise UnreachableError(msg) from None

    async def _reach(self, stream: Stream) -> datetime | None:
        """When the stream's first message was stored, if there were others before it."""
        js, name = self._session.client.js, stream.name
        try:
            state = (await js.stream_info(name)).state
            if state.first_seq <= 1:
                return None
            if state.messages == 0:
                return datetime.now(UTC)
            return (await js.get_msg(name, seq=state.first_seq, direct=True)).time
        except (NatsError, TimeoutError) as error:
            msg = f"stream {name} cannot be read ({error!r}): `farside provision` makes it"
            raise UnreachableError(msg) from None
