"""All SQL of the alerting service. Functions take the connection of the caller's transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter

from contracts.alerts import Alert, AlertPhase, Notification
from libs.db import Connection, Row
from libs.telemetry.context import Trace
from services.alerting.core.delivery import Again, Delivered, Fate, Park
from services.alerting.core.model import Closing, Opening, Watch

_HISTORY = TypeAdapter(tuple[tuple[Opening, ...], tuple[Closing, ...]])

_LOCK = """
    INSERT INTO subjects (fingerprint, touched_at) VALUES ($1, $2)
    ON CONFLICT (fingerprint) DO UPDATE SET touched_at = excluded.touched_at RETURNING history
"""
_SAVE_SUBJECT = "UPDATE subjects SET history = $2 WHERE fingerprint = $1"
_FORGET = """
    DELETE FROM subjects WHERE touched_at < $1 AND NOT EXISTS (
      SELECT FROM alerts WHERE alerts.fingerprint = subjects.fingerprint AND alerts.state = 'firing')
"""
_FORGET_TOLD = """
    DELETE FROM notifications USING alerts
    WHERE alerts.alert_id = notifications.alert_id AND alerts.state = 'resolved' AND alerts.alert_id < $1
"""
_FORGET_ALERTS = "DELETE FROM alerts WHERE state = 'resolved' AND alert_id < $1"
_FIRING = "SELECT body FROM alerts WHERE fingerprint = $1 AND state = 'firing'"
_ADD_ALERT = "INSERT INTO alerts (alert_id, fingerprint, name, level, state, body) VALUES ($1, $2, $3, $4, $5, $6)"
_SAVE_ALERT = "UPDATE alerts SET state = $2, body = $3 WHERE alert_id = $1"
_PAGE = """
    SELECT body FROM alerts WHERE ($1::text IS NULL OR state = $1) AND ($2::text IS NULL OR alert_id < $2)
    ORDER BY alert_id DESC LIMIT $3
"""
_QUEUE = """
    INSERT INTO notifications
      (alert_id, receiver, about, fingerprint, state, body, trace_life, trace_hop, queued_at, changed_at, due_at)
    SELECT $1, receiver, $2, $3, 'waiting', $4, $5, $6, $7, $7, $7 FROM unnest($8::text[]) AS receiver
"""
_TOLD = "SELECT receiver FROM notifications WHERE alert_id = $1 AND about = 'firing'"
_DUE = """
    SELECT * FROM notifications AS one WHERE receiver = $1 AND state = 'waiting' AND due_at <= $2
      AND NOT EXISTS (
        SELECT FROM notifications AS before WHERE before.receiver = one.receiver
          AND before.fingerprint = one.fingerprint AND before.state = 'waiting' AND before.number < one.number)
    ORDER BY due_at, number LIMIT $3
"""
_SETTLE = """
    UPDATE notifications SET state = $4, message = $5, changed_at = $6, due_at = $7, tries = tries + 1
    WHERE alert_id = $1 AND receiver = $2 AND about = $3 AND state = 'waiting'
"""
_PARK_OTHERS = """
    UPDATE notifications SET state = 'parked', message = $2, changed_at = $3
    WHERE state = 'waiting' AND NOT receiver = ANY($1::text[]) RETURNING receiver
"""
_NOTIFICATIONS = """
    SELECT alert_id, receiver, about, state, tries, message, changed_at FROM notifications
    WHERE alert_id = ANY($1::text[]) ORDER BY alert_id, receiver, about
