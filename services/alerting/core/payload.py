"""A notification in the format of Alertmanager's webhook receiver, version 4.

Source: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config. Each alert is a group of its own,
since it is told the moment it fires.
"""

import json
from datetime import datetime
from typing import Any

from contracts.alerts import Alert, AlertPhase

VERSION = "4"
NEVER = "0001-01-01T00:00:00Z"
SEVERITIES = {1: "critical", 2: "warning", 3: "info"}


def payload(alert: Alert, receiver: str, external_url: str) -> dict[str, Any]:
    """What `receiver` is sent about an alert as it stands. `external_url` may be empty."""
    labels = {**alert.labels, "level": str(alert.level), "severity": SEVERITIES[alert.level]}
    return {
        "version": VERSION,
        "groupKey": _group_key(alert),
        "truncatedAlerts": 0,
        "status": alert.state.value,
        "receiver": receiver,
        "groupLabels": dict(alert.labels),
        "commonLabels": labels,
        "commonAnnotations": dict(alert.annotations),
        "externalURL": external_url,
        "alerts": [
            {
                "status": alert.state.value,
                "labels": labels,
                "annotations": dict(alert.annotations),
                "startsAt": _time(alert.fired_at),
                "endsAt": _time(alert.resolved_at) if alert.state is AlertPhase.RESOLVED else NEVER,
                "generatorURL": f"{external_url}/alerts/{alert.alert_id}" if external_url else "",
                "fingerprint": alert.fingerprint,
            }
        ],
    }


def _group_key(alert: Alert) -> str:
    """As Alertmanager writes it: the route's matchers (none), and the labels of the group."""
    labels = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(alert.labels.items()))
    return f"{{}}:{{{labels}}}"


def _time(at: datetime | None) -> str:
    assert at is not None, "a resolved alert has the time of its resolution"
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
