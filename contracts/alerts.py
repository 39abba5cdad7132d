"""Alerts: what alerting has found, each told once when it fires and once when it is over."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from contracts.base import PAGE_LIMIT, Count, Cursor, Label, Model, Open, PageLimit, Positive, Text, Utc, Uuid

Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class AlertPhase(StrEnum):
    """Where an alert is in its life."""

    FIRING = "firing"
    RESOLVED = "resolved"


class Alert(Model):
    """One episode of an alert: from its firing to its resolution.

    `labels` are its identity and `fingerprint` a digest of them, sorted; a later firing with the same labels is another
    episode with an id of its own. `level` is 1 to 3, 1 the gravest. `seen` counts what happened while it fires.
    """

    alert_id: Uuid
    name: Label
    fingerprint: Fingerprint
    level: Annotated[int, Field(ge=1, le=3)]
    labels: Annotated[dict[Label, Label], Field(max_length=32)]
    annotations: Annotated[dict[Label, Text], Field(max_length=32)]
    state: AlertPhase
    seen: Positive
    fired_at: Utc
    resolved_at: Utc | None = None
    resolution: Text = ""


class AlertsQuery(Model):
    """Alerts, newest firing first; only those in `state` if it is given."""

    state: AlertPhase | None = None
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT


class NotificationPhase(StrEnum):
    """What has become of telling a receiver."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    PARKED = "parked"


class Notification(Model):
    """One message to a receiver about one alert. Parked ones are not tried any more; `message` says why."""

    receiver: Label
    about: AlertPhase
    state: Open[NotificationPhase]
    tries: Count
    message: Text = ""
    at: Utc


class AlertRecord(Model):
    """An alert and what became of telling it."""

    alert: Alert
    notifications: list[Notification] = []


class AlertsPage(Model):
    """`cursor` is None on the last page."""

    alerts: list[AlertRecord]
    cursor: Cursor | None = None


class ResolveRequest(Model):
    """An operator has dealt with a firing alert that nothing resolves by itself."""

    alert_id: Uuid
    reason: Annotated[str, Field(min_length=1, max_length=1024)]


class ResolveReply(Model):
    """The alert as it stands; one that was resolved before stays as it was."""

    alert: Alert
