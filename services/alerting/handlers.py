"""The shell: events in, one transaction each; queries and an operator's resolution."""

import re
from collections.abc import Callable, Sequence

from contracts.alerts import (
    AlertPhase,
    AlertRecord,
    AlertsPage,
    AlertsQuery,
    ResolveReply,
    ResolveRequest,
)
from contracts.base import MAX_REPLY_BYTES, UUID_PATTERN, Model
from contracts.checkpoints import CheckpointCommitted, CheckpointFailed
from contracts.fleet import BreakerMoved
from contracts.jobs import JobState
from contracts.nodes import NodeState
from contracts.requests import ProblemCode
from libs.bus import Call, Event, Problem, Tx
from libs.db import Connection
from libs.kit.clock import Clock
from libs.kit.ids import new_id
from services.alerting import store
from services.alerting.core import signals
from services.alerting.core.model import Signal
from services.alerting.core.rules import decide, fingerprint, identity, resolve_by_hand, rules_for
from services.alerting.effects import Teller

PAGE_BYTES = MAX_REPLY_BYTES - 4096
SELF = "alerting"
OPERATOR = "operator"


class Handlers:
    """What the service does with what comes in."""

    def __init__(self, receivers: Sequence[str], wake: Callable[[], None], clock: Clock) -> None:
        """`receivers` are told of what fires; `wake` says that there may be something to deliver."""
        self._receivers = tuple(receivers)
        self._wake = wake
        self._clock = clock

    async def node(self, tx: Tx[Connection], event: Event[NodeState]) -> None:
        """A node was lost or is back, is faulty or is no more."""
        await self._take(tx, signals.node(event.message.id, event.body, _sequence(event)))

    async def breaker(self, tx: Tx[Connection], event: Event[BreakerMoved]) -> None:
        """A breaker has opened, or is closed again."""
        await self._take(tx, signals.breaker(event.message.id, event.body, _sequence(event)))

    async def failed(self, tx: Tx[Connection], event: Event[CheckpointFailed]) -> None:
        """A checkpoint failed."""
        await self._take(tx, signals.checkpoint_failed(event.body, _sequence(event)))

    async def committed(self, tx: Tx[Connection], event: Event[CheckpointCommitted]) -> None:
        """A checkpoint was committed."""
        await self._take(tx, signals.checkpoint_committed(event.body, _sequence(event)))

    async def finished(self, tx: Tx[Connection], event: Event[JobState]) -> None:
        """A job has come to its end."""
        await self._take(tx, signals.job_finished(event.body))

    async def _take(self, tx: Tx[Connection], signal: Signal) -> None:
        now = self._clock.now()
        for rule in rules_for(signal):
            place = fingerprint(identity(rule, signal.facts))
            before = await store.lock_subject(tx.conn, place, now)
            watch, effects = decide(rule, before, signal, now=now, new_id=new_id)
            await store.save_subject(tx.conn, place, watch)
            teller = Teller(tx, now, self._receivers, SELF)
            for effect in effects:
                await teller.apply(effect)
        tx.after_commit(self._wake)

    async def alerts(self, tx: Tx[Connection], call: Call[AlertsQuery]) -> AlertsPage:
        """Episodes, newest first; a page ends where the reply would grow too large."""
        query = call.body
        if query.cursor is not None and re.fullmatch(UUID_PATTERN, query.cursor) is None:
            msg = f"cursor is {query.cursor!r}: pass the cursor of the page before, or none"
            raise Problem(ProblemCode.INVALID, msg)
        found = await store.page(tx.conn, query.state, query.cursor, query.limit + 1)
        told = await store.notifications(tx.conn, [alert.alert_id for alert in found])
        records: list[AlertRecord] = []
        size_bytes = 0
        for alert in found[: query.limit]:
            record = AlertRecord(alert=alert, notifications=told.get(alert.alert_id, []))
            size_bytes += len(record.model_dump_json().encode()) + 1
            if records and size_bytes > PAGE_BYTES:
                break
            records.append(record)
        return AlertsPage(alerts=records, cursor=records[-1].alert.alert_id if len(records) < len(found) else None)

    async def resolve(self, tx: Tx[Connection], call: Call[ResolveRequest]) -> ResolveReply:
        """End an episode by hand. Whatever was seen of its subject up to now is dealt with; what comes later fires."""
        asked, now, actor = call.body, self._clock.now(), call.caller or OPERATOR
        known = await store.find_alert(tx.conn, asked.alert_id)
        if known is None:
            msg = f"there is no alert {asked.alert_id}: `farside alerts` lists them"
            raise Problem(ProblemCode.NOT_FOUND, msg)
        before = await store.lock_subject(tx.conn, known.fingerprint, now)
        if before.firing is None or before.firing.alert_id != asked.alert_id:
            current = await store.find_alert(tx.conn, asked.alert_id)
            assert current is not None
            assert current.state is AlertPhase.RESOLVED, f"alert {asked.alert_id} fires, but is not its subject's"
            return ResolveReply(alert=current)
        watch, effect = resolve_by_hand(before, f"by hand, {actor}: {asked.reason}", now)
        assert effect is not None, "what is resolved by hand leaves nothing open"
        await store.save_subject(tx.conn, known.fingerprint, watch)
        await Teller(tx, now, self._receivers, actor).apply(effect)
        tx.after_commit(self._wake)
        return ResolveReply(alert=effect.alert)


def _sequence(event: Event[Model]) -> int:
    assert event.sequence is not None, f"{event.message.id} without a sequence passed the codec"
    return event.sequence