"""
_COUNT_FIRING = "SELECT name, level, count(*) AS number FROM alerts WHERE state = 'firing' GROUP BY name, level"
_COUNT_NOTIFICATIONS = "SELECT receiver, state, count(*) AS number FROM notifications GROUP BY receiver, state"


@dataclass(frozen=True)
class Due:
    """A notification to be delivered now. `alert` is the alert as it stood when this was queued."""

    alert: Alert
    receiver: str
    about: AlertPhase
    tries: int
    queued_at: datetime
    trace: Trace | None

    @property
    def key(self) -> str:
        """The same in every try: a receiver that has seen it has had this notification."""
        return f"{self.alert.alert_id}-{self.about.value}"


async def lock_subject(conn: Connection, fingerprint: str, now: datetime) -> Watch:
    """What is known of a subject, locked until the transaction ends; of a new one, nothing."""
    row = await conn.fetchrow(_LOCK, fingerprint, now)
    assert row is not None
    firing = await conn.fetchval(_FIRING, fingerprint)
    alert = None if firing is None else Alert.model_validate_json(firing)
    openings, closings = _HISTORY.validate_json(row["history"])
    return Watch(openings, closings, alert)


async def save_subject(conn: Connection, fingerprint: str, watch: Watch) -> None:
    """Keep what was read of a subject."""
    history = _HISTORY.dump_json((watch.openings, watch.closings)).decode()
    await conn.execute(_SAVE_SUBJECT, fingerprint, history)


async def forget_subjects(conn: Connection, before: datetime) -> None:
    """Drop subjects without a firing alert of which nothing was heard since `before`."""
    await conn.execute(_FORGET, before)


async def forget_alerts(conn: Connection, before: str) -> None:
    """Drop episodes that are over, and what is known of telling them, whose ids were made before `before`."""
    await conn.execute(_FORGET_TOLD, before)
    await conn.execute(_FORGET_ALERTS, before)


async def add_alert(conn: Connection, alert: Alert) -> None:
    """Enter a new episode."""
    fields = (alert.alert_id, alert.fingerprint, alert.name, alert.level, alert.state.value)
    await conn.execute(_ADD_ALERT, *fields, alert.model_dump_json())


async def save_alert(conn: Connection, alert: Alert) -> None:
    """Write an episode anew."""
    await conn.execute(_SAVE_ALERT, alert.alert_id, alert.state.value, alert.model_dump_json())


async def find_alert(conn: Connection, alert_id: str) -> Alert | None:
    """One episode."""
    body = await conn.fetchval("SELECT body FROM alerts WHERE alert_id = $1", alert_id)
    return None if body is None else Alert.model_validate_json(body)


async def page(conn: Connection, state: AlertPhase | None, before: str | None, limit: int) -> list[Alert]:
    """Episodes, the newest first: ids sort by the time they were made."""
    rows = await conn.fetch(_PAGE, None if state is None else state.value, before, limit)
    return [Alert.model_validate_json(row["body"]) for row in rows]


async def notifications(conn: Connection, alert_ids: Sequence[str]) -> dict[str, list[Notification]]:
    """What became of telling these episodes."""
    found: dict[str, list[Notification]] = {}
    for row in await conn.fetch(_NOTIFICATIONS, list(alert_ids)):
        found.setdefault(row["alert_id"], []).append(_to_notification(row))
    return found


async def told(conn: Connection, alert_id: str) -> list[str]:
    """The receivers for whom the firing of an episode was queued."""
    return [str(row["receiver"]) for row in await conn.fetch(_TOLD, alert_id)]


async def queue(conn: Connection, alert: Alert, receivers: Sequence[str], trace: Trace | None, now: datetime) -> None:
    """Queue one notification for each receiver: of the firing or the resolution, as the episode stands."""
    life, hop = (None, None) if trace is None else (trace.life, trace.hop)
    keys = (alert.alert_id, alert.state.value, alert.fingerprint)
    await conn.execute(_QUEUE, *keys, alert.model_dump_json(), life, hop, now, list(receivers))


async def due(conn: Connection, receiver: str, now: datetime, limit: int) -> list[Due]:
    """Notifications to be tried now, one for each fingerprint: the next waits until it is delivered or parked."""
    return [_to_due(row) for row in await conn.fetch(_DUE, receiver, now, limit)]


async def settle(conn: Connection, item: Due, fate: Fate, now: datetime) -> None:
    """Write what became of a try."""
    match fate:
        case Delivered():
            state, message, due_at = "delivered", "", now
        case Again(due_at, message):
            state = "waiting"
        case Park(message):
            state, due_at = "parked", now
    await conn.execute(_SETTLE, item.alert.alert_id, item.receiver, item.about.value, state, message, now, due_at)


async def park_others(conn: Connection, receivers: Sequence[str], message: str, now: datetime) -> list[str]:
    """Park what waits for receivers other than these; returns their names, once for each notification."""
    return [str(row["receiver"]) for row in await conn.fetch(_PARK_OTHERS, list(receivers), message, now)]


async def count_firing(conn: Connection) -> dict[tuple[str, int], int]:
    """How many alerts fire, by name and level."""
    return {(row["name"], row["level"]): row["number"] for row in await conn.fetch(_COUNT_FIRING)}


async def count_notifications(conn: Connection) -> dict[tuple[str, str], int]:
    """How many notifications there are, by receiver and state."""
    return {(row["receiver"], row["state"]): row["number"] for row in await conn.fetch(_COUNT_NOTIFICATIONS)}


def _to_notification(row: Row) -> Notification:
    return Notification(
        receiver=row["receiver"],
        about=AlertPhase(row["about"]),
        state=row["state"],
        tries=row["tries"],
        message=row["message"],
        at=row["changed_at"],
    )


def _to_due(row: Row) -> Due:
    return Due(
        alert=Alert.model_validate_json(row["body"]),
        receiver=row["receiver"],
        about=AlertPhase(row["about"]),
        tries=row["tries"],
        queued_at=row["queued_at"],
        trace=None if row["trace_life"] is None else Trace(row["trace_life"], row["trace_hop"]),
    )
