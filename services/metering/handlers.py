"""The shell: measured usage in batches, placements, fences, and the call that closes a tenant's usage."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from contracts.checkpoints import CheckpointRestored
from contracts.jobs import JobState
from contracts.registry import NO_KEY
from contracts.requests import ProblemCode
from contracts.usage import CloseReply, CloseRequest, UsageMeasured
from libs.bus import Call, Event, Problem, Refused, Tx
from libs.db import Connection
from libs.kit.clock import Clock
from libs.telemetry import context
from services.metering import closing, store
from services.metering.admit import admit
from services.metering.core.model import Limits, Measured
from services.metering.meters import Meters


class Handlers:
    """What the service does with what comes in."""

    def __init__(self, limits: Limits, meters: Meters, clock: Clock, wake: Callable[[], None]) -> None:
        """`wake` says that there is a closing to carry out."""
        self._limits = limits
        self._meters = meters
        self._clock = clock
        self._wake = wake

    async def measured(self, tx: Tx[Connection], events: Sequence[Event[UsageMeasured]]) -> None:
        """Rows of many messages in one transaction; the samples' own key makes each count once."""
        rows = [row for event in events for row in _rows(event)]
        await admit(tx.conn, rows, self._limits, self._meters)
        self._meters.judged(min(row.stored_at for row in rows), self._clock.now())

    async def placed(self, tx: Tx[Connection], event: Event[JobState]) -> None:
        """An attempt is known from now on; rows that came before it are judged anew."""
        state = event.body
        if state.attempt is None:
            msg = f"jobs.placed of job {state.job_id} names no attempt"
            raise Refused(msg)
        await store.lock(tx.conn)
        if await store.add_placement(tx.conn, state, state.attempt):
            waiting = await store.take_unknown(tx.conn, state.job_id, state.attempt.number)
            await admit(tx.conn, waiting, self._limits, self._meters)

    async def restored(self, tx: Tx[Connection], event: Event[CheckpointRestored]) -> None:
        """Attempts before this one had their last effects: what they held afterwards is not billed."""
        body = event.body
        await store.lock(tx.conn)
        await store.fence(tx.conn, body.job_id, body.attempt, body.restored_at)

    async def finished(self, tx: Tx[Connection], event: Event[JobState]) -> None:
        """No attempt holds anything any more: what begins later than clocks may differ is not billed."""
        state = event.body
        await store.lock(tx.conn)
        at = state.updated_at + timedelta(seconds=self._limits.ahead_s)
        await store.fence(tx.conn, state.job_id, state.attempts + 1, at)

    async def close(self, tx: Tx[Connection], call: Call[CloseRequest]) -> CloseReply:
        """Note a closing down, with its samples; the closer carries it out."""
        if call.key == NO_KEY:
            raise Problem(ProblemCode.INVALID, "a closing is of one tenant: name it in the subject")
        actor = call.caller or "operator"
        await closing.lock(tx.conn)
        reply = await closing.open_now(
            tx.conn, call.key, call.body.close_id, self._clock.now(), actor, context.current()
        )
        self._wake()
        return reply


def _rows(event: Event[UsageMeasured]) -> Iterator[Measured]:
    assert event.delivery is not None, "measured usage comes from a stream"
    body = event.body
    for place, row in enumerate(body.rows):
        yield Measured(
            row=row,
            source=event.source,
            message_id=event.id,
            place=place,
            node=event.key,
            period_s=body.period_s,
            window_start=body.window_start,
            stored_at=event.delivery.stored_at,
            trace=event.traceparent,
        )
